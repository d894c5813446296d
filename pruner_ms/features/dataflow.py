"""Data-flow tokens: the data movements of a program in order, one token per move.

The published tokens exist only for programs that match one literal pattern of memory scopes, have
no mask and no order [Pruner, section 4.2]. Ours come from the roles of the statements and exist for
every program: a neutral element is written (INIT), an operand is staged in a nearer memory (LOAD),
each operand is read by the arithmetic (OPERAND), its result is written (RESULT), a result is copied
to a farther memory (STORE).

Notation
--------
N      rows
T      tokens of the program; those absent in a row are masked out
D      numbers of a token, `len(TOKEN_NAMES)`
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.features.levels import CACHES, Nest, at, nests_of, slog
from pruner_ms.symbolic.program import Buffer, LoopKind, Role, SketchProgram, is_fragment
from pruner_ms.types import BoolArray, FloatArray, IntArray


class TokenType(enum.IntEnum):
    """Purpose of a move. 0 is a statement row of the packed form."""

    INIT = 1
    LOAD = 2
    OPERAND = 3
    RESULT = 4
    STORE = 5


class Place(enum.IntEnum):
    """Where data is."""

    NONE = 0  # a constant
    GLOBAL = 1  # a parameter of the function
    CACHE = 2  # a global buffer allocated by the program
    SHARED = 3
    FRAGMENT = 4
    REGISTER = 5  # local memory, or the operands of the arithmetic


_OTHER_FRAGMENTS = ("metal.", "warp")
_FIGURES = (
    "moved",
    "bytes",
    "unit_bytes",
    *(f"traffic{i}" for i in range(len(CACHES))),
    "reuse",
    "run",
    "stride",
    "alloc",
    "vector",
    "ops",
)
TOKEN_NAMES: tuple[str, ...] = (
    *(f"from_{place.name.lower()}" for place in Place),
    *(f"to_{place.name.lower()}" for place in Place),
    *_FIGURES,
)
"""Names of the columns, in order: part of the schema. "vector" is the elements of a vector, or the
TensorCore instructions of an iteration."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of N schedules.

    Attributes
    ----------
    values
        float64 (N, T, D).
    mask
        bool (N, T): where the token exists.
    kind
        int64 (T,): `TokenType` codes.
    order
        int64 (N, T): position among the existing tokens of the row, from 0.
    """

    values: FloatArray
    mask: BoolArray
    kind: IntArray
    order: IntArray


def place_of(buffer: Buffer) -> Place:
    """The memory that holds a buffer."""
    if is_fragment(buffer) or buffer.scope.startswith(_OTHER_FRAGMENTS):
        return Place.FRAGMENT
    if buffer.scope.startswith("shared"):
        return Place.SHARED
    if buffer.scope.startswith("local"):
        return Place.REGISTER
    return Place.GLOBAL if buffer.param else Place.CACHE


def dataflow_tokens(program: SketchProgram, nests: Sequence[Nest] | None = None) -> Tokens:
    """Tokens of every move of N schedules, in program order.

    A statement gives its reads in order and then its writes; a copy (LOAD, STORE) is one move,
    described by its read. The read of a reduction's own output is part of its RESULT. `nests`:
    `levels.nests_of(program)`, where the caller has them already.
    """
    rows: list[FloatArray] = []
    masks: list[BoolArray] = []
    kinds: list[int] = []
    for nest in nests or nests_of(program):
        statement = nest.statement
        for index, kind in _moves(nest):
            rows.append(_token(nest, index, kind))
            masks.append(statement.accesses[index].mask & statement.alive)
            kinds.append(kind)
    if not rows:
        empty = np.zeros((program.rows, 0))
        values = np.zeros((program.rows, 0, len(TOKEN_NAMES)))
        return Tokens(values, empty.astype(bool), np.zeros(0, np.int64), empty.astype(np.int64))
    mask = np.stack(masks, axis=1)
    values = np.where(mask[..., None], np.stack(rows, axis=1), 0.0)
    order = np.where(mask, np.cumsum(mask, axis=1) - 1, 0)
    return Tokens(values, mask, np.array(kinds, np.int64), order.astype(np.int64))


def _moves(nest: Nest) -> list[tuple[int, TokenType]]:
    """Accesses that give a token, with its type, in order."""
    accesses, role = nest.statement.accesses, nest.statement.role
    written = {a.buffer for a in accesses if a.write}
    reads = [i for i, a in enumerate(accesses) if not a.write and a.buffer not in written]
    writes = [i for i, a in enumerate(accesses) if a.write]
    if role is Role.INIT:
        return [(i, TokenType.INIT) for i in writes]
    if role in (Role.LOAD, Role.STORE) and reads:
        kind = TokenType.LOAD if role is Role.LOAD else TokenType.STORE
        return [(i, kind) for i in reads]
    return [(i, TokenType.OPERAND) for i in reads] + [(i, TokenType.RESULT) for i in writes]


def _ends(nest: Nest, access: int, kind: TokenType) -> tuple[Place, Place]:
    """Where a move starts and ends."""
    place = place_of(nest.program.buffers[nest.statement.accesses[access].buffer])
    if kind is TokenType.INIT:
        return Place.NONE, place
    if kind is TokenType.OPERAND:
        return place, Place.REGISTER
    if kind is TokenType.RESULT:
        return Place.REGISTER, place
    target = next((a.buffer for a in nest.statement.accesses if a.write), None)
    return place, place if target is None else place_of(nest.program.buffers[target])


def _token(nest: Nest, index: int, kind: TokenType) -> FloatArray:
    """Numbers of one move, float64 (N, D)."""
    statement, access = nest.statement, nest.statement.accesses[index]
    buffer = nest.program.buffers[access.buffer]
    start, end = _ends(nest, index, kind)
    places = np.zeros((2, len(Place)))
    places[0, start] = places[1, end] = 1.0
    touched = nest.touched[index]
    moved = nest.iterations * touched[-1]
    figures = [
        moved,
        touched[0],
        at(touched, nest.unit),
        *nest.traffic[index],
        moved / at(nest.trips, nest.fitting[0]) / np.maximum(at(touched, nest.fitting[0]), 1.0),
        nest.runs[index],
        nest.strides[index],
        buffer.alloc * buffer.itemsize,
        statement.extent_of(LoopKind.VECTORIZED) * statement.steps,
        nest.iterations * sum(statement.ops.values()),
    ]
    fixed = np.broadcast_to(places.reshape(-1), (nest.program.rows, places.size))
    return np.concatenate([fixed, slog(np.stack(figures, axis=1))], axis=1)
