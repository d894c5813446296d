"""Regions of padded blocks whose work threads share unevenly (`arith/iter_affine_map.cc`).

The last threads are idle: a condition keeps the iterations from F on from running. Beside it stands
the condition of the padding. Where TVM does not understand that one (`NormalizeToIterOnBoundExpr`)
it gives up the other one too, and a region holds what iterations up to X would touch.

Notation
--------
F, X   as in `cuts`
g      what both sides of a padding's condition are divided by
"""

from __future__ import annotations

from math import prod

from pruner_ms.symbolic import expr, forms
from pruner_ms.symbolic.cuts import Cut
from pruner_ms.symbolic.expr import Binary, Expr
from pruner_ms.symbolic.first_row import is_first_row, solved, unsure
from pruner_ms.symbolic.forms import Form, Leaf, Mask, Num
from pruner_ms.symbolic.intervals import Interval
from pruner_ms.symbolic.iter_map import fuses
from pruner_ms.symbolic.state import SOLVED, TESTS, Acc, Block, State, Test


def overrun(state: State, block: Block, access: Acc, spans: list[Interval]) -> list[Interval]:
    """The regions of an access, with what idle threads would touch where TVM counts them.

    Rows in which that hangs on how far TVM's simplifier gets are doubted.
    """
    found = list(spans)
    known: Mask = False
    if is_first_row(block):
        state.doubt(forms.negate(unsure(block)))
        known = solved(block)
    for cut in block.cuts if TESTS in block.notes else ():
        state.doubt(forms.negate(_refused(state, block, cut)))
        if not forms.possible(forms.both(cut.guarded, _tested(block))):
            continue
        obscure, torn = _obscure(state, block, cut)
        counted, perhaps = (forms.both(m, forms.negate(known)) for m in (obscure, torn))
        for i, dim in enumerate(access.dims):
            form = state.evaluator(block).form(dim.index)
            for digit, leaf in enumerate(cut.leaves):
                if leaf not in form:
                    continue
                more = forms.quotient(cut.reach - 1, cut.inside[digit]) - leaf.last
                more = forms.select(cut.last(digit), forms.times(form[leaf], more), 0)
                state.doubt(forms.negate(forms.both(perhaps, more > 0)))
                found[i] = found[i][0] + forms.select(counted, more, 0), found[i][1]
    return found


def _refused(state: State, block: Block, cut: Cut) -> Mask:
    """Rows of which TVM refuses to place more blocks, as it does not see what this one covers.

    Rows of pixels are parts of one loop f without columns between them: their condition is solved,
    `f < end`, and tiles that f does not fill are no digits of pixels, unless whole rows of the
    image fill them. A block behind reads the pixels, or has been inlined.
    """
    widths = {w for write in block.writes for dim in write.dims for w in expr.divisors(dim.index)}
    found: Mask = False
    read = block.notes.get(SOLVED) or not all(write.buffer.param for write in block.writes)
    for test in block.notes[TESTS] if widths and read else ():
        form = state.evaluator(block).form(_pixel(test.index))
        torn: Mask = False
        for width in widths:
            torn = forms.either(torn, forms.negate(forms.divides(width, forms.reach(form))))
        alone: Mask = True
        parts: Num = 0
        for leaf, stride in form.items():
            if leaf in cut.leaves:
                parts = parts + _runs(leaf, stride)
            elif leaf is not None:
                alone = forms.both(alone, forms.negate(_runs(leaf, stride)))
        inner: Form = {leaf: form[leaf] for leaf in cut.leaves if leaf in form}
        one = forms.both(alone, _adjoin(cut, inner))
        several = forms.both(torn, parts > 1)
        found = forms.either(found, forms.both(test.rows, forms.both(one, several)))
    return found


def _pixel(index: Expr) -> Expr:
    """What a row of pixels is a quotient of."""
    while isinstance(index, Binary) and index.op == "//":
        index = index.a
    return index


def _adjoin(cut: Cut, moving: Form) -> Mask:
    """Rows in which no other digit of the loop lies between those that move an index."""
    if not moving:
        return False
    places = [i for i, leaf in enumerate(cut.leaves) if leaf in moving]
    between = [leaf for leaf in cut.leaves[places[0] : places[-1]] if leaf not in moving]
    return forms.compare(prod(leaf.extent for leaf in between), 1)


def _tested(block: Block) -> Mask:
    """Rows in which there is a condition of the padding."""
    found: Mask = False
    for test in block.notes[TESTS]:
        found = forms.either(found, test.rows)
    return found


def _obscure(state: State, block: Block, cut: Cut) -> tuple[Mask, Mask]:
    """Rows in which a condition of the padding is not understood, and in which it may not be."""
    counted: Mask = False
    perhaps: Mask = False
    for test in block.notes[TESTS]:
        form = state.evaluator(block).form(test.index)
        moving = [(leaf, form[leaf]) for leaf in cut.leaves if leaf in form]
        unit: Mask = False
        moves: Mask = False
        for leaf, stride in moving:
            runs = _runs(leaf, stride)
            moves = forms.either(moves, runs)
            unit = forms.either(unit, forms.both(runs, forms.compare(stride, 1)))
        fits = forms.either(forms.negate(moves), forms.both(unit, fuses(dict(moving))))
        counted = forms.either(counted, forms.both(test.rows, forms.negate(fits)))
        torn = _torn(cut, form, test)
        perhaps = forms.either(perhaps, forms.both(test.rows, forms.both(moves, torn)))
    return counted, forms.both(perhaps, forms.negate(counted))


def _runs(leaf: Leaf, stride: Num) -> Mask:
    """Rows in which a leaf moves an index."""
    return forms.both(forms.differ(leaf.extent, 1), stride > 0)


def _torn(cut: Cut, form: Form, test: Test) -> Mask:
    """Rows in which a part of the loop moves a digit of a condition by whole steps.

    The part is then taken out of the digit, and what is left is not the loop any more.
    """
    factor: Num = test.end
    for leaf, stride in form.items():
        if leaf is not None:
            factor = forms.gcd(factor, forms.select(forms.compare(stride, 1), 0, stride))
    found: Mask = False
    for digit, leaf in enumerate(cut.leaves):
        if leaf not in form:
            continue
        least = forms.compare(form[leaf], 1)
        several = forms.select(forms.compare(factor, 1), leaf.extent, factor)
        period = forms.times(cut.inside[digit], forms.select(least, several, 1))
        for step, extent in zip(cut.steps[:-1], cut.extents[:-1], strict=True):
            whole = forms.divides(period, step)
            part = forms.both(whole, forms.differ(extent, 1))
            found = forms.either(found, forms.both(_runs(leaf, form[leaf]), part))
    return found
