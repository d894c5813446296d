"""Whether TVM's IterMapSimplify accepts a binding (`arith/iter_affine_map.cc`: TryFuseIters).

Fuse and Split simplify a block's bindings only if each is a mixed-radix number: in order of
increasing stride, each term continues where the previous one ends. A term that begins earlier
(overlap, as of a sliding window) is accepted if the smallest stride is 1; a gap is not.
"""

from __future__ import annotations

from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.forms import Form, Mask, Num


def fuses(form: Form) -> Mask:
    """Rows in which a form with strides of 0 or more is accepted."""
    terms = [(stride, leaf.extent) for leaf, stride in form.items() if leaf is not None]
    left: list[Mask] = [
        forms.negate(forms.either(forms.compare(stride, 0), forms.compare(extent, 1)))
        for stride, extent in terms
    ]
    fits: Mask = True
    base: Num = 0
    reached: Num = 0
    for step in range(len(terms)):
        stride: Num = 0
        end: Num = 0
        exists: Mask = False
        chosen: list[Mask] = [False] * len(terms)
        for i in range(len(terms) - 1, -1, -1):
            candidate, extent = terms[i]
            if step == 0:
                better = forms.either(forms.negate(exists), candidate < stride)
            else:
                later = forms.either(forms.negate(exists), candidate > stride)
                better = forms.both(later, candidate <= reached)
            better = forms.both(better, left[i])
            stride = forms.select(better, candidate, stride)
            end = forms.select(better, forms.times(candidate, extent), end)
            chosen = [forms.both(t, forms.negate(better)) for t in chosen]
            chosen[i] = better
            exists = forms.either(exists, better)
        any_left: Mask = False
        for mask in left:
            any_left = forms.either(any_left, mask)
        if step == 0:
            base = stride
        else:
            exact = forms.either(forms.compare(stride, reached), forms.compare(base, 1))
            fits = forms.both(fits, forms.either(forms.negate(any_left), forms.both(exists, exact)))
        reached = forms.select(exists, end, reached)
        left = [forms.both(a, forms.negate(t)) for a, t in zip(left, chosen, strict=True)]
    return fits
