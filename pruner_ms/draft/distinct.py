"""The rows of a statement that differ: what a statement costs is computed once for equal ones.

A statement depends on few of a schedule's decisions: of 25,000 schedules of a softmax each
statement has between ten and a thousand forms. What a draft reads of a statement is arithmetic, row
by row, on the numbers in its loops, accesses and buffers. Rows in which all of these are equal have
equal terms: the statement is cut down to one row of each kind, and its terms are spread again.

Rows are known by a 64-bit mark of their numbers, a sum of products with odd random factors
modulo 2^64: two different ones among 25,000 agree by chance once in 10^8 times at worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.draft.columns import Num, repeated
from pruner_ms.symbolic.picking import Change, exchanged
from pruner_ms.symbolic.program import Buffer, Loop, SketchProgram, Statement
from pruner_ms.types import IntArray

FEWEST_ROWS = 2048
"""Rows from which on equal ones are looked for: for fewer, calls cost more than arithmetic."""

TRIED = 1024
"""Rows on which it is tried first."""

TRIED_SHARE = 0.5
"""Share of different rows among those tried (by their loops alone) from which on it is left."""

WORTH = 0.5
"""Share of different rows up to which a statement is cut down."""


@dataclass(frozen=True)
class Part:
    """A statement of a program, cut down to rows that differ.

    Attributes
    ----------
    statement
        With the rows that are left.
    program
        Its rows and buffers.
    place
        Where each row of the whole is among those left, int64 (N,); None where all are left.
    """

    statement: Statement
    program: SketchProgram
    place: IntArray | None = None

    def spread(self, value: Num) -> Num:
        """What was computed for the rows that are left, for all rows."""
        if self.place is None or isinstance(value, float | int):
            return value
        return value.take(self.place, mode="clip")


def part_of(statement: Statement, program: SketchProgram) -> Part:
    """Cut a statement down to the rows that differ, if that is worth it."""
    whole = Part(statement, program)
    if program.rows < FEWEST_ROWS:
        return whole
    seen = _Numbers()
    _loops(statement, seen)
    tried = marks_of([values[:TRIED] for values in seen.found.values()], TRIED)
    if len(np.unique(tried)) > TRIED_SHARE * TRIED:
        return whole
    if _exchanged(whole, seen, program.rows) is None:
        return whole
    first, place = equal_rows(marks_of(list(seen.found.values()), program.rows))
    if len(first) > WORTH * program.rows:
        return whole
    found = _exchanged(whole, _Picked(first), len(first))
    return whole if found is None else replace(found, place=place)


def marks_of(columns: Sequence[npt.NDArray[Any]], rows: int) -> IntArray:
    """A mark of each row by its numbers in several columns (N,), int64 (N,)."""
    found, part = np.zeros(rows, np.int64), np.empty(rows, np.int64)
    wide = [values for values in columns if values.itemsize > 1]
    wide += _packed([values for values in columns if values.itemsize == 1])
    for i, values in enumerate(wide):
        np.multiply(values, _factors(i // 64)[i % 64], out=part)
        found += part
    return found


def _packed(columns: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[np.uint8]]:
    """Flags, and `LoopKind` codes (three bits), several to a byte."""
    found: list[npt.NDArray[np.uint8]] = []
    room = 0
    for values in columns:
        bits = 1 if values.dtype == np.bool_ else 3
        if bits > room:
            found.append(values.astype(np.uint8))
            room = 8 - bits
        else:
            found[-1] <<= bits
            found[-1] |= values.view(np.uint8)
            room -= bits
    return found


@lru_cache(maxsize=64)
def _factors(page: int) -> IntArray:
    """Odd random factors, int64 (64,)."""
    return np.random.default_rng(page).integers(0, 1 << 62, 64) * 2 + 1


def equal_rows(marks: IntArray) -> tuple[IntArray, IntArray]:
    """One row of every mark, ascending, and where the mark of each row is among those."""
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
    (kept,) = np.nonzero(owner == rows)
    number = table[: len(marks)]
    number[kept] = np.arange(len(kept))
    return kept, number.take(owner, mode="clip")


class _Numbers:
    """Collects what varies between rows."""

    def __init__(self) -> None:
        self.found: dict[int, npt.NDArray[Any]] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and not repeated(value):
            self.found[id(value)] = value
        return value


class _Picked:
    """Picks rows; of one array once."""

    def __init__(self, rows: IntArray) -> None:
        self.rows = rows
        self._known: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if id(value) not in self._known:
            if repeated(value):
                picked = np.broadcast_to(value[0], self.rows.shape)
            else:
                picked = value.take(self.rows, mode="clip")
            # with the array itself: of one that is gone another one may have the id
            self._known[id(value)] = value, picked
        return self._known[id(value)][1]


def _loops(statement: Statement, change: Change) -> tuple[Loop, ...]:
    return tuple(
        Loop(
            change(loop.extent), change(loop.kind), loop.reduction, change(loop.boundary), loop.tag
        )
        for loop in statement.loops
    )


def _exchanged(part: Part, change: Change, rows: int) -> Part | None:
    """A statement and its buffers with every number exchanged; None where that is not known how."""
    statement, buffers = part.statement, list(part.program.buffers)
    accesses = []
    for access in statement.accesses:
        found = exchanged(access, change)
        if found is None:
            return None
        accesses.append(found)
    for place in {access.buffer for access in accesses}:
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
    return Part(statement, SketchProgram(rows, (statement,), tuple(buffers), supported))


def _buffer(buffer: Buffer, change: Change) -> Buffer:
    shape = tuple(change(extent) for extent in buffer.shape)
    return replace(buffer, shape=shape, alloc=change(buffer.alloc))
