"""Vector registers that LLVM spills: values that it keeps for later than registers last.

LLVM loads a value once and keeps it where it can: a load that does not move along the loop around
the block is moved out of that loop, and of equal loads in straight-line code the first one stands.
It does so whether or not there are registers; what does not fit is stored on the stack and loaded
again. Measured on products of matrices whose blocks are otherwise alike: none spilled 1.0 to 1.1,
an operation for every second multiply-add 1.3 to 1.9, one for each 2 to 4 times as long.

Where the loop around the block is a reduction, every load moves and the sums stay in registers:
LLVM is free to order the block by its reduction, and spills nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pruner_ms.draft.block import Block, vectors_at
from pruner_ms.draft.columns import (
    Mask,
    Num,
    Whole,
    both,
    larger,
    negate,
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

SPILL_CYCLES = 0.8
"""Cycles of a store or load of a spilled register; nothing hides them."""

TEMPORARIES = 4.0
"""Registers that a block needs besides."""

SAME_LOADS = 100.0
"""Loads up to which LLVM finds equal ones (96 it did, 128 it did not)."""


@dataclass(frozen=True)
class _Kept:
    """Values of a touch that are kept: how many, and their stores and loads per run of a block if
    they are spilled."""

    values: Num
    operations: Num


def spill_cycles(nest: Nest, block: Block, registers: Num, core: CpuCore) -> Num:
    """Cycles of one run of a block that spilled registers take.

    Parameters
    ----------
    registers
        That the block's sums fill.
    """
    around = _around(nest, block)
    found = [
        kept
        for touch, stride, vectors in zip(nest.touches, block.strides, block.vectors, strict=True)
        if not touch.write
        for kept in _kept(nest, block, touch, stride, vectors, around)
    ]
    values = total(kept.values for kept in found)
    over = larger(registers + values + TEMPORARIES - core.vector_registers, 0.0)
    share = smaller(over / larger(values, 1.0), 1.0)
    return total(kept.operations for kept in found) * share * SPILL_CYCLES


def _around(nest: Nest, block: Block) -> list[Mask]:
    """Per loop, the rows in which it is the one right around the block, serial and of no
    reduction."""
    out: list[Mask] = [False] * nest.depth
    left: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        here = both(left, without(nest.runs(p), block.inside[p]))
        if not nest.reduction[p]:
            out[p] = both(here, nest.is_kind(p, LoopKind.SERIAL))
        left = without(left, here)
        if not possible(left):
            break
    return out


def _kept(
    nest: Nest, block: Block, touch: Touch, stride: Whole, vectors: Num, around: list[Mask]
) -> list[_Kept]:
    moved_out: Mask = False
    store: Num = 0.0
    spatial: Mask = False
    for p, here in enumerate(around):
        takes = both(here, touch.still(p))
        if possible(takes):
            moved_out = takes if moved_out is False else moved_out | takes
            store = store + select(takes, 1.0 / nest.sizes[p], 0.0)
        if possible(here):
            spatial = here if spatial is False else spatial | here
    out = [_Kept(select(moved_out, vectors, 0.0), select(moved_out, vectors * (1.0 + store), 0.0))]
    return out + _reused(nest, block, touch, stride, both(spatial, negate(moved_out)))


def _reused(nest: Nest, block: Block, touch: Touch, stride: Whole, rows: Mask) -> list[_Kept]:
    """Equal loads within a block."""
    values: Num = 0.0
    operations: Num = 0.0
    for p in range(nest.depth):
        takes = both(both(rows, block.inside[p]), both(nest.runs(p), touch.still(p)))
        takes = without(takes, nest.is_kind(p, LoopKind.VECTORIZED))
        if not possible(takes):
            continue
        inner = vectors_at(touch, stride, block, p + 1)
        takes = both(takes, truth(inner <= SAME_LOADS))
        takes = both(takes, truth(inner > values))
        values = select(takes, inner, values)
        operations = select(takes, times(inner, nest.sizes[p]), operations)
    return [_Kept(values, operations)]
