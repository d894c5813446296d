"""What LLVM's own passes do to the code around a block, beyond what the schedule says."""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.columns import (
    Mask,
    Num,
    both,
    either,
    negate,
    possible,
    select,
    times,
    truth,
    without,
)
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.touch import Touch
from pruner_ms.symbolic.program import LoopKind

GATHER_PARTS = 2
"""Registers of addresses that a gather of one register of elements takes (64 against 32 bits)."""

FEW_TASKS = 8
"""Tasks of a parallel loop, per lane, below which its cores have too few to do several at once."""


def widened_by_llvm(nest: Nest, inside: list[Mask], scalar: Mask, lanes: int) -> Num:
    """Gain of LLVM's own vectoriser on a scalar block; 1 where it has nothing to do.

    It takes the innermost loop that is left (the one around the block) if every access is
    contiguous or constant along it; what does not fill a register is done in smaller powers of two.
    """
    extent: Num = 1.0
    for p in range(nest.depth - 1, -1, -1):
        within = scalar if p + 1 == nest.depth else both(inside[p + 1], scalar)
        if not possible(within):
            break
        takes = without(within, inside[p])
        if nest.reduction[p] or not possible(takes):
            continue
        takes = both(takes, nest.is_kind(p, LoopKind.SERIAL))
        for touch in nest.touches:
            if not possible(takes):
                break
            takes = both(takes, either(negate(touch.exists), _follows(touch, p)))
        if possible(takes):
            extent = select(takes, nest.sizes[p], extent)
    return extent / _pieces_of(extent, lanes)


def sums_alone(nest: Nest, scalar: Mask) -> Mask:
    """Rows in which each task of a parallel loop adds up one sum, and does nothing else."""
    alone = both(scalar, nest.statement.reduction)
    for p in range(nest.depth):
        if not possible(alone):
            break
        if not nest.reduction[p]:
            alone = without(alone, without(nest.runs(p), nest.is_kind(p, LoopKind.PARALLEL)))
    return both(alone, truth(nest.of_kind(LoopKind.PARALLEL) > 1))


def gathered_by_llvm(
    nest: Nest, inside: list[Mask], alone: Mask, lanes: int
) -> tuple[Num, list[Mask]]:
    """Gain of LLVM's vectoriser on the tasks of a parallel loop; 1 where it has nothing to do.

    A core runs its tasks in a loop. Where a task is straight-line code that adds up one sum,
    several are done as one: the sums are contiguous, what else is not contiguous is gathered.

    Parameters
    ----------
    alone
        `sums_alone` of the nest.

    Returns
    -------
    tuple of Num and list of Mask
        The gain, and per touch the rows in which its elements are gathered.
    """
    gathered: list[Mask] = [False] * len(nest.touches)
    together = max(lanes // GATHER_PARTS, 1)
    if not possible(alone) or together == 1:
        return 1.0, gathered
    takes: Mask = False
    for p in range(nest.depth - 1, -1, -1):
        within = alone if p + 1 == nest.depth else both(inside[p + 1], alone)
        if not possible(within):
            break
        here = both(without(within, inside[p]), truth(nest.sizes[p] >= FEW_TASKS * together))
        if nest.reduction[p] or not possible(here):
            continue
        here = both(here, _alone(nest, p))
        for touch in nest.touches:
            if touch.write:
                here = both(here, either(negate(touch.exists), _follows(touch, p)))
        for i, touch in enumerate(nest.touches):
            gathered[i] = either(gathered[i], without(both(here, touch.exists), _follows(touch, p)))
        takes = either(takes, here)
    return select(takes, float(together), 1.0), gathered


def _alone(nest: Nest, loop: int) -> Mask:
    """Rows in which what is fused into a loop from above does not iterate."""
    alone: Mask = True
    going: Mask = True
    for p in range(loop, 0, -1):
        going = without(going, nest.bounds[p])
        if not possible(going):
            break
        alone = without(alone, both(going, nest.runs(p - 1)))
    return alone


def hoisted_by_llvm(nest: Nest, inside: list[Mask]) -> Num:
    """Runs of a block that LLVM saves: straight-line code that no access of which moves along the
    serial loops right around it is computed once, before them."""
    found: Num = 1.0
    going: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        above = both(going, without(nest.runs(p), inside[p]))
        # a step of a reduction adds to the one before, whatever it reads
        takes = False if nest.reduction[p] else both(above, nest.is_kind(p, LoopKind.SERIAL))
        for touch in nest.touches:
            if not possible(takes):
                break
            # a staged copy that does not move is filled anew in each pass
            stands = False if touch.buffer.staged and not touch.write else touch.still(p)
            takes = both(takes, either(negate(touch.exists), stands))
        if possible(takes):
            found = times(found, select(takes, nest.sizes[p], 1.0))
        going = without(going, without(above, takes))
        if not possible(going):
            break
    return found


def _follows(touch: Touch, loop: int) -> Mask:
    """Whether an access is contiguous along a loop, or a read that does not move."""
    unit = truth(touch.pace(loop) == 1)
    return unit if touch.write else either(unit, touch.still(loop))


def _pieces_of(extent: Num, lanes: int) -> Num:
    """Vectors of at most `lanes` elements (a power of two), each a power of two, in an extent."""
    parts = np.array([bin(n).count("1") for n in range(lanes)], np.float32)
    if isinstance(extent, float):
        return float(extent // lanes + parts[int(extent) % lanes])
    counts = extent.astype(np.int32)
    found: Num = np.floor(extent * (1.0 / lanes)) + parts[counts & (lanes - 1)]
    return found
