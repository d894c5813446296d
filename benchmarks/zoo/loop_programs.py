"""Programs in TVMScript without any block, and those that call what TVM cannot look into."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from benchmarks.zoo.program import Program, tir

_LOOPS: dict[str, Program] = {
    "loops": tir(
        "A 16, B 16",
        """
        for i in range(16):
            B[i] = A[i] + T.float32(1)
        """,
        lambda a: a + 1,
    ),
    "loops_2d": tir(
        "A 6 7, B 7 6",
        """
        for i in range(6):
            for j in range(7):
                B[j, i] = A[i, j]
        """,
        lambda a: a.T,
    ),
    "loops_sum": tir(
        "A 5 9, B 5",
        """
        for i in range(5):
            B[i] = T.float32(0)
            for k in range(9):
                B[i] = B[i] + A[i, k]
        """,
        lambda a: a.sum(1),
    ),
    "loops_product": tir(
        "A 6 7, B 7 5, C 6 5",
        """
        for i, j in T.grid(6, 5):
            C[i, j] = T.float32(0)
            for k in range(7):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
        """,
        lambda a, b: a @ b,
    ),
    "loops_parallel": tir(
        "A 16 8, B 16 8",
        """
        for i in T.parallel(16):
            for j in T.vectorized(8):
                B[i, j] = A[i, j] * T.float32(2)
        """,
        lambda a: a * 2,
    ),
    "loops_unrolled": tir(
        "A 8 4, B 8",
        """
        for i in range(8):
            B[i] = T.float32(0)
            for k in T.unroll(4):
                B[i] = B[i] + A[i, k]
        """,
        lambda a: a.sum(1),
    ),
    "loops_scan": tir(
        "A 12, B 12",
        """
        B[0] = A[0]
        for i in range(11):
            B[i + 1] = B[i] + A[i + 1]
        """,
        lambda a: a.cumsum(),
    ),
    "loops_recurrence": tir(
        "A 9 4, B 9 4",
        """
        for t in range(9):
            for j in range(4):
                B[t, j] = A[t, j]
                if t > 0:
                    B[t, j] = B[t, j] + T.float32(0.5) * B[t - 1, j]
        """,
        lambda a: np.stack([sum(0.5 ** (t - s) * a[s] for s in range(t + 1)) for t in range(9)]),
    ),
    "loops_if": tir(
        "A 16, B 16",
        """
        for i in range(16):
            if A[i] > T.float32(0):
                B[i] = A[i]
            else:
                B[i] = -A[i]
        """,
        np.abs,
    ),
    "loops_offset": tir(
        "A 16, B 16",
        """
        for i in range(16):
            B[i] = T.float32(0)
        for i in T.serial(3, 11):
            B[i] = A[i]
        """,
        lambda a: np.where((np.arange(16) > 2) & (np.arange(16) < 11), a, 0),
    ),
    "loops_triangle": tir(
        "A 9 9, B 9",
        """
        for i in range(9):
            B[i] = T.float32(0)
            for j in range(i + 1):
                B[i] = B[i] + A[i, j]
        """,
        lambda a: np.tril(a).sum(1),
    ),
    "loops_extents_from_data": tir(
        "N 5 int32, A 5 4, B 5",
        """
        for i in range(5):
            B[i] = T.float32(0)
            for j in range(N[i]):
                B[i] = B[i] + A[i, j]
        """,
        lambda n, a: np.array([a[i, : n[i]].sum() for i in range(5)]),
    ),
    "loops_histogram": tir(
        "A 40 int32, B 4 int32",
        """
        for i in range(4):
            B[i] = 0
        for i in range(40):
            B[A[i]] = B[A[i]] + 1
        """,
        lambda a: np.bincount(a, minlength=4),
    ),
    "loops_in_place": tir(
        "A 16",
        """
        for i in range(16):
            A[i] = A[i] * T.float32(3)
        """,
        lambda a: a * 3,
        updates=True,
    ),
    "loops_buffer": tir(
        "A 16, B 16",
        """
        C = T.alloc_buffer((16,), "float32")
        for i in range(16):
            C[i] = A[i] + T.float32(1)
        for i in range(16):
            B[i] = C[15 - i]
        """,
        lambda a: a[::-1] + 1,
    ),
    "no_loop": tir("A 1, B 1", "B[0] = A[0] + T.float32(1)", lambda a: a + 1),
    "no_loop_scalar": tir(
        'A: T.Buffer((), "float32"), B: T.Buffer((), "float32")',
        "B[()] = A[()] * T.float32(2)",
        lambda a: a * 2,
    ),
    "nothing": tir("A 4, B 4", "T.evaluate(0)", lambda a, b: b, updates=True),
    "loops_none": tir(
        "A 0, B 0",
        """
        for i in range(0):
            B[i] = A[i]
        """,
        lambda a: a,
    ),
    "loops_long_numbers": tir(
        "A 8 int64, B 8 int64",
        """
        for i in T.serial(T.int64(8)):
            B[i] = A[i] * T.int64(4294967296) + T.int64(1)
        """,
        lambda a: a * 4294967296 + 1,
    ),
}


_CALLS: dict[str, Program] = {
    "call_extern": tir(
        "A 8, B 8",
        """
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.call_pure_extern("float32", "fabsf", A[vi])
        """,
        np.abs,
    ),
    "call_extern_loops": tir(
        "A 8, B 8",
        """
        for i in range(8):
            B[i] = T.call_extern("float32", "fabsf", A[i])
        """,
        np.abs,
    ),
    "call_llvm": tir(
        "A 8, B 8",
        """
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.call_llvm_pure_intrin("float32", "llvm.fabs", A[vi])
        """,
        np.abs,
    ),
    "call_packed": tir(
        "A 3 8, B 3 8 int32",
        """
        with T.sblock("sort"):
            T.reads(A[0:3, 0:8])
            T.writes(B[0:3, 0:8])
            T.evaluate(T.call_packed(
                "tvm.contrib.sort.argsort",
                T.tvm_stack_make_array(
                    A.data, T.tvm_stack_make_shape(3, 8), 0, 2, T.float32(0), 0),
                T.tvm_stack_make_array(
                    B.data, T.tvm_stack_make_shape(3, 8), 0, 2, 0, 0),
                1, True))
        """,
        lambda a: a.argsort(1),
    ),
    "call_packed_between": tir(
        "A 3 8, B 3 8 int32",
        """
        C = T.sblock_alloc_buffer((3, 8))
        for i, j in T.grid(3, 8):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = -A[vi, vj]
        with T.sblock("sort"):
            T.reads(C[0:3, 0:8])
            T.writes(B[0:3, 0:8])
            T.evaluate(T.call_packed(
                "tvm.contrib.sort.argsort",
                T.tvm_stack_make_array(
                    C.data, T.tvm_stack_make_shape(3, 8), 0, 2, T.float32(0), 0),
                T.tvm_stack_make_array(
                    B.data, T.tvm_stack_make_shape(3, 8), 0, 2, 0, 0),
                1, True))
        """,
        lambda a: (-a).argsort(1),
    ),
    "popcount": tir(
        "A 8 int32, B 8 int32",
        """
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.popcount(A[vi])
        """,
        lambda a: np.array([int(x).bit_count() for x in a]),
        draw={0: (0, 1000)},
    ),
    "likely": tir(
        "A 8, B 8",
        """
        for i in range(8):
            if T.likely(i < 8):
                B[i] = A[i]
        """,
        lambda a: a,
    ),
}
"""Calls of what TVM cannot look into."""


LOOP_PROGRAMS: Mapping[str, Program] = MappingProxyType({**_LOOPS, **_CALLS})
"""Program by name."""
