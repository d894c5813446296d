"""Copies of padded tiles on a GPU: boundary conditions, their index arithmetic and code size.

A padding that is inlined into a copy evaluates a condition for every position in the tile, and for
that divides its index by the sizes of the image and of the window. TVM evaluates it once per vector
if it can prove that it is the same for all lanes, and splits the vector into scalars otherwise.

In the CUDA of 252 kernels of convolutions with 128 and with 96 channels (TVM 0.27, not kept) TVM
split exactly the vectors of tiles whose rows are not a power of two long, with one exception.
"""

from __future__ import annotations

from pruner_ms.draft.block import unrolled_loops
from pruner_ms.draft.columns import Num, flag, number, select, times, total, truth
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.touch import Touch
from pruner_ms.symbolic.program import LoopKind
from pruner_ms.symbolic.rows import Mask, both

GUARD_INSTRUCTIONS = 8.0
"""Instructions of each comparison, with its index arithmetic, and of the select; a padded
convolution has five of these (docs/constants.md)."""

INT_LANES = 64.0
"""Integer instructions per cycle and SM (CUDA C++ Programming Guide, arithmetic throughput, 7.x to
9.0 but for multiplications)."""

TILE_BYTES = 16.0
"""Bytes per access of a thread in a cooperative copy of a tile (`ReadAt`)."""


def guards(nest: Nest) -> Num:
    """Boundary conditions of one iteration."""
    count = nest.statement.ops.get("guard")
    return 0.0 if count is None else number(count)


def vector_splits(nest: Nest) -> Mask:
    """Rows in which TVM splits the statement's vectors into scalars."""
    tile = next(iter(_tiles(nest)), None)
    if tile is None:
        return False
    width = tile.buffer.shape[-1]
    return both(truth(guards(nest) > 0), flag(width & (width - 1) != 0))


def _tiles(nest: Nest) -> list[Touch]:
    """Tiles in shared memory that a statement writes."""
    return [t for t in nest.touches if t.write and t.buffer.scope.startswith("shared")]


def vector_lanes(nest: Nest) -> Num:
    """Elements per access: 1 where the vector is split."""
    lanes = nest.of_kind(LoopKind.VECTORIZED)
    return select(vector_splits(nest), 1.0, lanes)


def guarding(nest: Nest, tiles: bool, per_cycle: float) -> Num:
    """Seconds of all SMs for the conditions of a statement.

    Parameters
    ----------
    tiles
        Whether an iteration is a cooperative copy of a tile.
    per_cycle
        Seconds of a cycle over the number of SMs.
    """
    asked = guards(nest)
    if isinstance(asked, float) and asked == 0.0:
        return 0.0
    accesses = nest.above(nest.depth) / vector_lanes(nest)
    if tiles:
        held = total(t.elements(nest.depth) * float(t.buffer.itemsize) for t in _tiles(nest))
        accesses = accesses * held / (nest.cooperating_threads * TILE_BYTES)
    return accesses * asked * (GUARD_INSTRUCTIONS * per_cycle / INT_LANES)


def written_out(nest: Nest) -> tuple[Num, Num]:
    """Statements that unrolling writes out, and those of them that have conditions."""
    limit = number(nest.statement.unroll)
    # a split vector is an ordinary loop
    lanes = select(vector_splits(nest), nest.of_kind(LoopKind.VECTORIZED), 1.0)
    _, steps = unrolled_loops(nest, limit / lanes)
    statements = times(steps, select(truth(limit >= lanes), lanes, 1.0))
    return statements, select(truth(guards(nest) > 0), statements, 0.0)
