"""A statement's loop nest as stacked arrays: what every formula of this room starts from.

Notation
--------
N        rows
P        loops of the statement, outermost first
level    0..P; a level's region is what loops level..P-1 touch, P is one iteration
extents  float64 (P, N)
trips    float64 (P+1, N): iterations of the loops above a level
region   float64 (P+1, N): elements that an access touches in a level's region
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pruner_ms.symbolic.program import Access, Buffer, LoopKind, SketchProgram, Statement
from pruner_ms.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Touch:
    """The accesses of a statement to one buffer that move together, with their regions.

    Attributes
    ----------
    buffer
        What is touched.
    read, write
        Which of the two happen; the output of a reduction's update is both.
    mask
        bool (N,): rows in which it exists.
    region
        Elements per level, float64 (P+1, N).
    strides
        Elements moved per step of each loop, int64 (P, N); 0 where the loop does not move it.
    run
        Contiguous elements per level, float64 (P+1, N).
    """

    buffer: Buffer
    read: bool
    write: bool
    mask: BoolArray
    region: FloatArray
    strides: IntArray
    run: FloatArray

    @property
    def factor(self) -> int:
        """Bytes that cross a memory level per byte touched: a written line is first read."""
        return 2 if self.write else 1


@dataclass(frozen=True)
class Nest:
    """A statement's loops and accesses as arrays; see the notation above.

    Attributes
    ----------
    kinds
        `LoopKind` codes, int8 (P, N).
    boundary
        bool (P, N): False where a loop is absent or fused into the one above.
    reduction
        bool (P,).
    """

    statement: Statement
    extents: FloatArray
    kinds: npt.NDArray[np.int8]
    boundary: BoolArray
    reduction: BoolArray
    trips: FloatArray
    touches: tuple[Touch, ...]

    @property
    def depth(self) -> int:
        """P."""
        return len(self.extents)

    @property
    def rows(self) -> int:
        """N."""
        return int(self.extents.shape[1])

    def product(self, chosen: BoolArray) -> FloatArray:
        """Product of the extents of chosen loops, (N,).

        Parameters
        ----------
        chosen
            bool (P, N).
        """
        out: FloatArray = np.where(chosen, self.extents, 1.0).prod(axis=0)
        return out

    def of_kind(self, *kinds: LoopKind) -> FloatArray:
        """Product of the extents of the loops of these kinds, (N,)."""
        return self.product(np.isin(self.kinds, kinds))


def nest_of(statement: Statement, program: SketchProgram) -> Nest:
    """Stack a statement's loops and merge its accesses by buffer and movement."""
    rows, loops = program.rows, statement.loops
    extents = np.ones((len(loops), rows))
    kinds = np.zeros((len(loops), rows), np.int8)
    boundary = np.ones((len(loops), rows), np.bool_)
    for p, loop in enumerate(loops):
        extents[p], kinds[p], boundary[p] = loop.extent, loop.kind, loop.boundary
    trips = np.ones((len(loops) + 1, rows))
    np.cumprod(extents, axis=0, out=trips[1:])
    reduction = np.array([loop.reduction for loop in loops], np.bool_)
    touches = _touches(statement, program)
    return Nest(statement, extents, kinds, boundary, reduction, trips, touches)


def _touches(statement: Statement, program: SketchProgram) -> tuple[Touch, ...]:
    found: list[Touch] = []
    for access in statement.accesses:
        strides = np.zeros((len(statement.loops), program.rows), np.int64)
        for p in range(len(statement.loops)):
            strides[p] = access.stride(p)
        buffer = program.buffers[access.buffer]
        for i, touch in enumerate(found):
            if touch.buffer is buffer and np.array_equal(touch.strides, strides):
                found[i] = _merged(touch, access)
                break
        else:
            found.append(_touch(access, buffer, strides))
    return tuple(found)


def _touch(access: Access, buffer: Buffer, strides: IntArray) -> Touch:
    levels, rows = len(strides) + 1, strides.shape[1]
    region, run = np.empty((levels, rows)), np.empty((levels, rows))
    for level in range(levels):
        region[level], run[level] = access.footprint(level), access.run(level)
    return Touch(buffer, not access.write, access.write, access.mask, region, strides, run)


def _merged(touch: Touch, access: Access) -> Touch:
    return replace(
        touch,
        read=touch.read or not access.write,
        write=touch.write or access.write,
        mask=touch.mask | access.mask,
    )


_Number = TypeVar("_Number", bound=np.generic)


def at_level(stack: npt.NDArray[_Number], level: IntArray) -> npt.NDArray[_Number]:
    """Pick one level per row out of a stack: (P+1, N), (N,) to (N,)."""
    out: npt.NDArray[_Number] = stack[level, np.arange(stack.shape[1])]
    return out


def first_level(fits: BoolArray) -> IntArray:
    """The outermost level whose condition holds, per row; P where none does: (P+1, N) to (N,)."""
    return np.where(fits.any(axis=0), fits.argmax(axis=0), len(fits) - 1)


def group_extents(nest: Nest) -> FloatArray:
    """Extent of each loop as the code has it: a fused loop's at its first part, 1 at the others.

    float64 (P, N).
    """
    out = np.ones_like(nest.extents)
    pending = np.ones(nest.rows)
    for p in range(nest.depth - 1, -1, -1):
        pending = pending * nest.extents[p]
        out[p] = np.where(nest.boundary[p], pending, 1.0)
        pending = np.where(nest.boundary[p], 1.0, pending)
    return out
