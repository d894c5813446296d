"""Whether TVM's IterMapSimplify accepts a binding (`arith/iter_affine_map.cc`: TryFuseIters).

Fuse and Split simplify a block's bindings only if each is a mixed-radix number: in order of
increasing stride, each term continues where the previous one ends. A term that begins earlier
(overlap, as of a sliding window) is accepted if the smallest stride is 1; a gap is not.
"""

from __future__ import annotations

from pruner_ms.symbolic.index.forms import Form
from pruner_ms.symbolic.rows import Mask, Num, both, either, negate, select, times


def fuses(form: Form) -> Mask:
    """Rows in which a form with strides of 0 or more is accepted."""
    terms = [(stride, leaf.extent) for leaf, stride in form.items() if leaf is not None]
    left: list[Mask] = [negate(either(stride == 0, extent == 1)) for stride, extent in terms]
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
                better = either(negate(exists), candidate < stride)
            else:
                later = either(negate(exists), candidate > stride)
                better = both(later, candidate <= reached)
            better = both(better, left[i])
            stride = select(better, candidate, stride)
            end = select(better, times(candidate, extent), end)
            chosen = [both(t, negate(better)) for t in chosen]
            chosen[i] = better
            exists = either(exists, better)
        any_left: Mask = False
        for mask in left:
            any_left = either(any_left, mask)
        if step == 0:
            base = stride
        else:
            exact = either(stride == reached, base == 1)
            fits = both(fits, either(negate(any_left), both(exists, exact)))
        reached = select(exists, end, reached)
        left = [both(a, negate(t)) for a, t in zip(left, chosen, strict=True)]
    return fits
