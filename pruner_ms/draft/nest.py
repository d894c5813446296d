"""A statement's loop nest: the input of every latency formula.

It has two views of the same figures. The fast formulas use columns (`Num`, `Mask`), computed
lazily: one number where all rows share it. The others use float64 arrays with a loop or level axis.

Notation
--------
N        rows
P        loops of the statement, outermost first
level    0..P; a level's region is what loops level..P-1 touch; that of level P, one iteration
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

from pruner_ms.draft.columns import Num, flag, number, select, split_by, stacked, times, truth
from pruner_ms.draft.touch import Touch
from pruner_ms.symbolic.program import LoopKind, SketchProgram, Statement, cooperating_threads
from pruner_ms.symbolic.rows import Mask, both, either, possible, uniform_mask, without
from pruner_ms.types import BoolArray, FloatArray, IntArray


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
        Rows in which each loop begins a new loop: not absent, not fused into the one above.
    reduction
        Whether each loop carries a reduction axis.
    touches
        Its accesses, merged.
    cooperating_threads
        Threads that execute one iteration together, a column (`program.cooperating_threads`).
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
        self.cooperating_threads = number(cooperating_threads(statement, program))

    def is_kind(self, loop: int, kind: LoopKind) -> Mask:
        """Rows in which a loop is of a kind."""
        codes = self._kinds[loop]
        if isinstance(codes, int):
            return codes == kind
        if (loop, kind) not in self._masks:
            self._masks[loop, kind] = uniform_mask(codes == np.int8(kind))
        return self._masks[loop, kind]

    def runs(self, loop: int) -> Mask:
        """Rows in which a loop has more than one iteration."""
        if (loop, None) not in self._masks:
            self._masks[loop, None] = uniform_mask(truth(self.sizes[loop] > 1))
        return self._masks[loop, None]

    def reducing(self) -> list[Mask]:
        """Per loop, the rows in which it carries a reduction and iterates."""
        return [self.runs(p) if self.reduction[p] else False for p in range(self.depth)]

    @cached_property
    def groups(self) -> list[Num]:
        """Extent of each loop in the generated code.

        A fused loop has its extent at its first part, and 1 at the others.
        """
        out: list[Num] = [1.0] * self.depth
        pending: Num = 1.0
        for p in range(self.depth - 1, -1, -1):
            pending = times(pending, self.sizes[p])
            out[p], pending = split_by(self.bounds[p], pending)
        return out

    @cached_property
    def group_iterates(self) -> list[Mask]:
        """Per loop in the generated code, the rows in which it has more than one iteration."""
        return [uniform_mask(truth(extent > 1)) for extent in self.groups]

    @cached_property
    def lanes(self) -> list[tuple[int, Mask]]:
        """Vectorised loops, innermost first, and the rows in which each is the innermost one."""
        out: list[tuple[int, Mask]] = []
        left: Mask = True
        for p in range(self.depth - 1, -1, -1):
            vectorised = both(self.is_kind(p, LoopKind.VECTORIZED), self.runs(p))
            vectorised = both(left, vectorised)
            if possible(vectorised):
                out.append((p, vectorised))
                left = without(left, vectorised)
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
        result: Num = 1.0
        for mask, size in zip(chosen, self.sizes, strict=True):
            if possible(mask):
                result = times(result, select(mask, size, 1.0))
        return result

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
        """`values(level)` just below the innermost chosen loop; at level 0 without one."""
        start = max((p for p, mask in enumerate(chosen) if mask is True), default=-1)
        result = values(start + 1)
        for p in range(start + 1, self.depth):
            if possible(chosen[p]):
                result = select(chosen[p], values(p + 1), result)
        return result

    @cached_property
    def extents(self) -> FloatArray:
        """Extent of each loop, float64 (P, N)."""
        return stacked(self.rows, self.sizes)

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
        return stacked(self.rows, [self.above(level) for level in range(self.depth + 1)])

    @cached_property
    def reduces(self) -> BoolArray:
        """`reduction` as bool (P, 1)."""
        return np.array(self.reduction, np.bool_)[:, None]


def nest_of(statement: Statement, program: SketchProgram) -> Nest:
    """The nest of a statement."""
    return Nest(statement, program)


def _codes(kinds: npt.NDArray[Any]) -> int | npt.NDArray[np.int8]:
    if len(kinds) and (kinds.strides == (0,) or np.count_nonzero(kinds == kinds[0]) == len(kinds)):
        return int(kinds[0])
    return kinds.astype(np.int8, copy=False)


def _touches(statement: Statement, program: SketchProgram) -> tuple[Touch, ...]:
    touches: list[Touch] = []
    written = {access.buffer for access in statement.accesses if access.write}
    for access in statement.accesses:
        buffer = program.buffers[access.buffer]
        # a reduction's update reads its output where it writes it
        output = statement.reduction and access.buffer in written
        for touch in touches:
            if touch.buffer is buffer and (output or touch.moves_like(access)):
                touch.merge(access)
                break
        else:
            touches.append(Touch(buffer, access, len(statement.loops)))
    for touch in touches:  # rows without the statement do not matter
        if _everywhere(touch.exists, flag(statement.alive)):
            touch.exists = True
    return tuple(touches)


def _everywhere(exists: Mask, alive: Mask) -> bool:
    """Whether a mask holds wherever another one does."""
    return exists is True or not possible(without(alive, exists))


_Number = TypeVar("_Number", bound=np.generic)


def at_level(stack: npt.NDArray[_Number], level: IntArray) -> npt.NDArray[_Number]:
    """Pick one level per row out of a stack: (P+1, N), (N,) to (N,)."""
    out: npt.NDArray[_Number] = stack[level, np.arange(stack.shape[1])]
    return out
