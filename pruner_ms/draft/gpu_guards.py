"""Copies of padded tiles on a GPU: conditions, the arithmetic of places, and the code they make.

A padding that is inlined into a copy asks of every place in the tile where in the image it is: its
number is divided by the sizes of the image and of the window. Of a vector TVM asks once if the
answer cannot differ inside it; where it cannot tell, it takes the vector apart ("torn").

Seen in CUDA of 252 kernels of convolutions of 128 and of 96 channels (TVM 0.27, not kept): torn are
all vectors of tiles whose rows are no power of two, but for one, and no others. An access of a
vector, or of an element of a torn one, is 35 to 45 instructions of PTX, and 1 to 3 kilobytes of
CUDA.
"""

from __future__ import annotations

from pruner_ms.draft.block import unrolled_loops
from pruner_ms.draft.columns import Mask, Num, both, flag, number, select, times, total, truth
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.touch import Touch
from pruner_ms.symbolic.program import LoopKind

GUARD_INSTRUCTIONS = 8.0
"""Of each comparison of a place, and of the choice by it, with the arithmetic that gives it: a
padded convolution has five."""

INT_LANES = 64.0
"""Integer instructions per cycle and SM (CUDA C++ Programming Guide, arithmetic throughput, 7.x to
9.0 but for multiplications)."""

TILE_BYTES = 16.0
"""What a thread copies at once of a tile that all copy together (`ReadAt`)."""


def guards(nest: Nest) -> Num:
    """Conditions of places of one iteration."""
    found = nest.statement.ops.get("guard")
    return 0.0 if found is None else number(found)


def torn(nest: Nest) -> Mask:
    """Rows in which vectors of the statement are taken apart."""
    tile = next(iter(_tiles(nest)), None)
    if tile is None:
        return False
    width = tile.buffer.shape[-1]
    return both(truth(guards(nest) > 0), flag(width & (width - 1) != 0))


def _tiles(nest: Nest) -> list[Touch]:
    """Tiles in shared memory that a statement writes."""
    return [t for t in nest.touches if t.write and t.buffer.scope.startswith("shared")]


def vector_lanes(nest: Nest) -> Num:
    """Elements that one access moves: those of a vector that is whole."""
    lanes = nest.of_kind(LoopKind.VECTORIZED)
    return select(torn(nest), 1.0, lanes)


def guarding(nest: Nest, tiles: bool, per_cycle: float) -> Num:
    """Seconds of all SMs for the conditions of a statement.

    Parameters
    ----------
    tiles
        Whether an iteration copies a tile, by many threads together.
    per_cycle
        Seconds of a cycle over the number of SMs.
    """
    asked = guards(nest)
    if isinstance(asked, float) and asked == 0.0:
        return 0.0
    accesses = nest.above(nest.depth) / vector_lanes(nest)
    if tiles:
        held = total(t.elements(nest.depth) * float(t.buffer.itemsize) for t in _tiles(nest))
        accesses = accesses * held / (nest.together * TILE_BYTES)
    return accesses * asked * (GUARD_INSTRUCTIONS * per_cycle / INT_LANES)


def written_out(nest: Nest) -> tuple[Num, Num]:
    """Statements that unrolling writes out, and those of them that have conditions."""
    limit = number(nest.statement.unroll)
    # what is left of a torn vector is a loop like others
    lanes = select(torn(nest), nest.of_kind(LoopKind.VECTORIZED), 1.0)
    _, steps = unrolled_loops(nest, limit / lanes)
    found = times(steps, select(truth(limit >= lanes), lanes, 1.0))
    return found, select(truth(guards(nest) > 0), found, 0.0)
