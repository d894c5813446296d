"""Vectors written to shared memory whose address TVM leaves in pieces, and cannot build then.

The tile lies in one piece, and so do the iterations of a fetch: its digits make up x again. But
TVM simplifies each for itself first. A digit whose step divides a round is of what is left of x in
that round, another one of the whole x: of the two together it finds no sum. Nor does it where a
round is not full, and x tested. Where lanes go from one step of a digit to the next, the pieces are
vectors with names of their own, and ThreadSync stops at them in a loop that is not unrolled
(`Check failed: (eval_vec_)`, `sym/int_set.cc`). Of 56 fetches in which lanes do so, TVM 0.27
refused 21: these, and no other.

Of images with a border, which test x in any case, it was so where a round is not full (14 of 19).

Notation
--------
x      iteration of the fetch's loop, x = o * D + t * L + l with lanes l < L
D      iterations of a round: of all threads, with their lanes
step   iterations that one step of a digit takes
"""

from __future__ import annotations

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.forms import Mask, Num
from pruner_ms.symbolic.postprocs import unrolled
from pruner_ms.symbolic.state import Block, State, copied_without


def are_joined(state: State) -> Mask:
    """Rows in which every vector that is written to shared memory has one address."""
    return copied_without(state, _in_pieces)


def _in_pieces(block: Block) -> Mask:
    if not (block.cuts and forms.possible(block.lanes > 1)):
        return False
    cut = block.cuts[-1]
    round_: Num = 1
    for extent in cut.extents[1:]:
        round_ = forms.times(round_, extent)
    torn: Mask = False
    in_round: Mask = False
    of_all: Mask = False
    count: Num = 0
    for leaf, step in zip(cut.leaves, cut.inside, strict=True):
        # the innermost digit is what the others leave; one that does not move is no digit
        digit = forms.both(forms.differ(leaf.extent, 1), forms.differ(step, 1))
        if not forms.possible(digit):
            continue
        divides = forms.divides(step, round_)
        in_round = forms.either(in_round, forms.both(digit, divides))
        neither = forms.negate(forms.either(divides, forms.divides(round_, step)))
        of_all = forms.either(of_all, forms.both(digit, neither))
        torn = forms.either(torn, forms.both(digit, forms.negate(forms.divides(block.lanes, step))))
        count = count + forms.select(digit, 1, 0)
    apart = forms.both(in_round, forms.either(of_all, cut.guarded))
    if not block.copy:
        apart = forms.both(apart, cut.guarded)
    found = forms.both(forms.both(torn, forms.both(count > 1, apart)), cut.extents[0] > 1)
    return forms.both(found, cut.extents[0] > unrolled(block)) if forms.possible(found) else False
