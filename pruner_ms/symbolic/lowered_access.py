"""An access of one schedule, read off its region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pruner_ms.symbolic.numeric import Enumerator, Index, TooLarge, UnknownIndex
from pruner_ms.symbolic.program import Access
from pruner_ms.tvm_compat.paths import as_int, region_buffer
from pruner_ms.types import IntArray


@dataclass(frozen=True)
class Axis:
    """One dimension of an access.

    Attributes
    ----------
    index
        First element as a function of the loops; None where nobody knows, and all may be touched.
    size
        Elements from there.
    extent, stride
        Of the buffer's dimension.
    known
        False where somebody could know, but it would take too long.
    """

    index: Index | None
    size: int
    extent: int
    stride: int
    known: bool = True

    def width(self, level: int) -> int:
        """Elements of the interval at a level, at most the buffer's."""
        moved = 0 if self.index is None else self.index.spread(level)
        return min(self.size + moved, self.extent)

    def step(self, loop: int) -> int:
        """Elements of the flat buffer that one step of a loop moves."""
        return 0 if self.index is None else self.index.step(loop) * self.stride


class ReadAccess(Access):
    """An access of one schedule."""

    def __init__(self, buffer: int, write: bool, axes: Sequence[Axis]) -> None:
        self.buffer = buffer
        self.write = write
        self.mask = np.ones(1, bool)
        self.known = all(axis.known for axis in axes)
        self._axes = axes
        self._known: dict[int, list[int]] = {}

    def _widths(self, level: int) -> list[int]:
        if level not in self._known:
            self._known[level] = [axis.width(level) for axis in self._axes]
        return self._known[level]

    def footprint(self, level: int) -> IntArray:
        """See `program.Access.footprint`."""
        return np.array([prod(self._widths(level))])

    def run(self, level: int) -> IntArray:
        """See `program.Access.run`."""
        total = 1
        for width, axis in zip(reversed(self._widths(level)), reversed(self._axes), strict=True):
            total *= width
            if width != axis.extent:
                break
        return np.array([total])

    def stride(self, loop: int) -> IntArray:
        """See `program.Access.stride`."""
        return np.array([sum(axis.step(loop) for axis in self._axes)])


def layout(buffer: Any) -> tuple[list[int], list[int]]:
    """Shape and strides of a buffer; an open extent counts as 1."""
    shape = [as_int(e) if type(e).__name__ == "IntImm" else 1 for e in buffer.shape]
    if len(buffer.strides):
        return shape, [as_int(s) for s in buffer.strides]
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    return shape, strides


def read_access(buffer: int, write: bool, region: Any, names: Enumerator) -> ReadAccess:
    """An access by its region.

    Parameters
    ----------
    buffer
        Its index in the program.
    region
        TVM's buffer region, in terms of loop variables.
    names
        Evaluates them.
    """
    shape, strides = layout(region_buffer(region))
    axes = []
    for r, extent, stride in zip(region.region, shape, strides, strict=True):
        try:
            index: Index | None = names.index(r.min)
            size = names.index(r.extent).bounds()[1]
            known = True
        except UnknownIndex as error:
            index, size, known = None, extent, not isinstance(error, TooLarge)
        axes.append(Axis(index, size, extent, stride, known))
    return ReadAccess(buffer, write, axes)
