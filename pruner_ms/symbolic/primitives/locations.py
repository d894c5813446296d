"""Where a block may be computed: the candidates of SampleComputeLocation, row by row.

Rules of `CollectComputeLocation` (`schedule/analysis/analysis.cc`) and of the repair of a given
decision (`schedule/primitive/sampling.cc`). A location is a position on the consumer's path, -1 for
the root, -2 for inlining.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pruner_ms.symbolic.primitives.state import Loop
from pruner_ms.symbolic.rows import Mask, Num, both, column, either, negate, select
from pruner_ms.types import BoolArray, FloatArray, IntArray


def candidates(path: Sequence[Loop]) -> list[Mask]:
    """Rows in which each loop of the consumer's path is a candidate.

    Excluded are unit loops, spatial loops below a non-unit reduction loop, and reduction loops
    below the last spatial one.
    """
    spatial = [p for p, loop in enumerate(path) if loop.spatial]
    last = spatial[-1] if spatial else -1
    reduced: Mask = False
    stopped: Mask = False
    masks: list[Mask] = []
    for loop in path[: last + 1]:
        real = loop.extent != 1
        if loop.spatial:
            stopped = either(stopped, both(real, reduced))
        else:
            reduced = either(reduced, real)
        masks.append(both(real, negate(stopped)))
        if stopped is True:
            break
    return masks


def repair(decision: IntArray, legal: Sequence[Mask], inlinable: bool) -> IntArray:
    """The last candidate that does not exceed a given decision."""
    location: Num = inlined_or_root(decision <= -2, inlinable)
    for p, mask in enumerate(legal):
        if mask is not False:
            location = select(mask & (decision >= p), p, location)
    return column(location, len(decision))


def inlined_or_root(lowest: BoolArray, inlinable: bool) -> IntArray:
    """Inlined (-2) in the rows of `lowest` if the block is inlinable, else the root, int8 (N,)."""
    return np.where(lowest, np.int8(-2 if inlinable else -1), np.int8(-1))


def draw(uniform: FloatArray, legal: Sequence[Mask], inlinable: bool) -> IntArray:
    """Draw uniformly among the candidates.

    Parameters
    ----------
    uniform
        Random numbers in [0, 1), (N,).
    """
    rows = len(uniform)
    fixed = 2 if inlinable else 1
    count = np.full(rows, fixed, np.int8)
    for mask in legal:
        count += mask
    pick = (uniform * count).astype(np.int8)
    location: Num = inlined_or_root(pick == 0, inlinable)
    seen = np.full(rows, fixed, np.int8)
    for p, mask in enumerate(legal):
        if mask is not False:
            location = select(mask & (pick == seen), p, location)
            seen += mask
    return column(location, rows)
