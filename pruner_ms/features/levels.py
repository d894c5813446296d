"""Loop levels that mean the same in every representation of a nest, and quantities at them.

The interpreter keeps the parts of a fused loop apart, the oracle sees one loop; unit loops may be
listed or not. So no feature may name a loop by its position. Levels are chosen by what the loops do
(kind, reduction) or by how much memory is touched inside, and only at boundaries of real loops:
there both representations hold the same loops inside, hence the same trips and footprints.

Notation
--------
N      rows
P      loops of the statement
level  0..P: loops level..P-1 are inside
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pruner_ms.symbolic.program import LoopKind, SketchProgram, Statement
from pruner_ms.types import BoolArray, FloatArray, IntArray

CACHES: tuple[int, ...] = (1 << 14, 1 << 18, 1 << 22)
"""Bytes of the reference capacities: below typical first, second and last level caches.

Fixed, not read off the device: a feature means the same on every machine.
"""

UNIT_KINDS = (LoopKind.PARALLEL, LoopKind.BLOCK)
THREAD_KINDS = (*UNIT_KINDS, LoopKind.THREAD, LoopKind.VTHREAD)


def slog(values: FloatArray | IntArray) -> FloatArray:
    """Signed logarithm sign(x) log2(1 + |x|): 0 stays 0, a doubling is one unit. Same shape."""
    wide = np.asarray(values, np.float64)
    return np.sign(wide) * np.log2(1.0 + np.abs(wide))


@dataclass(frozen=True, eq=False)
class Nest:
    """A statement of a program, with the levels at which its features are taken."""

    program: SketchProgram
    statement: Statement

    @cached_property
    def trips(self) -> IntArray:
        """Iterations of the loops outside every level, int64 (P+1, N); the last row: all loops."""
        total = np.ones((len(self.statement.loops) + 1, self.program.rows), np.int64)
        for index, loop in enumerate(self.statement.loops):
            total[index + 1] = total[index] * loop.extent
        return total

    @cached_property
    def starts(self) -> BoolArray:
        """Levels that cut no fused loop in two, bool (P+1, N)."""
        found = np.ones(self.trips.shape, bool)
        for index, loop in enumerate(self.statement.loops[1:], 1):
            found[index] = loop.boundary
        return found

    @cached_property
    def touched(self) -> IntArray:
        """Bytes each access touches inside every level, int64 (A, P+1, N); 0 where masked out."""
        accesses = self.statement.accesses
        table = np.zeros((len(accesses), *self.trips.shape), np.int64)
        for row, access in zip(table, accesses, strict=True):
            size = self.program.buffers[access.buffer].itemsize
            for level in range(len(row)):
                row[level] = np.where(access.mask, access.footprint(level) * size, 0)
        return table

    def below(self, *kinds: LoopKind) -> IntArray:
        """First level with no loop of these kinds inside, int64 (N,); 0 where there is none."""
        level = np.zeros(self.program.rows, np.int64)
        for index, loop in enumerate(self.statement.loops):
            found = np.isin(loop.kind, kinds) & (loop.extent > 1)
            level = np.where(found, self._after(index), level)
        return level

    def below_first_reduction(self) -> IntArray:
        """Level inside the outermost reduction loop that iterates, int64 (N,); 0 without one."""
        level = np.zeros(self.program.rows, np.int64)
        for index, loop in reversed(list(enumerate(self.statement.loops))):
            if loop.reduction:
                level = np.where(loop.extent > 1, self._after(index), level)
        return level

    def fitting(self, capacity: int) -> IntArray:
        """Outermost level inside which at most `capacity` bytes are touched, int64 (N,).

        One iteration (level P) where nothing fits.
        """
        fits = self.starts & (self.touched.sum(axis=0) <= capacity)
        fits[-1] = True
        return np.asarray(np.argmax(fits, axis=0), np.int64)

    def innermost(self) -> IntArray:
        """Level of the innermost loop that iterates, int64 (N,); P without one."""
        iterates = self.starts & (self.trips[-1] > self.trips)
        last = len(self.trips) - 1
        found = last - np.argmax(iterates[::-1], axis=0)
        return np.asarray(np.where(iterates.any(axis=0), found, last), np.int64)

    def traffic(self, access: int, level: IntArray) -> FloatArray:
        """Bytes an access moves in the whole statement past a cache that holds one level, (N,).

        What is touched inside the level, times the iterations outside it; loops directly outside
        that touch nothing new find their data still there.
        """
        table = self.touched[access]
        held = at(table, level)
        rows = np.arange(len(table))[:, None]
        same = self.starts & (table == held) & (rows <= level)
        return held * at(self.trips, np.argmax(same, axis=0))

    def _after(self, index: int) -> IntArray:
        """First level below a loop that cuts no fused loop, int64 (N,)."""
        return np.asarray(index + 1 + np.argmax(self.starts[index + 1 :], axis=0), np.int64)


def nests_of(program: SketchProgram) -> list[Nest]:
    """One nest per statement, in program order."""
    return [Nest(program, statement) for statement in program.statements]


def pick(quantity: Callable[[int], IntArray], level: IntArray) -> FloatArray:
    """A per-level quantity at each row's own level, float64 (N,)."""
    out = np.zeros(len(level))
    for value in np.unique(level):
        out = np.where(level == value, quantity(int(value)), out)
    return out


def at(table: IntArray, level: IntArray) -> FloatArray:
    """Entries of a (P+1, N) table at each row's own level, float64 (N,)."""
    return np.asarray(table[level, np.arange(table.shape[1])], np.float64)


def last_stride(nest: Nest, access: int) -> FloatArray:
    """Bytes that one step of the innermost iterating loop moves an access, float64 (N,)."""
    made = nest.statement.accesses[access]
    size = nest.program.buffers[made.buffer].itemsize
    out = np.zeros(nest.program.rows)
    for index, loop in enumerate(nest.statement.loops):
        iterates = loop.extent > 1
        if iterates.any():
            out = np.where(iterates, made.stride(index) * size, out)
    return out
