"""Hand-made `SketchProgram`s: a tiny affine access, a GEMM on a CPU and one on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pruner_ms.draft.nest import nest_of
from pruner_ms.symbolic.program import (
    Access,
    Buffer,
    GpuFacts,
    Loop,
    LoopKind,
    Role,
    SketchProgram,
    Statement,
)

OPS = ("add", "mul", "div", "cmp", "special", "int", "guard")
ONE = np.ones(1, np.int64)


class Affine(Access):
    """Access whose dimensions are sums of `stride * loop`; extents are arrays (P, N)."""

    def __init__(self, buffer, write, dims, shape, extents):
        self.buffer, self.write = buffer, write
        self.mask = np.ones(extents.shape[1], np.bool_)
        self._dims, self._shape, self._extents = dims, shape, extents

    def _widths(self, level):
        for dim, size in zip(self._dims, self._shape, strict=True):
            width = np.ones(self._extents.shape[1], np.int64)
            for loop, stride in dim.items():
                if loop >= level:
                    width = width + stride * (self._extents[loop] - 1)
            yield np.minimum(width, size), size

    def footprint(self, level):
        return np.prod([w for w, _ in self._widths(level)], axis=0)

    def run(self, level):
        total, full_width = 1, True
        for width, size in reversed(list(self._widths(level))):
            total = np.where(full_width, total * width, total)
            full_width = full_width & (width == size)
        return total

    def stride(self, loop):
        total, inner = np.zeros(self._extents.shape[1], np.int64), 1
        for dim, size in zip(reversed(self._dims), reversed(self._shape), strict=True):
            if loop in dim:
                total = total + dim[loop] * inner
            inner = inner * size
        return total


def loops_of(extents, kinds, reductions):
    return tuple(
        Loop(e, np.full(len(e), int(k), np.int8), r, np.ones(len(e), np.bool_))
        for e, k, r in zip(extents, kinds, reductions, strict=True)
    )


def buffer(name, shape, rows, scope="global", dtype="float32"):
    columns = tuple(np.full(rows, s) for s in shape)
    return Buffer(name, dtype, scope, True, columns, np.full(rows, int(np.prod(shape))))


def ops(rows, **counts):
    return {kind: np.full(rows, counts.get(kind, 0)) for kind in OPS}


def gemm_cpu(
    tiles: Sequence[Sequence[int]], size: int = 64, unroll: int = 0, ops_of: str = "float32"
) -> SketchProgram:
    """Rows of (parallel i0, j0, k0, i1, k1, vectorised j1): C[i, j] += A[i, k] * B[k, j]."""
    i0, j0, k0, i1, k1, j1 = np.asarray(tiles, np.int64).T
    kinds = (LoopKind.PARALLEL, LoopKind.SERIAL, *[LoopKind.SERIAL] * 3, LoopKind.VECTORIZED)
    extents = np.stack([i0, j0, k0, i1, k1, j1])
    rows = extents.shape[1]
    i = {0: i1, 3: np.ones(rows, np.int64)}
    j = {1: j1, 5: np.ones(rows, np.int64)}
    k = {2: k1, 4: np.ones(rows, np.int64)}
    shape = (size, size)
    accesses = (
        Affine(2, False, (i, j), shape, extents),
        Affine(0, False, (i, k), shape, extents),
        Affine(1, False, (k, j), shape, extents),
        Affine(2, True, (i, j), shape, extents),
    )
    statement = Statement(
        "C_update",
        Role.COMPUTE,
        loops_of(extents, kinds, (False, False, True, False, True, False)),
        accesses,
        ops(rows, add=1, mul=1),
        ops_of,
        np.ones(rows, np.bool_),
        np.full(rows, unroll),
        True,
    )
    buffers = tuple(buffer(n, shape, rows) for n in "ABC")
    return SketchProgram(rows, (statement,), buffers, np.ones(rows, np.bool_))


def gemm_gpu(tiles: Sequence[Sequence[int]], size: int = 256) -> SketchProgram:
    """Rows of (block i, block j, thread i, thread j, i, j, k0, k1), operands in shared memory."""
    bi, bj, ti, tj, ri, rj, k0, k1 = np.asarray(tiles, np.int64).T
    one = np.ones_like(bi)
    extents = np.stack([bi, bj, ti, tj, k0, ri, k1, rj])
    kinds = (
        LoopKind.BLOCK,
        LoopKind.BLOCK,
        LoopKind.THREAD,
        LoopKind.THREAD,
        *[LoopKind.SERIAL] * 4,
    )
    rows, shape = len(bi), (size, size)
    i = {0: ti * ri, 2: ri, 5: one}
    j = {1: tj * rj, 3: rj, 7: one}
    k = {4: k1, 6: one}
    update = Statement(
        "C_update",
        Role.COMPUTE,
        loops_of(extents, kinds, (False,) * 4 + (True, False, True, False)),
        (
            Affine(4, False, (i, j), shape, extents),
            Affine(2, False, (i, k), shape, extents),
            Affine(3, False, (k, j), shape, extents),
            Affine(4, True, (i, j), shape, extents),
        ),
        ops(rows, add=1, mul=1),
        "float32",
        np.ones(rows, np.bool_),
        np.zeros(rows, np.int64),
        True,
    )
    copy_extents = np.stack([bi, bj, k0, ti * ri, k1])
    copy_kinds = (LoopKind.BLOCK, LoopKind.BLOCK, LoopKind.SERIAL, LoopKind.THREAD, LoopKind.SERIAL)
    ci, ck = {0: ti * ri, 3: one}, {2: k1, 4: one}
    load = Statement(
        "A_shared",
        Role.LOAD,
        loops_of(copy_extents, copy_kinds, (False, False, True, False, False)),
        (
            Affine(0, False, (ci, ck), shape, copy_extents),
            Affine(2, True, (ci, ck), shape, copy_extents),
        ),
        ops(rows),
        "float32",
        np.ones(rows, np.bool_),
        np.zeros(rows, np.int64),
        False,
    )
    tile_a, tile_b = ti * ri * k1, tj * rj * k1
    shared = [
        Buffer("A_shared", "float32", "shared", False, (ti * ri, k1), tile_a),
        Buffer("B_shared", "float32", "shared", False, (k1, tj * rj), tile_b),
        Buffer("C_local", "float32", "local", False, (ri, rj), ri * rj),
    ]
    buffers = (buffer("A", shape, rows), buffer("B", shape, rows), *shared)
    threads = ti * tj
    facts = GpuFacts(
        threads,
        one,
        bi * bj,
        4 * (tile_a + tile_b),
        4 * ri * rj,
        (threads <= 1024) & (threads >= 32),
        one,
    )
    return SketchProgram(rows, (load, update), buffers, np.ones(rows, np.bool_), facts)


def copied(loops, source, tile, width, guard=0, unroll=0, dtype="float32"):
    """The nest of a copy to shared memory, and its reads and writes.

    Parameters
    ----------
    loops
        Pairs of an extent and a kind; "sum" is a serial loop over the sums.
    source, tile
        Strides of the loops in rows and columns, of the matrix that is read and of the tile.
    width
        Columns of the tile.
    guard, unroll
        Comparisons of places, and how much is unrolled.
    """
    extents = np.array([[extent] for extent, _ in loops])
    nested = tuple(
        Loop(
            ONE * extent,
            np.full(1, LoopKind.SERIAL if kind == "sum" else kind, np.int8),
            kind == "sum",
            ONE > 0,
            "threadIdx.x" if kind == LoopKind.THREAD else "",
        )
        for extent, kind in loops
    )
    shapes = ((1024, 1024), (1024, width))
    accesses = tuple(
        Affine(
            n, n == 1, tuple({p: ONE * s for p, s in dim.items()} for dim in dims), shape, extents
        )
        for n, (dims, shape) in enumerate(zip((source, tile), shapes, strict=True))
    )
    statement = Statement(
        "s",
        Role.LOAD,
        nested,
        accesses,
        ops(1, guard=guard),
        "float32",
        ONE > 0,
        ONE * unroll,
        False,
    )
    scopes = ("global", "shared")
    buffers = tuple(buffer(s, shape, 1, s, dtype) for s, shape in zip(scopes, shapes, strict=True))
    nest = nest_of(statement, SketchProgram(1, (statement,), buffers, ONE > 0))
    return nest, nest.touches


@pytest.fixture(scope="session")
def cpu_program() -> Callable[..., SketchProgram]:
    return gemm_cpu


@pytest.fixture(scope="session")
def gpu_program() -> Callable[..., SketchProgram]:
    return gemm_gpu
