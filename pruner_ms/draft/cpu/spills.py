"""Vector registers that LLVM spills.

LLVM loads a value once where it can: a load that does not move along the loop around the block is
hoisted out of that loop (LICM), and equal loads in straight-line code are merged (CSE). It does so
without regard to register pressure; values that do not fit are spilled to the stack and reloaded.

Where the loop around the block is a reduction, every load moves and the accumulators stay in
registers. LLVM then orders the block by its reduction, so that live ranges are short. It does not
do so where the uses are shifted against each other, as in a convolution's window, nor in a long
block: with more reused values than `REORDERED` times the registers, all of them stay live.
"""

from __future__ import annotations

from dataclasses import dataclass

from pruner_ms.draft.block import Block, vectors_at
from pruner_ms.draft.columns import Int, Num, larger, select, smaller, times, total, truth
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.touch import Touch
from pruner_ms.hardware import CpuCore
from pruner_ms.symbolic.program import LoopKind
from pruner_ms.symbolic.rows import Mask, both, either, possible, without

SPILL_CYCLES = 1.0
"""Cycles of a store or load of a spilled register, which are not hidden (docs/constants.md)."""

REORDERED = 2.0
"""Reused values per vector register up to which LLVM reorders a block (docs/constants.md)."""

TEMPORARIES = 4.0
"""Registers that a block needs besides accumulators and live values."""


@dataclass(frozen=True)
class _EnclosingLoop:
    """The loop right around the block.

    Attributes
    ----------
    loops
        Per loop, the rows in which it is right around the block, serial, and not a reduction.
    spatial
        Rows that have such a loop.
    reordered
        Most values with which LLVM reorders the block, in rows without such a loop.
    """

    loops: list[Mask]
    spatial: Mask
    reordered: float


@dataclass(frozen=True)
class _LiveValues:
    """Long-lived values of a touch, and their stores and loads per run of the block if spilled."""

    values: Num
    operations: Num


def spill_cycles(nest: Nest, block: Block, registers: Num, core: CpuCore) -> Num:
    """Cycles of one run of a block that spilled registers take.

    Parameters
    ----------
    registers
        Registers of the block's accumulators.
    """
    around = _enclosing_loop(nest, block, REORDERED * core.vector_registers)
    touches = zip(nest.touches, block.strides, block.vectors, strict=True)
    live = [_live_values(nest, block, around, *each) for each in touches if not each[0].write]
    values = total(each_live.values for each_live in live)
    over = larger(registers + values + (TEMPORARIES - core.vector_registers), 0.0)
    share = smaller(over / larger(values, 1.0), 1.0)
    return total(each_live.operations for each_live in live) * share * SPILL_CYCLES


def _enclosing_loop(nest: Nest, block: Block, reordered: float) -> _EnclosingLoop:
    loops: list[Mask] = [False] * nest.depth
    spatial: Mask = False
    left: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        reached = both(left, without(nest.runs(p), block.inside[p]))
        if not nest.reduction[p]:
            loops[p] = both(reached, nest.is_kind(p, LoopKind.SERIAL))
            spatial = either(spatial, loops[p])
        left = without(left, reached)
        if not possible(left):
            break
    return _EnclosingLoop(loops, spatial, reordered)


def _live_values(
    nest: Nest, block: Block, around: _EnclosingLoop, touch: Touch, stride: Int, vectors: Num
) -> _LiveValues:
    """Loads hoisted out of the loop around the block, else equal loads within it."""
    moved: Mask = False
    stores: Num = 0.0
    for p, around_rows in enumerate(around.loops):
        takes = both(around_rows, touch.still(p)) if possible(around_rows) else False
        if possible(takes):
            moved = either(moved, takes)
            stores = stores + select(takes, 1.0 / nest.sizes[p], 0.0)
    again = _repeated_loads(nest, block, around, touch, stride, moved)
    values = select(moved, vectors, again.values)
    return _LiveValues(values, select(moved, vectors + times(vectors, stores), again.operations))


def _repeated_loads(
    nest: Nest, block: Block, around: _EnclosingLoop, touch: Touch, stride: Int, moved: Mask
) -> _LiveValues:
    """Equal loads within a block: those of the loop whose iterations share most."""
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
    return _LiveValues(values, operations)
