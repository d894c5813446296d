"""Which rows of a design space have been seen: an open-addressing table on arrays.

A million rows take 16 MiB, and 8,192 look-ups about half a millisecond however full it is, where
a sorted array would be merged anew each time. Rows are known by a 64-bit mark
(`population.fingerprints`).
"""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.population import fingerprints
from pruner_ms.types import BoolArray, IntArray

_EMPTY = np.int64(0)
_LOAD = 0.5
_FIRST = 1 << 14
"""Slots to begin with; their number is a power of two and doubles when half of them are taken."""


class Seen:
    """A growing set of rows of one design space."""

    def __init__(self) -> None:
        self._slots: IntArray = np.zeros(_FIRST, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def fresh(self, rows: IntArray) -> IntArray:
        """Indices of the rows, int64 (N, columns), that occur for the first time, ascending.

        They are seen from then on.
        """
        marks = fingerprints(rows)
        marks[marks == _EMPTY] = 1
        unique, first = np.unique(marks, return_index=True)
        while self._count + len(unique) > _LOAD * len(self._slots):
            self._grow()
        new = self._insert(unique)
        self._count += int(new.sum())
        return np.sort(first[new])

    def _grow(self) -> None:
        old = self._slots[self._slots != _EMPTY]
        self._slots = np.zeros(2 * len(self._slots), np.int64)
        self._insert(old)

    def _insert(self, marks: IntArray) -> BoolArray:
        """Put marks, all different, into the table; which were not there."""
        mask = len(self._slots) - 1
        new = np.zeros(len(marks), np.bool_)
        open_ = np.arange(len(marks))
        slot = (marks ^ (marks >> np.int64(29))) & mask
        while len(open_):
            mine, where = marks[open_], slot[open_]
            held = self._slots[where]
            empty = held == _EMPTY
            # of several that want one free slot the last one written has it; the others go on
            self._slots[where[empty]] = mine[empty]
            won = empty & (self._slots[where] == mine)
            new[open_[won]] = True
            open_ = open_[~(won | (held == mine))]
            slot[open_] = (slot[open_] + 1) & mask
        return new
