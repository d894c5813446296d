"""Hash set of the rows seen of a design space (open addressing, on arrays).

A million rows take 16 MiB, and 8,192 look-ups about half a millisecond at any load, where a sorted
array would be merged anew each time. Rows are identified by a 64-bit hash
(`population.fingerprints`).
"""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.explore.population import fingerprints
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

        They are added.
        """
        marks = fingerprints(rows)
        marks[marks == _EMPTY] = 1
        while self._count + len(marks) > _LOAD * len(self._slots):
            self._grow()
        new = np.flatnonzero(self._insert(marks))
        self._count += len(new)
        return new

    def _grow(self) -> None:
        old = self._slots[self._slots != _EMPTY]
        self._slots = np.zeros(2 * len(self._slots), np.int64)
        self._insert(old)

    def _insert(self, marks: IntArray) -> BoolArray:
        """Insert marks; returns which are new. Of equal marks only the first can be."""
        mask = len(self._slots) - 1
        new = np.zeros(len(marks), np.bool_)
        left = np.arange(len(marks))
        slot = marks & mask
        while len(left):
            mine, where = marks[left], slot[left]
            held = self._slots[where]
            empty = np.flatnonzero(held == _EMPTY)
            # several may compete for one free slot, and the last write wins: go backwards, and
            # write places first to see which one won
            wanted, place = where[empty][::-1], left[empty][::-1]
            self._slots[wanted] = place
            won = self._slots[wanted] == place
            self._slots[wanted[won]] = marks[place[won]]
            new[place[won]] = True
            left = left[self._slots[where] != mine]
            slot[left] = (slot[left] + 1) & mask
        return new
