"""Deduplication of rows: the cost of a statement is computed once for equal rows.

A statement depends on few of a schedule's decisions: of 25,000 schedules of a softmax each
statement has between ten and a thousand forms. A draft of a statement is row-wise arithmetic on the
numbers in its loops, accesses and buffers. Rows in which all of these are equal are of one kind:
the statement is reduced to one row of each kind, and its terms are expanded to all rows again.

A kind is identified by a 64-bit hash of its numbers ("mark"), a sum of products with odd random
factors modulo 2^64: two different ones among 25,000 agree by chance once in 10^8 times at worst.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.draft.columns import Column, Num, repeated
from pruner_ms.symbolic.index.access import AffineAccess
from pruner_ms.symbolic.index.picking import Change, exchanged, layout
from pruner_ms.symbolic.program import Buffer, Loop, SketchProgram, Statement
from pruner_ms.types import IntArray

# The cache of figures: the design spaces of a task share statements, and a search meets the same
# forms of them again and again.

MOST_KINDS = 1 << 16
"""Capacity of the cache in kinds, 60 bytes each; it is cleared when full."""


@dataclass(frozen=True)
class _Table:
    """Kinds of one structure: marks, ascending, and figures, float32 (F, K)."""

    marks: IntArray
    figures: Column


class FigureCache:
    """Cache of the figures of kinds of rows by structure and mark."""

    def __init__(self) -> None:
        self._tables: dict[Hashable, _Table] = {}
        self._count = 0

    def clear(self) -> None:
        """Forget all figures."""
        self._tables, self._count = {}, 0

    def __len__(self) -> int:
        return self._count

    def figures(
        self, structure: Hashable, marks: IntArray, compute: Callable[[], Column]
    ) -> Column:
        """Figures of some kinds, float32 (F, K).

        Parameters
        ----------
        marks
            Of the kinds, all different, int64 (K,).
        compute
            Gives the figures of all of these kinds; called if one of them is new.
        """
        table = self._tables.get(structure)
        if table is None:
            return self._added(structure, None, marks, compute())
        place = np.minimum(np.searchsorted(table.marks, marks), len(table.marks) - 1)
        old = table.marks[place] == marks
        if old.all():
            return table.figures[:, place]
        computed = compute()
        computed[:, old] = table.figures[:, place[old]]
        self._added(structure, table, marks[~old], computed[:, ~old])
        return computed

    def _added(
        self, structure: Hashable, table: _Table | None, marks: IntArray, figures: Column
    ) -> Column:
        """Store the figures of new kinds; the cache is cleared first if it is full."""
        new_figures = figures
        if self._count + len(marks) > MOST_KINDS:
            self.clear()
            table = None
        self._count += len(marks)
        if table is not None:
            marks = np.concatenate([table.marks, marks])
            figures = np.concatenate([table.figures, figures], axis=1)
        order = np.argsort(marks)
        self._tables[structure] = _Table(marks[order], figures[:, order])
        return new_figures


FEWEST_ROWS = 512
"""Rows from which on deduplication is tried: for fewer, calls cost more than arithmetic."""

TRIED = 1024
"""Rows in the sample that is tried first."""

TRIED_SHARE = 0.5
"""Share of different rows in the sample (by their loops alone) above which deduplication is given
up."""

WORTH = 0.5
"""Share of different rows up to which a statement is reduced."""


@dataclass(frozen=True)
class IsolatedStatement:
    """A statement, and a program for the rows and buffers of this statement alone."""

    statement: Statement
    program: SketchProgram

    @property
    def used(self) -> list[int]:
        """The buffers that it touches, in the order in which it names them."""
        return list(dict.fromkeys(access.buffer for access in self.statement.accesses))


@dataclass(frozen=True)
class Kinds:
    """The kinds of rows of a statement.

    Attributes
    ----------
    first
        A row of each kind, int64 (K,).
    place
        The kind of each row, int64 (N,).
    marks
        Hash of each kind, int64 (K,).
    structure
        What all rows have in common. In statements of the same structure, rows with the same mark
        are equal. None where the cost of a row depends on the other rows.
    original
        The statement and its program.
    """

    first: IntArray
    place: IntArray
    marks: IntArray
    structure: Hashable
    original: IsolatedStatement

    def representatives(self) -> IsolatedStatement:
        """The statement with a row of each kind."""
        return _exchanged(self.original, _Picked(self.first), len(self.first)) or self.original

    def spread(self, figures: Column) -> Num:
        """Figures of the kinds, (K,), for all rows."""
        return figures.take(self.place, mode="clip") if np.count_nonzero(figures) else 0.0


def kinds_of(statement: Statement, program: SketchProgram) -> Kinds | None:
    """The kinds of rows of a statement; None where they are many, or an access type is unknown."""
    if program.rows < FEWEST_ROWS:
        return None
    seen = _Numbers()
    _loops(statement, seen)
    tried = min(TRIED, program.rows)
    marks = marks_of([values[:tried] for values in seen.arrays.values()], tried)
    if len(np.unique(marks)) > TRIED_SHARE * tried:
        return None
    original = _exchanged(IsolatedStatement(statement, program), seen, program.rows)
    if original is None:
        return None
    marks = marks_of(list(seen.arrays.values()), program.rows)
    first, place = equal_rows(marks)
    if len(first) > WORTH * program.rows:
        return None
    return Kinds(first, place, marks[first], _structure(original, seen), original)


def _structure(original: IsolatedStatement, seen: _Numbers) -> Hashable:
    """What a statement's rows have in common."""
    statement, used = original.statement, original.used
    accesses = statement.accesses
    outputs = [a.buffer for a in accesses if a.write] if statement.reduction else []
    inputs = [a.buffer for a in accesses if a.buffer not in outputs]
    if len(set(inputs)) < len(inputs):
        # whether two accesses of a buffer count as one depends on all rows
        return None
    buffers = [original.program.buffers[place] for place in used]
    return (
        (statement.dtype, statement.role, statement.reduction, *statement.ops),
        tuple(loop.reduction for loop in statement.loops),
        tuple((used.index(a.buffer), a.write) for a in accesses),
        tuple(layout(a) for a in accesses if isinstance(a, AffineAccess)),
        tuple((buffer.dtype, len(buffer.shape), buffer.staged) for buffer in buffers),
        tuple(seen.sequence),
    )


def marks_of(columns: Sequence[npt.NDArray[Any]], rows: int) -> IntArray:
    """A mark of each row by its numbers in several columns (N,), int64 (N,)."""
    marks, part = np.zeros(rows, np.int64), np.empty(rows, np.int64)
    wide = [values for values in columns if values.itemsize > 1]
    wide += _packed([values for values in columns if values.itemsize == 1])
    for i, values in enumerate(wide):
        np.multiply(values, _factors(i // 64)[i % 64], out=part)
        marks += part
    return marks


def _packed(columns: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[np.uint8]]:
    """Flags, and `LoopKind` codes (three bits), several to a byte."""
    packed: list[npt.NDArray[np.uint8]] = []
    free_bits = 0
    for values in columns:
        bits = 1 if values.dtype == np.bool_ else 3
        if bits > free_bits:
            packed.append(values.astype(np.uint8))
            free_bits = 8 - bits
        else:
            packed[-1] <<= bits
            packed[-1] |= values.view(np.uint8)
            free_bits -= bits
    return packed


@lru_cache(maxsize=64)
def _factors(page: int) -> IntArray:
    """Odd random factors, int64 (64,)."""
    return np.random.default_rng(page).integers(0, 1 << 62, 64) * 2 + 1


def equal_rows(marks: IntArray) -> tuple[IntArray, IntArray]:
    """One row of every mark, ascending, and for each row the place of its mark in that list."""
    rows = np.arange(len(marks))
    bits = len(marks).bit_length() + 1
    slot = marks >> np.int64(64 - bits)
    slot &= (1 << bits) - 1
    table = np.empty(1 << bits, np.int64)
    table[slot] = rows
    owner = table[slot]
    # marks that share a slot with another one
    (others,) = np.nonzero(marks[owner] != marks)
    if len(others):
        _, first, place = np.unique(marks[others], return_index=True, return_inverse=True)
        owner[others] = others[first][place]
    (representatives,) = np.nonzero(owner == rows)
    number = table[: len(marks)]
    number[representatives] = np.arange(len(representatives))
    return representatives, number.take(owner, mode="clip")


class _Numbers:
    """Collects the arrays that vary between rows, and the values of the others.

    Attributes
    ----------
    arrays
        The arrays, by their identity.
    sequence
        For each number in turn: its value if it is the same in all rows, else which array it is.
    """

    def __init__(self) -> None:
        self.arrays: dict[int, npt.NDArray[Any]] = {}
        self.sequence: list[Hashable] = []
        self._number: dict[int, tuple[int, int]] = {}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            self.sequence.append(value)
        elif repeated(value):
            self.sequence.append(value[0].item())
        else:
            if id(value) not in self.arrays:
                self._number[id(value)] = len(self.arrays), value.itemsize
                self.arrays[id(value)] = value
            self.sequence.append(self._number[id(value)])
        return value


class _Picked:
    """Picks the same rows of many arrays; each array is picked from once."""

    def __init__(self, rows: IntArray) -> None:
        self.rows = rows
        self._picked: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if id(value) not in self._picked:
            if repeated(value):
                picked = np.broadcast_to(value[0], self.rows.shape)
            else:
                picked = value.take(self.rows, mode="clip")
            # keep the array itself: once it is freed, another array may get its id
            self._picked[id(value)] = value, picked
        return self._picked[id(value)][1]


def _loops(statement: Statement, change: Change) -> tuple[Loop, ...]:
    return tuple(
        Loop(
            change(loop.extent), change(loop.kind), loop.reduction, change(loop.boundary), loop.tag
        )
        for loop in statement.loops
    )


def _exchanged(original: IsolatedStatement, change: Change, rows: int) -> IsolatedStatement | None:
    """A statement and its buffers with every number exchanged; None for an unknown access type."""
    statement, buffers = original.statement, list(original.program.buffers)
    accesses = []
    for access in statement.accesses:
        changed = exchanged(access, change)
        if changed is None:
            return None
        accesses.append(changed)
    for place in original.used:
        buffers[place] = _buffer(buffers[place], change)
    statement = replace(
        statement,
        loops=_loops(statement, change),
        accesses=tuple(accesses),
        ops={kind: change(count) for kind, count in statement.ops.items()},
        alive=change(statement.alive),
        unroll=change(statement.unroll),
        guarded=change(statement.guarded),
    )
    supported = np.broadcast_to(np.True_, (rows,))
    return IsolatedStatement(
        statement, SketchProgram(rows, (statement,), tuple(buffers), supported)
    )


def _buffer(buffer: Buffer, change: Change) -> Buffer:
    shape = tuple(change(extent) for extent in buffer.shape)
    return replace(buffer, shape=shape, alloc=change(buffer.alloc))
