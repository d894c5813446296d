"""A statement's loop nest: what every formula of this room starts from.

Two views of the same. Columns (`Num`, `Mask`) are what the fast formulas take: nothing is computed
before it is asked for, and what all rows share is one number. Stacks are the same as float64
arrays with a loop or level axis, for formulas that need not be fast.

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

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pruner_ms.draft.columns import (
    Mask,
    Num,
    Whole,
    both,
    either,
    flag,
    magnitude,
    negate,
    number,
    possible,
    select,
    times,
    truth,
    whole,
)
from pruner_ms.symbolic.program import Access, Buffer, LoopKind, SketchProgram, Statement
from pruner_ms.types import BoolArray, FloatArray, IntArray


class Touch:
    """The accesses of a statement to one buffer that move together, with their regions.

    Attributes
    ----------
    buffer
        What is touched.
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
        self._steps: dict[int, Whole] = {}
        self._paces: dict[int, Whole] = {}

    def merge(self, access: Access) -> None:
        """Take in another access that moves alike."""
        self.read, self.write = self.read or not access.write, self.write or access.write
        self.exists = either(self.exists, flag(access.mask))

    def moves_like(self, access: Access) -> bool:
        """Whether another access of the buffer moves alike, in every row."""
        return all(
            np.array_equal(self._access.stride(p), access.stride(p)) for p in range(self._depth)
        )

    def _number(self, values: IntArray) -> Num:
        # an access gives one array for all levels at which it does not change: convert it once
        known = self._numbers.get(id(values))
        if known is None or known[0] is not values:
            known = (values, number(values))
            self._numbers[id(values)] = known
        return known[1]

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

    def step(self, loop: int) -> Whole:
        """Elements moved per step of a loop; 0 where the loop does not move it."""
        if loop not in self._steps:
            self._steps[loop] = whole(self._access.stride(loop))
        return self._steps[loop]

    def pace(self, loop: int) -> Whole:
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
        return _stacked(self._rows, [self.elements(n) for n in range(self._depth + 1)])

    @cached_property
    def run(self) -> FloatArray:
        """Contiguous elements per level, float64 (P+1, N)."""
        return _stacked(self._rows, [self.contiguous(n) for n in range(self._depth + 1)])

    @cached_property
    def strides(self) -> IntArray:
        """Elements moved per step of each loop, int64 (P, N)."""
        out = np.zeros((self._depth, self._rows), np.int64)
        for p in range(self._depth):
            out[p] = self.step(p)
        return out


class Nest:
    """A statement's loops and accesses; see the notation above.

    Attributes
    ----------
    statement
        The statement.
    rows, depth
        N and P.
    sizes
        Extent of each loop, a column.
    bounds
        Where each loop starts one of its own: not absent, not fused into the one above.
    reduction
        Whether each loop carries a reduction axis.
    touches
        Its accesses, merged.
    """

    def __init__(self, statement: Statement, program: SketchProgram) -> None:
        loops = statement.loops
        self.statement = statement
        self.rows, self.depth = program.rows, len(loops)
        self.sizes = [number(loop.extent) for loop in loops]
        self.bounds = [flag(loop.boundary) for loop in loops]
        self.reduction = [loop.reduction for loop in loops]
        self._kinds = [_codes(loop.kind) for loop in loops]
        self._above: list[Num] = [1.0]
        self._chosen: dict[tuple[LoopKind, ...], list[Mask]] = {}
        self._masks: dict[tuple[int, LoopKind | None], Mask] = {}
        self.touches = _touches(statement, program)

    def is_kind(self, loop: int, kind: LoopKind) -> Mask:
        """Rows in which a loop is of a kind."""
        codes = self._kinds[loop]
        if isinstance(codes, int):
            return codes == kind
        if (loop, kind) not in self._masks:
            self._masks[loop, kind] = _settled(codes == np.int8(kind))
        return self._masks[loop, kind]

    def runs(self, loop: int) -> Mask:
        """Rows in which a loop has more than one iteration."""
        if (loop, None) not in self._masks:
            self._masks[loop, None] = _settled(truth(self.sizes[loop] > 1))
        return self._masks[loop, None]

    def reducing(self) -> list[Mask]:
        """Per loop, the rows in which it carries a reduction and iterates."""
        return [self.runs(p) if self.reduction[p] else False for p in range(self.depth)]

    @cached_property
    def groups(self) -> list[Num]:
        """Extent of each loop as the code has it: a fused loop's at its first part, 1 at the
        others."""
        out: list[Num] = [1.0] * self.depth
        pending: Num = 1.0
        for p in range(self.depth - 1, -1, -1):
            pending = times(pending, self.sizes[p])
            out[p] = select(self.bounds[p], pending, 1.0)
            pending = select(self.bounds[p], 1.0, pending)
        return out

    @cached_property
    def lanes(self) -> list[tuple[int, Mask]]:
        """The loops that are vectorised, innermost first, and the rows in which each is the
        innermost of them."""
        out: list[tuple[int, Mask]] = []
        left: Mask = True
        for p in range(self.depth - 1, -1, -1):
            here = both(self.is_kind(p, LoopKind.VECTORIZED), self.runs(p))
            here = both(left, here)
            if possible(here):
                out.append((p, here))
                left = both(left, negate(here))
        return out

    def above(self, level: int) -> Num:
        """Iterations of the loops above a level."""
        while len(self._above) <= level:
            self._above.append(times(self._above[-1], self.sizes[len(self._above) - 1]))
        return self._above[level]

    def product(self, chosen: Iterable[Mask]) -> Num:
        """Product of the extents of chosen loops.

        Parameters
        ----------
        chosen
            A mask per loop, e.g. bool (P, N).
        """
        found: Num = 1.0
        for mask, size in zip(chosen, self.sizes, strict=True):
            if possible(mask):
                found = times(found, select(mask, size, 1.0))
        return found

    def kind_masks(self, *kinds: LoopKind) -> list[Mask]:
        """Per loop, the rows in which it is of one of these kinds."""
        if kinds not in self._chosen:
            chosen: list[Mask] = [False] * self.depth
            for p in range(self.depth):
                for kind in kinds:
                    chosen[p] = either(chosen[p], self.is_kind(p, kind))
            self._chosen[kinds] = chosen
        return self._chosen[kinds]

    def of_kind(self, *kinds: LoopKind) -> Num:
        """Product of the extents of the loops of these kinds."""
        return self.product(self.kind_masks(*kinds))

    def below(self, chosen: Sequence[Mask], values: Callable[[int], Num]) -> Num:
        """What `values(level)` is just below the innermost chosen loop; at level 0 without one."""
        start = max((p for p, mask in enumerate(chosen) if mask is True), default=-1)
        found = values(start + 1)
        for p in range(start + 1, self.depth):
            if possible(chosen[p]):
                found = select(chosen[p], values(p + 1), found)
        return found

    @cached_property
    def extents(self) -> FloatArray:
        """Extent of each loop, float64 (P, N)."""
        return _stacked(self.rows, self.sizes)

    @cached_property
    def kinds(self) -> npt.NDArray[np.int8]:
        """`LoopKind` codes, int8 (P, N)."""
        out = np.zeros((self.depth, self.rows), np.int8)
        for p, codes in enumerate(self._kinds):
            out[p] = codes
        return out

    @cached_property
    def trips(self) -> FloatArray:
        """Iterations above each level, float64 (P+1, N)."""
        return _stacked(self.rows, [self.above(level) for level in range(self.depth + 1)])

    @cached_property
    def reduces(self) -> BoolArray:
        """`reduction` as bool (P, 1)."""
        return np.array(self.reduction, np.bool_)[:, None]


def _settled(mask: Mask) -> Mask:
    """A mask that holds nowhere, or everywhere, as a bool."""
    if isinstance(mask, bool):
        return mask
    count = np.count_nonzero(mask)
    return bool(count) if count in (0, len(mask)) else mask


def nest_of(statement: Statement, program: SketchProgram) -> Nest:
    """The nest of a statement."""
    return Nest(statement, program)


def _codes(kinds: npt.NDArray[Any]) -> int | npt.NDArray[np.int8]:
    if len(kinds) and (kinds.strides == (0,) or np.count_nonzero(kinds == kinds[0]) == len(kinds)):
        return int(kinds[0])
    return kinds.astype(np.int8, copy=False)


def _stacked(rows: int, values: Sequence[Num]) -> FloatArray:
    out = np.empty((len(values), rows))
    for i, value in enumerate(values):
        out[i] = value
    return out


def _touches(statement: Statement, program: SketchProgram) -> tuple[Touch, ...]:
    found: list[Touch] = []
    written = {access.buffer for access in statement.accesses if access.write}
    for access in statement.accesses:
        buffer = program.buffers[access.buffer]
        # a reduction's update reads its output where it writes it
        output = statement.reduction and access.buffer in written
        for touch in found:
            if touch.buffer is buffer and (output or touch.moves_like(access)):
                touch.merge(access)
                break
        else:
            found.append(Touch(buffer, access, len(statement.loops)))
    for touch in found:  # in rows without the statement nothing is looked at
        if _everywhere(touch.exists, flag(statement.alive)):
            touch.exists = True
    return tuple(found)


def _everywhere(exists: Mask, alive: Mask) -> bool:
    """Whether a mask holds wherever another one does."""
    return exists is True or not possible(both(alive, negate(exists)))


_Number = TypeVar("_Number", bound=np.generic)


def at_level(stack: npt.NDArray[_Number], level: IntArray) -> npt.NDArray[_Number]:
    """Pick one level per row out of a stack: (P+1, N), (N,) to (N,)."""
    out: npt.NDArray[_Number] = stack[level, np.arange(stack.shape[1])]
    return out
