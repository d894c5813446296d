"""Variables that RFactor derives: digits of several loops, `(o * k + u) % e` (`compute_at.cc`).

The region that a moved block covers runs from the least to the largest value of an index. TVM takes
the least one of the index as it stands, where the remainder is 0 for any loop that runs, and the
largest one of the simplified index, from which loops that count whole e are gone.

Notation
--------
own    leaves of the digit
fused  leaves of the loops that the digit is made of
"""

from __future__ import annotations

from collections.abc import Mapping

from pruner_ms.symbolic import expr, forms
from pruner_ms.symbolic.expr import Expr
from pruner_ms.symbolic.forms import Leaf, Mask, Num
from pruner_ms.symbolic.state import Block, State


def refuse(state: State, block: Block, index: Expr, free: Mapping[Leaf, Mask], rows: Mask) -> None:
    """Note the rows in which a loop over a region has an extent that depends on other loops.

    It does where loops that count whole e run and those within the digit stand still. Where some
    within it run and others do not, the row is doubted: TVM may miss that the extent is constant.

    Parameters
    ----------
    index
        An index of the block that reads.
    free
        Leaf -> rows in which it runs.
    rows
        Rows in which the block reads there.
    """
    known = {key for key, _ in block.iters}
    for key in expr.variables(index) - known:
        form = block.env[key]
        own = {leaf: forms.differ(stride, 0) for leaf, stride in form.items() if leaf is not None}
        fused, outer = _loops(block, own)
        stands = forms.both(rows, _some(own, free, False))
        moves = _some(own, free, True)
        varies = forms.both(forms.both(stands, _some(fused, free, True)), forms.negate(moves))
        if forms.certain(forms.compare(outer, 1)):  # it has no remainder
            varies = False
        state.dynamic = forms.either(state.dynamic, varies)
        state.doubt(forms.negate(forms.either(varies, forms.both(moves, stands))))


def _loops(block: Block, own: Mapping[Leaf, Mask]) -> tuple[dict[Leaf, Mask], Num]:
    """Leaves of the loops that hold some of a digit's, and iterations of those outside of it."""
    fused: dict[Leaf, Mask] = {}
    outer: Num = 1
    for loop, here in zip(block.path, block.mask, strict=True):
        places = [i for i, leaf in enumerate(loop.leaves) if leaf in own]
        if places:
            fused.update((leaf, here) for leaf in loop.leaves)
            for leaf in loop.leaves[: places[0]]:
                outer = forms.times(outer, forms.select(here, leaf.extent, 1))
    return fused, outer


def _some(leaves: Mapping[Leaf, Mask], free: Mapping[Leaf, Mask], runs: bool) -> Mask:
    """Rows in which one of some leaves, of more than one iteration, runs or stands still."""
    found: Mask = False
    for leaf, there in leaves.items():
        here = free.get(leaf, False)
        here = forms.both(there, here if runs else forms.negate(here))
        found = forms.either(found, forms.both(here, forms.differ(leaf.extent, 1)))
    return found
