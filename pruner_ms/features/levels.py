"""Loop levels independent of the representation of a nest, and quantities at them.

The interpreter represents a fused loop by its parts, the oracle by one loop; unit loops may be
listed or not. So no feature may refer to a loop by its position. Levels are chosen by the loops'
kind and reduction or by the memory footprint inside, and only at boundaries of loops of the code:
there both representations have the same loops inside, hence the same trips and footprints.

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

from pruner_ms.symbolic.program import (
    LoopKind,
    SketchProgram,
    Statement,
    cooperating_threads,
    of_kinds,
)
from pruner_ms.types import BoolArray, FloatArray, IntArray

CACHES: tuple[int, ...] = (1 << 14, 1 << 18, 1 << 22)
"""Bytes of the reference capacities: below typical first, second and last level caches.

Constants, not those of the device: a feature means the same on every machine.
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
    def cooperating_threads(self) -> IntArray:
        """Threads that execute one iteration (`program.cooperating_threads`), int64 (N,)."""
        return cooperating_threads(self.statement, self.program)

    @cached_property
    def iterations(self) -> FloatArray:
        """Iterations of all loops, cooperative ones counted once, float64 (N,)."""
        return np.asarray(self.trips[-1] / self.cooperating_threads)

    @cached_property
    def starts(self) -> BoolArray:
        """Levels that are not inside a fused loop, bool (P+1, N)."""
        boundaries = np.ones(self.trips.shape, bool)
        for index, loop in enumerate(self.statement.loops[1:], 1):
            boundaries[index] = loop.boundary
        return boundaries

    @cached_property
    def touched(self) -> IntArray:
        """Bytes each access touches inside every level, int64 (A, P+1, N); 0 where masked out."""
        accesses = self.statement.accesses
        table = np.zeros((len(accesses), *self.trips.shape), np.int64)
        for index, access in enumerate(accesses):
            scale = access.mask * self._itemsize(index)
            for level in range(table.shape[1]):
                table[index, level] = access.footprint(level) * scale
        return table

    def below(self, *kinds: LoopKind) -> IntArray:
        """First level with no loop of these kinds inside, int64 (N,); 0 where there is none."""
        level = np.zeros(self.program.rows, np.int64)
        for index, loop in enumerate(self.statement.loops):
            iterating = of_kinds(loop.kind, kinds) & (loop.extent > 1)
            level = np.where(iterating, self._after(index), level)
        return level

    def below_first_reduction(self) -> IntArray:
        """Level inside the outermost reduction loop that iterates, int64 (N,); 0 without one."""
        level = np.zeros(self.program.rows, np.int64)
        for index, loop in reversed(list(enumerate(self.statement.loops))):
            if loop.reduction:
                level = np.where(loop.extent > 1, self._after(index), level)
        return level

    @cached_property
    def unit(self) -> IntArray:
        """Level of the work of one thread, or of one parallel task, int64 (N,)."""
        return self.below(*THREAD_KINDS)

    @cached_property
    def fitting(self) -> IntArray:
        """Per capacity of `CACHES`, the outermost level whose footprint fits, (C, N).

        One iteration (level P) where nothing fits.
        """
        resident = self.touched.sum(axis=0)
        levels = np.zeros((len(CACHES), self.program.rows), np.int64)
        for index, capacity in enumerate(CACHES):
            fits = self.starts & (resident <= capacity)
            fits[-1] = True
            levels[index] = np.argmax(fits, axis=0)
        return levels

    def innermost(self) -> IntArray:
        """Level of the innermost loop that iterates, int64 (N,); P without one."""
        iterates = self.starts & (self.trips[-1] > self.trips)
        last = len(self.trips) - 1
        innermost_level = last - np.argmax(iterates[::-1], axis=0)
        return np.asarray(np.where(iterates.any(axis=0), innermost_level, last), np.int64)

    @cached_property
    def traffic(self) -> FloatArray:
        """Total bytes each access moves past each capacity of `CACHES`, float64 (A, C, N).

        The footprint of the fitting level, times the iterations outside it, except those of loops
        directly outside that touch nothing new.
        """
        table, columns = self.touched, np.arange(self.program.rows)
        rows = np.arange(table.shape[1])[:, None]
        moved = np.zeros((len(table), len(CACHES), self.program.rows))
        for index, level in enumerate(self.fitting):
            resident = table[:, level, columns]
            same = (self.starts & (rows <= level)) & (table == resident[:, None])
            moved[:, index] = resident * self.trips[np.argmax(same, axis=1), columns]
        return moved

    @cached_property
    def runs(self) -> FloatArray:
        """Contiguous bytes of each access within the first capacity's level, float64 (A, N)."""
        run_bytes = np.zeros((len(self.statement.accesses), self.program.rows))
        for index, access in enumerate(self.statement.accesses):
            run_bytes[index] = pick(access.run, self.fitting[0]) * self._itemsize(index)
        return run_bytes

    @cached_property
    def strides(self) -> FloatArray:
        """Bytes that a step of the innermost iterating loop moves each access, float64 (A, N)."""
        stride_bytes = np.zeros((len(self.statement.accesses), self.program.rows))
        missing = np.ones(self.program.rows, bool)
        for loop in range(len(self.statement.loops) - 1, -1, -1):
            last = missing & (self.statement.loops[loop].extent > 1)
            if last.any():
                for index, access in enumerate(self.statement.accesses):
                    step = access.stride(loop) * self._itemsize(index)
                    stride_bytes[index] = np.where(last, step, stride_bytes[index])
                missing &= ~last
            if not missing.any():
                break
        return stride_bytes

    def _itemsize(self, access: int) -> int:
        return self.program.buffers[self.statement.accesses[access].buffer].itemsize

    def _after(self, index: int) -> IntArray:
        """First level below a loop that is not inside a fused loop, int64 (N,)."""
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
