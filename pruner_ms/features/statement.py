"""Statement features: operations, loop extents by kind, access costs.

The published model uses Ansor's 164 numbers per store [Pruner, section 4.2]. Ours are 64, of the
kinds that carried that vector (operations, loop kinds, access costs, intensity, allocation), taken
at levels that do not depend on the representation of the nest (`levels`).

Notation
--------
N      rows
S      statements of the program
F      features of a statement, `len(STATEMENT_NAMES)`

Counts, bytes and extents pass through `slog` (log2(1 + x)); flags and shares stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from pruner_ms.dtypes import bytes_of
from pruner_ms.features.levels import CACHES, Nest, at, nests_of, slog
from pruner_ms.symbolic.program import LoopKind, Role, SketchProgram
from pruner_ms.types import BoolArray, FloatArray, IntArray

OPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "add": ("add",),
        "mul": ("mul",),
        "div": ("div",),
        "cmp": ("cmp", "guard"),
        "special": ("special",),
        "int": ("int",),
    }
)
"""Features of operations, and the kinds of `Statement.ops` that each counts."""
KINDS = (
    LoopKind.PARALLEL,
    LoopKind.VECTORIZED,
    LoopKind.UNROLLED,
    LoopKind.BLOCK,
    LoopKind.THREAD,
    LoopKind.VTHREAD,
)
SLOTS = 5
"""Accesses described: the first write, then reads in program order (the largest if more)."""

_ACCESS = ("bytes", "unit_bytes", "traffic0", "traffic1", "run", "stride", "reuse")
_STATEMENT = (
    *(f"ops_{op}" for op in OPS),
    *(f"extent_{kind.name.lower()}" for kind in KINDS),
    "trips",
    "trips_reduction",
    "trips_unit",
    "trips_innermost",
    "trips_cache0",
    "trips_inside_reduction",
    "unroll",
    "unrolled_body",
    *(f"intensity{i}" for i in range(len(CACHES))),
    "alloc",
    "item_bytes",
    *(f"role_{role.value}" for role in Role),
)
STATEMENT_NAMES: tuple[str, ...] = (
    *_STATEMENT,
    *(f"access{slot}_{name}" for slot in range(SLOTS) for name in _ACCESS),
)
"""Names of the columns, in order: part of the schema."""


def statement_features(
    program: SketchProgram, nests: Sequence[Nest] | None = None
) -> tuple[FloatArray, BoolArray]:
    """Features of every statement of N schedules.

    Parameters
    ----------
    program
        N schedules of one design space.
    nests
        `levels.nests_of(program)`, where the caller has them already.

    Returns
    -------
    features
        float64 (N, S, F); rows of statements that were inlined away are zero.
    mask
        bool (N, S): where the statement exists.
    """
    shape = (program.rows, len(program.statements))
    features = np.zeros((*shape, len(STATEMENT_NAMES)))
    mask = np.zeros(shape, bool)
    for index, nest in enumerate(nests or nests_of(program)):
        features[:, index] = np.stack([*_statement_columns(nest), *_accesses(nest)], axis=1)
        mask[:, index] = nest.statement.alive
    features[~mask] = 0.0
    return features, mask


def _statement_columns(nest: Nest) -> list[FloatArray]:
    """Columns of the statement as a whole, each float64 (N,)."""
    statement, trips = nest.statement, nest.trips
    total = trips[-1]
    counts = [
        nest.iterations * sum(statement.ops.get(kind, 0) for kind in kinds)
        for kinds in OPS.values()
    ]
    reduction = np.ones_like(total)
    for loop in statement.loops:
        if loop.reduction:
            reduction = reduction * loop.extent
    moved = nest.traffic.sum(axis=0)
    scaled = [
        *counts,
        *(statement.extent_of(kind) for kind in KINDS),
        total,
        reduction,
        total / at(trips, nest.unit),
        total / at(trips, nest.innermost()),
        total / at(trips, nest.fitting[0]),
        total / at(trips, nest.below_first_reduction()),
        statement.unroll,
        np.minimum(statement.unroll, total),
        *(np.sum(counts, axis=0) / np.maximum(bytes_, 1.0) for bytes_ in moved),
        _written(nest),
        np.full(len(total), bytes_of(statement.dtype)),
    ]
    roles = [np.full(len(total), float(statement.role is role)) for role in Role]
    return [*slog(np.stack(np.broadcast_arrays(*scaled))), *roles]


def _accesses(nest: Nest) -> list[FloatArray]:
    """Columns of the access slots, each float64 (N,); an empty slot is zero."""
    accesses = nest.statement.accesses
    if not accesses:
        return [np.zeros(nest.program.rows)] * (SLOTS * len(_ACCESS))
    inside = nest.iterations / at(nest.trips, nest.fitting[0])
    columns = np.arange(nest.program.rows)
    table = np.stack(
        [
            nest.touched[:, 0],
            nest.touched[:, nest.unit, columns],
            nest.traffic[:, 0],
            nest.traffic[:, 1],
            nest.runs,
            nest.strides,
            inside
            * nest.touched[:, -1]
            / np.maximum(nest.touched[:, nest.fitting[0], columns], 1.0),
        ],
        axis=1,
    )
    return list(_in_slots(slog(table), slots(nest)).reshape(SLOTS * len(_ACCESS), -1))


def slots(nest: Nest) -> IntArray:
    """Access described by each slot of each row, int64 (SLOTS, N); -1: none.

    The first existing write comes first, then the reads in program order; of more than fit, those
    with the largest footprint. Further writes, and the read of a reduction's own output, are left
    out.
    """
    accesses, rows = nest.statement.accesses, nest.program.rows
    chosen = np.full((SLOTS, rows), -1, np.int64)
    written = {a.buffer for a in accesses if a.write}
    reads = [i for i, a in enumerate(accesses) if a.buffer not in written]
    for index in [i for i, a in enumerate(accesses) if a.write]:
        chosen[0] = np.where((chosen[0] < 0) & accesses[index].mask, index, chosen[0])
    if not reads:
        return chosen
    size = np.where([accesses[i].mask for i in reads], nest.touched[reads, 0], -1)
    rank = np.argsort(np.argsort(-size, axis=0, kind="stable"), axis=0, kind="stable")
    selected = (size >= 0) & (rank < SLOTS - 1)
    place = np.cumsum(selected, axis=0)
    for order, index in enumerate(reads):
        row = np.flatnonzero(selected[order])
        chosen[place[order, row], row] = index
    return chosen


def _in_slots(table: FloatArray, chosen: IntArray) -> FloatArray:
    """Columns (A, C, N) of accesses into slots: float64 (SLOTS, C, N)."""
    out = np.zeros((len(chosen), *table.shape[1:]))
    for slot, index in enumerate(chosen):
        row = np.flatnonzero(index >= 0)
        out[slot][:, row] = table[index[row], :, row].T
    return out


def _written(nest: Nest) -> FloatArray:
    """Bytes allocated for the statement's output, float64 (N,)."""
    total = np.zeros(nest.program.rows)
    for access in nest.statement.accesses:
        if access.write:
            buffer = nest.program.buffers[access.buffer]
            total = np.where(access.mask, buffer.alloc * buffer.itemsize, total)
    return total
