"""Ragged arrays: schedules with different numbers of rows (stores of a program, steps of a trace).

Notation
--------
N  schedules
R  rows of all schedules together
L  rows of the longest
W  numbers of a row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pruner_ms.types import BoolArray, IntArray

Values = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of N schedules, one after the other.

    Attributes
    ----------
    values
        float32 (R, W), finite.
    counts
        Rows of each schedule, int64 (N,).
    """

    values: Values
    counts: IntArray

    def __len__(self) -> int:
        return len(self.counts)

    def padded(self, index: IntArray | slice) -> tuple[Values, BoolArray]:
        """Some schedules as a padded block: float32 (B, L, W), and its mask, bool (B, L)."""
        counts = self.counts[index]
        column = np.arange(max(int(counts.max(initial=0)), 1))
        mask = column < counts[:, None]
        values = np.zeros((*mask.shape, self.values.shape[1]), np.float32)
        starts = (np.cumsum(self.counts) - self.counts)[index]
        values[mask] = self.values[(starts[:, None] + column)[mask]]
        return values, mask

    def rows(self, index: IntArray | slice) -> Ragged:
        """Some schedules."""
        values, mask = self.padded(index)
        return Ragged(values[mask], self.counts[index])


def ragged(schedules: Sequence[npt.NDArray[np.floating]], width: int) -> Ragged:
    """One array per schedule, each (rows, `width`); numbers that are not finite become 0."""
    counts = np.array([len(rows) for rows in schedules], np.int64)
    parts = [np.zeros((0, width), np.float32), *schedules]
    joined = np.concatenate([np.asarray(part, np.float32) for part in parts])
    return Ragged(np.nan_to_num(joined, posinf=0.0, neginf=0.0), counts)


def joined(parts: Sequence[Ragged]) -> Ragged:
    """Several as one; at least one is needed."""
    values = np.concatenate([part.values for part in parts])
    return Ragged(values, np.concatenate([part.counts for part in parts]))
