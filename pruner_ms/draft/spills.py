"""Vector registers that LLVM spills: values that it keeps for later than registers last.

LLVM loads a value once and keeps it where it can: a load that does not move along the loop around
the block is moved out of that loop, and of equal loads in straight-line code the first one stands.
It does so whether or not there are registers; what does not fit is stored on the stack and loaded
again. Measured on products of matrices whose blocks are otherwise alike: without spills 1.0 to 1.1,
with an operation for every second multiply-add 1.3 to 1.9, with one for each twice to four times
as long.

Where the loop around the block is a reduction, every load moves and the sums stay in registers.
LLVM is then free to order the block by its reduction, so that a value is used up at once; but not
where the uses are shifted against each other, as in a convolution's window, nor in a long block: of
more values that are used again than twice the registers, all are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from pruner_ms.draft.block import Block, vectors_at
from pruner_ms.draft.columns import (
    Mask,
    Num,
    Whole,
    both,
    either,
    larger,
    possible,
    select,
    smaller,
    times,
    total,
    truth,
    without,
)
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.touch import Touch
from pruner_ms.hardware import CpuCore
from pruner_ms.symbolic.program import LoopKind

SPILL_CYCLES = 1.0
"""Cycles of a store or load of a spilled register, which nothing hides. Between 0.8 and 1.6 the 68
training pools are ranked alike."""

REORDERED = 2.0
"""Values that are used again, for each vector register, up to which LLVM orders a block anew. With
more than 32 on AVX2, candidates of two networks took 1.5 to 2.1 times as long as predicted, with
fewer as predicted; with this limit 42 tasks' measured candidates are ranked by 0.33 (Spearman) in
place of 0.23, and the pools of AVX-512 as before."""

TEMPORARIES = 4.0
"""Registers that a block needs besides sums and kept values."""


@dataclass(frozen=True)
class _Around:
    """The loop right around the block.

    Attributes
    ----------
    loops
        Per loop, the rows in which it is that one, serial, and carries no reduction.
    spatial
        Rows that have such a loop.
    reordered
        Values up to which LLVM orders the block anew, where they have none.
    """

    loops: list[Mask]
    spatial: Mask
    reordered: float


@dataclass(frozen=True)
class _Kept:
    """Values of a touch that are kept, and their stores and loads per run of the block if they are
    spilled."""

    values: Num
    operations: Num


def spill_cycles(nest: Nest, block: Block, registers: Num, core: CpuCore) -> Num:
    """Cycles of one run of a block that spilled registers take.

    Parameters
    ----------
    registers
        That the block's sums fill.
    """
    around = _around(nest, block, REORDERED * core.vector_registers)
    touches = zip(nest.touches, block.strides, block.vectors, strict=True)
    found = [_kept(nest, block, around, *each) for each in touches if not each[0].write]
    values = total(kept.values for kept in found)
    over = larger(registers + values + (TEMPORARIES - core.vector_registers), 0.0)
    share = smaller(over / larger(values, 1.0), 1.0)
    return total(kept.operations for kept in found) * share * SPILL_CYCLES


def _around(nest: Nest, block: Block, reordered: float) -> _Around:
    loops: list[Mask] = [False] * nest.depth
    spatial: Mask = False
    left: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        here = both(left, without(nest.runs(p), block.inside[p]))
        if not nest.reduction[p]:
            loops[p] = both(here, nest.is_kind(p, LoopKind.SERIAL))
            spatial = either(spatial, loops[p])
        left = without(left, here)
        if not possible(left):
            break
    return _Around(loops, spatial, reordered)


def _kept(
    nest: Nest, block: Block, around: _Around, touch: Touch, stride: Whole, vectors: Num
) -> _Kept:
    """Loads that are moved out of the loop around the block, else equal loads within it."""
    moved: Mask = False
    stores: Num = 0.0
    for p, here in enumerate(around.loops):
        takes = both(here, touch.still(p)) if possible(here) else False
        if possible(takes):
            moved = either(moved, takes)
            stores = stores + select(takes, 1.0 / nest.sizes[p], 0.0)
    again = _again(nest, block, around, touch, stride, moved)
    values = select(moved, vectors, again.values)
    return _Kept(values, select(moved, vectors + times(vectors, stores), again.operations))


def _again(
    nest: Nest, block: Block, around: _Around, touch: Touch, stride: Whole, moved: Mask
) -> _Kept:
    """Equal loads within a block: those of the loop whose passes share most."""
    values: Num = 0.0
    operations: Num = 0.0
    for p in range(nest.depth):
        takes = without(both(block.inside[p], nest.runs(p)), moved)
        takes = without(takes, nest.is_kind(p, LoopKind.VECTORIZED))
        if not possible(takes):
            continue
        one = vectors_at(touch, stride, block, p + 1)
        in_order = either(around.spatial, truth(one > around.reordered))
        takes = without(takes, without(touch.still(p), in_order))
        if not possible(takes):
            continue
        shared = times(one, nest.sizes[p]) - vectors_at(touch, stride, block, p)
        takes = both(takes, both(truth(shared > 0), truth(one > values)))
        values = select(takes, one, values)
        operations = select(takes, one + shared, operations)
    return _Kept(values, operations)
