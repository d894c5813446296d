"""Accesses of a statement to one buffer: regions, contiguous runs and strides, as columns.

The notation is that of `nest.py`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from pruner_ms.draft.columns import Int, Num, flag, integer, number, stacked, truth
from pruner_ms.symbolic.program import Access, Buffer
from pruner_ms.symbolic.rows import Mask, either, magnitude, uniform_mask
from pruner_ms.types import BoolArray, FloatArray, IntArray


class Touch:
    """The accesses of a statement to one buffer that have the same strides, with their regions.

    Attributes
    ----------
    buffer
        The buffer.
    read, write
        Which of the two happen; the output of a reduction's update is both.
    exists
        Rows in which it happens.
    """

    def __init__(self, buffer: Buffer, access: Access, depth: int) -> None:
        self.buffer = buffer
        self.read, self.write = not access.write, access.write
        self.exists: Mask = flag(access.mask)
        self._access, self._depth, self._rows = access, depth, len(access.mask)
        self._numbers: dict[int, tuple[Any, Num]] = {}
        self._elements: dict[int, Num] = {}
        self._contiguous: dict[int, Num] = {}
        self._steps: dict[int, Int] = {}
        self._paces: dict[int, Int] = {}
        self._still: dict[int, Mask] = {}

    @property
    def is_global(self) -> bool:
        """Whether it is of global memory."""
        return self.buffer.scope in ("", "global")

    def merge(self, access: Access) -> None:
        """Add another access that has the same strides."""
        self.read, self.write = self.read or not access.write, self.write or access.write
        self.exists = either(self.exists, flag(access.mask))

    def moves_like(self, access: Access) -> bool:
        """Whether another access of the buffer has the same strides, in every row."""
        return all(
            np.array_equal(self._access.stride(p), access.stride(p)) for p in range(self._depth)
        )

    def _number(self, values: IntArray) -> Num:
        # an access returns one array for all levels at which it is the same: convert it once
        cached = self._numbers.get(id(values))
        if cached is None or cached[0] is not values:
            cached = (values, number(values))
            self._numbers[id(values)] = cached
        return cached[1]

    def elements(self, level: int) -> Num:
        """Elements touched at a level."""
        if level not in self._elements:
            self._elements[level] = self._number(self._access.footprint(level))
        return self._elements[level]

    def contiguous(self, level: int) -> Num:
        """Contiguous elements at a level."""
        if level not in self._contiguous:
            self._contiguous[level] = self._number(self._access.run(level))
        return self._contiguous[level]

    def step(self, loop: int) -> Int:
        """Elements moved per step of a loop; 0 where the loop does not move it."""
        if loop not in self._steps:
            self._steps[loop] = integer(self._access.stride(loop))
        return self._steps[loop]

    def still(self, loop: int) -> Mask:
        """Rows in which a loop does not move it."""
        if loop not in self._still:
            self._still[loop] = uniform_mask(truth(self.step(loop) == 0))
        return self._still[loop]

    def pace(self, loop: int) -> Int:
        """Elements moved per step of a loop, in either direction."""
        if loop not in self._paces:
            self._paces[loop] = magnitude(self.step(loop))
        return self._paces[loop]

    @property
    def factor(self) -> float:
        """Bytes that cross a memory level per byte touched: a written line is first read."""
        return 2.0 if self.write else 1.0

    @cached_property
    def mask(self) -> BoolArray:
        """Rows in which it exists, bool (N,)."""
        return np.full(self._rows, self.exists) if isinstance(self.exists, bool) else self.exists

    @cached_property
    def region(self) -> FloatArray:
        """Elements per level, float64 (P+1, N)."""
        return stacked(self._rows, [self.elements(n) for n in range(self._depth + 1)])

    @cached_property
    def run(self) -> FloatArray:
        """Contiguous elements per level, float64 (P+1, N)."""
        return stacked(self._rows, [self.contiguous(n) for n in range(self._depth + 1)])

    @cached_property
    def strides(self) -> IntArray:
        """Elements moved per step of each loop, int64 (P, N)."""
        out = np.zeros((self._depth, self._rows), np.int64)
        for p in range(self._depth):
            out[p] = self.step(p)
        return out
