"""Small hand-made `SketchProgram`s: a tiled GEMM and an element-wise program, N rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.symbolic.program import (
    Access,
    Buffer,
    Loop,
    LoopKind,
    Role,
    SketchProgram,
    Statement,
)
from pruner_ms.types import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class AffineAccess(Access):
    """An access whose index per dimension is a sum of stride times loop variable.

    Attributes
    ----------
    dims
        Per dimension of the buffer: loop index -> stride, int64 (N,).
    loops
        Loops of the statement.
    shape
        Shape of the buffer, int64 (N,) per dimension.
    """

    buffer: int
    write: bool
    mask: BoolArray
    dims: tuple[Mapping[int, IntArray], ...]
    loops: tuple[Loop, ...]
    shape: tuple[IntArray, ...]

    def footprint(self, level: int) -> IntArray:
        """Product of the intervals of the dimensions, int64 (N,)."""
        total = np.ones_like(self.shape[0])
        for extent in self._extents(level):
            total = total * extent
        return total

    def run(self, level: int) -> IntArray:
        """Contiguous elements, int64 (N,)."""
        extents = self._extents(level)
        run, full_extent = np.ones_like(self.shape[0]), np.ones(len(self.mask), bool)
        for extent, size in zip(extents[::-1], self.shape[::-1], strict=True):
            run = np.where(full_extent, run * extent, run)
            full_extent = full_extent & (extent == size)
        return run

    def stride(self, loop: int) -> IntArray:
        """Elements one step of a loop moves, int64 (N,)."""
        total, row = np.zeros_like(self.shape[0]), np.ones_like(self.shape[0])
        for dim, size in zip(self.dims[::-1], self.shape[::-1], strict=True):
            total = total + row * dim.get(loop, 0)
            row = row * size
        return total

    def _extents(self, level: int) -> list[IntArray]:
        extents = []
        for dim, size in zip(self.dims, self.shape, strict=True):
            extent = np.ones_like(size)
            for loop, stride in dim.items():
                if loop >= level:
                    extent = extent + stride * (self.loops[loop].extent - 1)
            extents.append(np.minimum(extent, size))
        return extents


def tiled_gemm(tiles: IntArray, size: int = 64, glue: bool = False) -> SketchProgram:
    """An initialised, tiled GEMM on a CPU: i0 j0 k0 i1 k1 j1, outer loops parallel.

    Parameters
    ----------
    tiles
        int64 (N, 3): inner tile of i, j and k; each divides `size`.
    size
        Side of the matrices.
    glue
        Whether i0 and j0 were fused by the postprocessor (they stay apart, as the interpreter
        keeps them).
    """
    rows = len(tiles)
    inner = [np.asarray(tiles[:, axis], np.int64) for axis in range(3)]
    outer = [size // tile for tile in inner]
    parallel, vector = LoopKind.PARALLEL, LoopKind.VECTORIZED
    loops = (
        _loop(outer[0], parallel),
        _loop(outer[1], parallel if glue else LoopKind.SERIAL, glued=glue),
        _loop(outer[2], reduction=True),
        _loop(inner[0]),
        _loop(inner[2], reduction=True),
        _loop(inner[1], vector),
    )
    i, j, k = ((0, 3), (1, 5), (2, 4))
    buffers = tuple(_buffer(name, rows, size) for name in ("A", "B", "C"))
    maker = Maker(rows, loops, buffers)
    update = maker.statement(
        Role.COMPUTE,
        [
            maker.access(2, False, (i, j)),
            maker.access(0, False, (i, k)),
            maker.access(1, False, (k, j)),
        ],
        maker.access(2, True, (i, j)),
        {"add": 1, "mul": 1},
    )
    spatial = (loops[0], loops[1], loops[3], loops[5])
    first = Maker(rows, spatial, buffers)
    write = first.access(2, True, ((0, 2), (1, 3)))
    init = first.statement(Role.INIT, [], write, {})
    return SketchProgram(rows, (init, update), buffers, np.ones(rows, bool))


def fused_gemm(tiles: IntArray, size: int = 64) -> SketchProgram:
    """`tiled_gemm(tiles, glue=True)` of one row as the oracle sees it: one parallel loop."""
    gemm = tiled_gemm(tiles, size, glue=True)
    statements = []
    for statement in gemm.statements:
        fused = _loop(statement.loops[0].extent * statement.loops[1].extent, LoopKind.PARALLEL)
        accesses = tuple(FusedAccess(a) for a in statement.accesses)
        statements.append(
            Statement(
                statement.name,
                statement.role,
                (fused, *statement.loops[2:]),
                accesses,
                statement.ops,
                statement.dtype,
                statement.alive,
                statement.unroll,
                statement.reduction,
            )
        )
    return SketchProgram(gemm.rows, tuple(statements), gemm.buffers, gemm.supported)


class FusedAccess(Access):
    """An access under a nest whose first two loops are one."""

    def __init__(self, parts: Access) -> None:
        self.buffer, self.write, self.mask = parts.buffer, parts.write, parts.mask
        self.parts = parts

    def footprint(self, level: int) -> IntArray:
        """As the parts, past the fused loop."""
        return self.parts.footprint(level + 1 if level else 0)

    def run(self, level: int) -> IntArray:
        """As the parts, past the fused loop."""
        return self.parts.run(level + 1 if level else 0)

    def stride(self, loop: int) -> IntArray:
        """As the inner part of the fused loop."""
        return self.parts.stride(loop + 1)


def elementwise(extent: IntArray, lanes: int = 8) -> SketchProgram:
    """B[i] = exp(A[i]) with a parallel outer and a vectorised inner loop; extent int64 (N,)."""
    rows = len(extent)
    length = np.asarray(extent, np.int64)
    loops = (
        _loop(length // lanes, LoopKind.PARALLEL),
        _loop(np.full(rows, lanes), LoopKind.VECTORIZED),
    )
    buffers = tuple(Buffer(n, "float32", "global", True, (length,), length) for n in ("A", "B"))
    maker = Maker(rows, loops, buffers)
    read, write = maker.access(0, False, ((0, 1),)), maker.access(1, True, ((0, 1),))
    statement = maker.statement(Role.COMPUTE, [read], write, {"special": 1})
    return SketchProgram(rows, (statement,), buffers, np.ones(rows, bool))


@dataclass(frozen=True, eq=False)
class Maker:
    """Makes accesses and statements of one nest."""

    rows: int
    loops: tuple[Loop, ...]
    buffers: tuple[Buffer, ...]

    def access(self, buffer: int, write: bool, axes: Sequence[tuple[int, int]]) -> AffineAccess:
        """An access indexed by (outer loop, inner loop) pairs, one per dimension."""
        dims = tuple(
            {outer: self.loops[inner].extent, inner: np.ones(self.rows, np.int64)}
            for outer, inner in axes
        )
        mask = np.ones(self.rows, bool)
        return AffineAccess(buffer, write, mask, dims, self.loops, self.buffers[buffer].shape)

    def statement(
        self, role: Role, reads: list[AffineAccess], write: AffineAccess, ops: Mapping[str, int]
    ) -> Statement:
        """A statement over the nest that exists in every row."""
        alive, unroll = np.ones(self.rows, bool), np.full(self.rows, 16, np.int64)
        reduction = any(loop.reduction for loop in self.loops)
        accesses = (*reads, write)
        counts = {kind: np.full(self.rows, count, np.int64) for kind, count in ops.items()}
        return Statement(
            role.value, role, self.loops, accesses, counts, "float32", alive, unroll, reduction
        )


def _loop(
    extent: IntArray, kind: LoopKind = LoopKind.SERIAL, reduction: bool = False, glued: bool = False
) -> Loop:
    codes = np.full(len(extent), kind, np.int64)
    return Loop(extent, codes, reduction, (extent > 1) & (not glued))


def _buffer(name: str, rows: int, size: int) -> Buffer:
    side = np.full(rows, size, np.int64)
    return Buffer(name, "float32", "global", True, (side, side), side * side)
