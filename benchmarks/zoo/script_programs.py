"""Programs as users write them in TVMScript: with blocks of every kind, and without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.zoo.program import Program
from pruner_ms.tvm_compat.script import parsed

_HEAD = "@T.prim_func\ndef main({}):\n"


def _text(parameters: str, body: str) -> str:
    """The function of parameters such as `A 4 8, B 4 int32`, or of TVMScript's own words."""
    written = []
    for one in parameters.split(", "):
        name, *rest = one.split(" ")
        if ":" in one or not rest:
            written.append(one)
            continue
        dtype = rest.pop() if not rest[-1].isdigit() else "float32"
        dims = [d for d in rest if d.isdigit()]
        shape = "(" + "".join(f"{d}, " for d in dims) + ")"
        written.append(f'{name}: T.Buffer({shape}, "{dtype}")')
    lines = [line for line in body.splitlines() if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return _HEAD.format(", ".join(written)) + "".join(f"    {line[margin:]}\n" for line in lines)


def _made(parameters: str, body: str) -> Any:
    return parsed(_text(parameters, body))


def _tir(
    parameters: str, body: str, reference: Callable[..., Any], results: int = 1, **more: Any
) -> Program:
    more.setdefault("writes", tuple(range(-results, 0)))
    return Program(partial(_made, parameters, body), reference, **more)


def _loops(*dtype: str) -> dict[str, Program]:
    """No block at all."""
    del dtype
    return {
        "loops": _tir(
            "A 16, B 16",
            """
            for i in range(16):
                B[i] = A[i] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "loops_2d": _tir(
            "A 6 7, B 7 6",
            """
            for i in range(6):
                for j in range(7):
                    B[j, i] = A[i, j]
            """,
            lambda a: a.T,
        ),
        "loops_sum": _tir(
            "A 5 9, B 5",
            """
            for i in range(5):
                B[i] = T.float32(0)
                for k in range(9):
                    B[i] = B[i] + A[i, k]
            """,
            lambda a: a.sum(1),
        ),
        "loops_product": _tir(
            "A 6 7, B 7 5, C 6 5",
            """
            for i, j in T.grid(6, 5):
                C[i, j] = T.float32(0)
                for k in range(7):
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]
            """,
            lambda a, b: a @ b,
        ),
        "loops_parallel": _tir(
            "A 16 8, B 16 8",
            """
            for i in T.parallel(16):
                for j in T.vectorized(8):
                    B[i, j] = A[i, j] * T.float32(2)
            """,
            lambda a: a * 2,
        ),
        "loops_unrolled": _tir(
            "A 8 4, B 8",
            """
            for i in range(8):
                B[i] = T.float32(0)
                for k in T.unroll(4):
                    B[i] = B[i] + A[i, k]
            """,
            lambda a: a.sum(1),
        ),
        "loops_scan": _tir(
            "A 12, B 12",
            """
            B[0] = A[0]
            for i in range(11):
                B[i + 1] = B[i] + A[i + 1]
            """,
            lambda a: a.cumsum(),
        ),
        "loops_recurrence": _tir(
            "A 9 4, B 9 4",
            """
            for t in range(9):
                for j in range(4):
                    B[t, j] = A[t, j]
                    if t > 0:
                        B[t, j] = B[t, j] + T.float32(0.5) * B[t - 1, j]
            """,
            lambda a: np.stack(
                [sum(0.5 ** (t - s) * a[s] for s in range(t + 1)) for t in range(9)]
            ),
        ),
        "loops_if": _tir(
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
        "loops_offset": _tir(
            "A 16, B 16",
            """
            for i in range(16):
                B[i] = T.float32(0)
            for i in T.serial(3, 11):
                B[i] = A[i]
            """,
            lambda a: np.where((np.arange(16) > 2) & (np.arange(16) < 11), a, 0),
        ),
        "loops_triangle": _tir(
            "A 9 9, B 9",
            """
            for i in range(9):
                B[i] = T.float32(0)
                for j in range(i + 1):
                    B[i] = B[i] + A[i, j]
            """,
            lambda a: np.tril(a).sum(1),
        ),
        "loops_extents_from_data": _tir(
            "N 5 int32, A 5 4, B 5",
            """
            for i in range(5):
                B[i] = T.float32(0)
                for j in range(N[i]):
                    B[i] = B[i] + A[i, j]
            """,
            lambda n, a: np.array([a[i, : n[i]].sum() for i in range(5)]),
        ),
        "loops_histogram": _tir(
            "A 40 int32, B 4 int32",
            """
            for i in range(4):
                B[i] = 0
            for i in range(40):
                B[A[i]] = B[A[i]] + 1
            """,
            lambda a: np.bincount(a, minlength=4),
        ),
        "loops_in_place": _tir(
            "A 16",
            """
            for i in range(16):
                A[i] = A[i] * T.float32(3)
            """,
            lambda a: a * 3,
            updates=True,
        ),
        "loops_buffer": _tir(
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
        "no_loop": _tir("A 1, B 1", "B[0] = A[0] + T.float32(1)", lambda a: a + 1),
        "no_loop_scalar": _tir(
            'A: T.Buffer((), "float32"), B: T.Buffer((), "float32")',
            "B[()] = A[()] * T.float32(2)",
            lambda a: a * 2,
        ),
        "nothing": _tir("A 4, B 4", "T.evaluate(0)", lambda a, b: b, updates=True),
        "loops_none": _tir(
            "A 0, B 0",
            """
            for i in range(0):
                B[i] = A[i]
            """,
            lambda a: a,
        ),
        "loops_long_numbers": _tir(
            "A 8 int64, B 8 int64",
            """
            for i in T.serial(T.int64(8)):
                B[i] = A[i] * T.int64(4294967296) + T.int64(1)
            """,
            lambda a: a * 4294967296 + 1,
        ),
    }


def _blocks() -> dict[str, Program]:
    """Blocks as most people write them, and those that a scheduler must leave as they are."""
    return {
        "block": _tir(
            "A 8 9, B 8 9",
            """
            for i, j in T.grid(8, 9):
                with T.sblock("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
            """,
            lambda a: a * 2,
        ),
        "block_product": _tir(
            "A 6 7, B 7 5, C 6 5",
            """
            for i, j, k in T.grid(6, 5, 7):
                with T.sblock("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
            """,
            lambda a, b: a @ b,
        ),
        "update_without_init": _tir(
            "A 6 7, B 7 5, C 6 5",
            """
            for i, j, k in T.grid(6, 5, 7):
                with T.sblock("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
            """,
            lambda a, b, c: c + a @ b,
            updates=True,
        ),
        "init_in_a_block_of_its_own": _tir(
            "A 6 7, C 6",
            """
            for i in range(6):
                with T.sblock("zero"):
                    vi = T.axis.spatial(6, i)
                    C[vi] = T.float32(0)
            for i, k in T.grid(6, 7):
                with T.sblock("add"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + A[vi, vk]
            """,
            lambda a: a.sum(1),
        ),
        "in_place": _tir(
            "A 8 9",
            """
            for i, j in T.grid(8, 9):
                with T.sblock("A"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    A[vi, vj] = A[vi, vj] + T.float32(1)
            """,
            lambda a: a + 1,
            updates=True,
        ),
        "written_twice": _tir(
            "A 8, B 8",
            """
            for i in range(8):
                with T.sblock("first"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = A[vi] + T.float32(1)
            for i in range(8):
                with T.sblock("second"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = B[vi] * A[vi]
            """,
            lambda a: (a + 1) * a,
        ),
        "two_results": _tir(
            "A 8 9, B 8 9, C 8",
            """
            for i, j in T.grid(8, 9):
                with T.sblock("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = T.exp(A[vi, vj])
            for i, j in T.grid(8, 9):
                with T.sblock("C"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        C[vi] = T.float32(-1e30)
                    C[vi] = T.max(C[vi], A[vi, vj])
            """,
            lambda a: (np.exp(a), a.max(1)),
            2,
        ),
        "two_stores_in_a_block": _tir(
            "A 8, B 8, C 8",
            """
            for i in range(8):
                with T.sblock("both"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = A[vi] + T.float32(1)
                    C[vi] = A[vi] - T.float32(1)
            """,
            lambda a: (a + 1, a - 1),
            2,
        ),
        "opaque": _tir(
            "A 8 9, B 8 9",
            """
            with T.sblock("whole"):
                T.reads(A[0:8, 0:9])
                T.writes(B[0:8, 0:9])
                for i, j in T.grid(8, 9):
                    B[i, j] = A[i, j] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "opaque_by_rows": _tir(
            "A 8 9, B 8",
            """
            for i in range(8):
                with T.sblock("row"):
                    vi = T.axis.spatial(8, i)
                    T.reads(A[vi, 0:9])
                    T.writes(B[vi])
                    B[vi] = T.float32(0)
                    for k in range(9):
                        B[vi] = B[vi] + A[vi, k]
            """,
            lambda a: a.sum(1),
        ),
        "nested": _tir(
            "A 8 12, B 8 12",
            """
            for i in range(8):
                with T.sblock("outer"):
                    vi = T.axis.spatial(8, i)
                    T.reads(A[vi, 0:12])
                    T.writes(B[vi, 0:12])
                    C = T.sblock_alloc_buffer((12,))
                    for j in range(12):
                        with T.sblock("inner"):
                            vj = T.axis.spatial(12, j)
                            C[vj] = A[vi, vj] * T.float32(2)
                    for j in range(12):
                        with T.sblock("last"):
                            vj = T.axis.spatial(12, j)
                            B[vi, vj] = C[vj] + T.float32(1)
            """,
            lambda a: a * 2 + 1,
        ),
        "predicate": _tir(
            "A 10, B 10",
            """
            for i, j in T.grid(3, 4):
                with T.sblock("B"):
                    vi = T.axis.spatial(10, i * 4 + j)
                    T.where(i * 4 + j < 10)
                    B[vi] = A[vi] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "predicate_of_data": _tir(
            "A 10, B 10",
            """
            for i in range(10):
                with T.sblock("B"):
                    vi = T.axis.spatial(10, i)
                    if A[vi] > T.float32(0):
                        B[vi] = A[vi]
            """,
            lambda a, b: np.where(a > 0, a, b),
            updates=True,
        ),
        "branches": _tir(
            "A 10, B 10",
            """
            for i in range(10):
                with T.sblock("B"):
                    vi = T.axis.spatial(10, i)
                    if vi % 2 == 0:
                        B[vi] = A[vi]
                    else:
                        B[vi] = -A[vi]
            """,
            lambda a: a * np.where(np.arange(10) % 2, -1, 1),
        ),
        "select": _tir(
            "A 10, B 10",
            """
            for i in range(10):
                with T.sblock("B"):
                    vi = T.axis.spatial(10, i)
                    B[vi] = T.if_then_else(vi < 3, A[vi], T.Select(A[vi] > T.float32(0), A[vi], T.float32(0)))
            """,
            lambda a: np.where(np.arange(10) < 3, a, np.maximum(a, 0)),
        ),
        "while": _tir(
            "A 10 int32, B 10 int32",
            """
            for i in range(10):
                with T.sblock("B"):
                    vi = T.axis.spatial(10, i)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = A[vi]
                    while B[vi] > 3:
                        B[vi] = B[vi] - 3
            """,
            lambda a: a - 3 * ((a - 1) // 3) * (a > 3),
            draw={0: (0, 40)},
        ),
        "scan_in_a_block": _tir(
            "A 4 9, B 4 9",
            """
            for i in range(4):
                with T.sblock("scan"):
                    vi = T.axis.spatial(4, i)
                    T.reads(A[vi, 0:9], B[vi, 0:9])
                    T.writes(B[vi, 0:9])
                    B[vi, 0] = A[vi, 0]
                    for j in range(8):
                        B[vi, j + 1] = B[vi, j] + A[vi, j + 1]
            """,
            lambda a: a.cumsum(1),
        ),
        "scan_axis": _tir(
            "A 9 4, B 9 4",
            """
            for t, j in T.grid(9, 4):
                with T.sblock("step"):
                    vt = T.axis.opaque(9, t)
                    vj = T.axis.spatial(4, j)
                    B[vt, vj] = A[vt, vj] + T.if_then_else(vt > 0, B[T.max(vt - 1, 0), vj], T.float32(0))
            """,
            lambda a: a.cumsum(0),
        ),
        "gather_rows": _tir(
            "A 9 4, I 5 int32, B 5 4",
            """
            for i, j in T.grid(5, 4):
                with T.sblock("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[0:9, vj], I[vi])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[I[vi], vj]
            """,
            lambda a, i: a[i],
            draw={1: (0, 9)},
        ),
        "scatter_rows": _tir(
            "A 5 4, I 5 int32, B 9 4",
            """
            for i, j in T.grid(9, 4):
                with T.sblock("zero"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = T.float32(0)
            for i, j in T.grid(5, 4):
                with T.sblock("add"):
                    vi = T.axis.opaque(5, i)
                    vj = T.axis.spatial(4, j)
                    T.reads(A[vi, vj], I[vi], B[0:9, vj])
                    T.writes(B[0:9, vj])
                    B[I[vi], vj] = B[I[vi], vj] + A[vi, vj]
            """,
            lambda a, i: np.eye(9, dtype="float32")[i].T @ a,
            draw={1: (0, 9)},
        ),
        "sub_buffer": _tir(
            "A 8 9, B 8 9",
            """
            for i in range(8):
                with T.sblock("B"):
                    vi = T.axis.spatial(8, i)
                    T.reads(A[vi, 0:9])
                    T.writes(B[vi, 0:9])
                    row = T.match_buffer(B[vi, 0:9], (1, 9), offset_factor=1)
                    for j in range(9):
                        row[0, j] = A[vi, j] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "same_names": _tir(
            "A 8, C 8",
            """
            B = T.sblock_alloc_buffer((8,))
            for i in range(8):
                with T.sblock("x"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = A[vi] + T.float32(1)
            for i in range(8):
                with T.sblock("x"):
                    vi = T.axis.spatial(8, i)
                    C[vi] = B[vi] * B[vi]
            """,
            lambda a: (a + 1) ** 2,
        ),
        "two_dtypes": _tir(
            "A 6 8 int8, S 6, B 6 8",
            """
            for i, j in T.grid(6, 8):
                with T.sblock("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = T.Cast("float32", A[vi, vj]) * S[vi]
            """,
            lambda a, s: a * s[:, None],
        ),
        "wraps_around": _tir(
            "A 16 uint8, B 16 int8, C 16 uint8, D 16 int8",
            """
            for i in range(16):
                with T.sblock("C"):
                    vi = T.axis.spatial(16, i)
                    C[vi] = A[vi] * T.uint8(3)
            for i in range(16):
                with T.sblock("D"):
                    vi = T.axis.spatial(16, i)
                    D[vi] = B[vi] + B[vi]
            """,
            lambda a, b: (a * np.uint8(3), b + b),
            2,
        ),
        "divisions": _tir(
            "A 16 int32, B 16 int32, C 16 int32",
            """
            for i in range(16):
                with T.sblock("B"):
                    vi = T.axis.spatial(16, i)
                    B[vi] = T.floordiv(A[vi], 7) + T.floormod(A[vi], 5)
            for i in range(16):
                with T.sblock("C"):
                    vi = T.axis.spatial(16, i)
                    C[vi] = T.truncdiv(A[vi], 7) + T.truncmod(A[vi], 5)
            """,
            lambda a: (a // 7 + a % 5, np.fix(a / 7) + np.fmod(a, 5)),
            2,
            draw={0: (-60, 60)},
        ),
        "infinite_numbers": _tir(
            "A 8, B 8",
            """
            for i in range(8):
                with T.sblock("B"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = T.if_then_else(vi == 3, T.infinity("float32"), T.min(A[vi], T.infinity("float32")))
            """,
            lambda a: np.where(np.arange(8) == 3, np.inf, a),
        ),
        "three_levels": _tir(
            "A 4 6, C 4 6",
            """
            B = T.sblock_alloc_buffer((4, 6))
            S = T.sblock_alloc_buffer((4,))
            for i, j in T.grid(4, 6):
                with T.sblock("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = T.exp(A[vi, vj])
            for i, j in T.grid(4, 6):
                with T.sblock("S"):
                    vi, vj = T.axis.remap("SR", [i, j])
                    with T.init():
                        S[vi] = T.float32(0)
                    S[vi] = S[vi] + B[vi, vj]
            for i, j in T.grid(4, 6):
                with T.sblock("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] / S[vi]
            """,
            lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True),
        ),
        "loops_and_blocks": _tir(
            "A 8, B 8, C 8",
            """
            for i in range(8):
                B[i] = A[i] + T.float32(1)
            for i in range(8):
                with T.sblock("C"):
                    vi = T.axis.spatial(8, i)
                    C[vi] = B[vi] * T.float32(2)
            """,
            lambda a: (a + 1, (a + 1) * 2),
            2,
        ),
        "scalar_block": _tir(
            'A 9, B: T.Buffer((), "float32")',
            """
            for k in range(9):
                with T.sblock("B"):
                    vk = T.axis.reduce(9, k)
                    with T.init():
                        B[()] = T.float32(0)
                    B[()] = B[()] + A[vk]
            """,
            lambda a: a.sum(),
        ),
        "equal_arguments": _tir(
            "A 8, B 8, C 8",
            """
            for i in range(8):
                with T.sblock("C"):
                    vi = T.axis.spatial(8, i)
                    C[vi] = A[vi] * B[7 - vi]
            """,
            lambda a, b: a * b[::-1],
            equal=(0, 1),
        ),
        "named_root": _tir(
            "A 8, B 8",
            """
            for i in range(8):
                with T.sblock("root"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = A[vi] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "other_root": _tir(
            "A 8, B 8",
            """
            with T.sblock("outermost"):
                T.reads()
                T.writes()
                for i in range(8):
                    with T.sblock("B"):
                        vi = T.axis.spatial(8, i)
                        B[vi] = A[vi] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
    }


def _calls() -> dict[str, Program]:
    """Calls of what TVM cannot look into."""
    return {
        "call_extern": _tir(
            "A 8, B 8",
            """
            for i in range(8):
                with T.sblock("B"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = T.call_pure_extern("float32", "fabsf", A[vi])
            """,
            np.abs,
        ),
        "call_extern_loops": _tir(
            "A 8, B 8",
            """
            for i in range(8):
                B[i] = T.call_extern("float32", "fabsf", A[i])
            """,
            np.abs,
        ),
        "call_llvm": _tir(
            "A 8, B 8",
            """
            for i in range(8):
                with T.sblock("B"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = T.call_llvm_pure_intrin("float32", "llvm.fabs", A[vi])
            """,
            np.abs,
        ),
        "call_packed": _tir(
            "A 3 8, B 3 8 int32",
            """
            with T.sblock("sort"):
                T.reads(A[0:3, 0:8])
                T.writes(B[0:3, 0:8])
                T.evaluate(T.call_packed(
                    "tvm.contrib.sort.argsort",
                    T.tvm_stack_make_array(A.data, T.tvm_stack_make_shape(3, 8), 0, 2, T.float32(0), 0),
                    T.tvm_stack_make_array(B.data, T.tvm_stack_make_shape(3, 8), 0, 2, 0, 0),
                    1, True))
            """,
            lambda a: a.argsort(1),
        ),
        "call_packed_between": _tir(
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
                    T.tvm_stack_make_array(C.data, T.tvm_stack_make_shape(3, 8), 0, 2, T.float32(0), 0),
                    T.tvm_stack_make_array(B.data, T.tvm_stack_make_shape(3, 8), 0, 2, 0, 0),
                    1, True))
            """,
            lambda a: (-a).argsort(1),
        ),
        "popcount": _tir(
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
        "likely": _tir(
            "A 8, B 8",
            """
            for i in range(8):
                if T.likely(i < 8):
                    B[i] = A[i]
            """,
            lambda a: a,
        ),
    }


def _signatures() -> dict[str, Program]:
    """Parameters and attributes."""
    body = """
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + T.float32(1)
        """
    rows = """
        for i, j in T.grid(4, 6):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)
        """
    noalias = 'T.func_attr({"tirx.noalias": True, "global_symbol": "ä b/c"})\n'

    def attribute(text: str) -> str:
        return f"        T.func_attr({text})\n{body}"

    return {
        "attributes": _tir("A 8, B 8", f"        {noalias}{body}", lambda a: a + 1),
        "own_attribute": _tir(
            "A 8, B 8", attribute('{"mine": "yes", "number": 3}'), lambda a: a + 1
        ),
        "already_scheduled": _tir(
            "A 8, B 8", attribute('{"tirx.is_scheduled": True}'), lambda a: a + 1
        ),
        "scheduled_by_name": _tir(
            "A 8, B 8", attribute('{"tir.is_scheduled": True}'), lambda a: a + 1
        ),
        "scalar_parameter": _tir(
            "A 8, s: T.float32, B 8", body.replace("T.float32(1)", "s"), lambda a, s: a + s
        ),
        "open_shape": _tir(
            "a: T.handle, b: T.handle",
            """
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.sblock("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "strided": _tir(
            "a: T.handle, B 4 6",
            f'        A = T.match_buffer(a, (4, 6), "float32", strides=[6, 1])\n{rows}',
            lambda a: a + 1,
        ),
        "with_offset": _tir(
            "a: T.handle, B 4 6",
            f'        A = T.match_buffer(a, (4, 6), "float32", offset_factor=1)\n{rows}',
            lambda a: a + 1,
        ),
        "aligned": _tir(
            "a: T.handle, B 4 6",
            f'        A = T.match_buffer(a, (4, 6), "float32", align=16)\n{rows}',
            lambda a: a + 1,
        ),
        "result_first": _tir("B 8, A 8", body, lambda a: a + 1, writes=(0,)),
        "unused_parameter": _tir("A 8, Z 5 int32, B 8", body, lambda a, z: a + 1),
        "no_rule": _tir(
            "A 8, B 8",
            """
            for i in range(8):
                with T.sblock("B"):
                    T.sblock_attr({"schedule_rule": "None"})
                    vi = T.axis.spatial(8, i)
                    B[vi] = A[vi] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "unknown_rule": _tir(
            "A 8, B 8",
            """
            for i in range(8):
                with T.sblock("B"):
                    T.sblock_attr({"schedule_rule": "nobody.knows"})
                    vi = T.axis.spatial(8, i)
                    B[vi] = A[vi] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "annotated_loop": _tir(
            "A 8, B 8",
            """
            for i in T.serial(8, annotations={"pragma_mine": 1}):
                with T.sblock("B"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = A[vi] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "parallel_block": _tir(
            "A 8 16, B 8 16",
            """
            for i in T.parallel(8):
                for j in T.vectorized(16):
                    with T.sblock("B"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        B[vi, vj] = A[vi, vj] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "tiled_by_hand": _tir(
            "A 16, B 16",
            """
            for i, j in T.grid(4, 4):
                with T.sblock("B"):
                    vi = T.axis.spatial(16, i * 4 + j)
                    B[vi] = A[vi] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
        "extents_of_one": _tir(
            "A 1 1, B 1 1",
            """
            for i, j in T.grid(1, 1):
                with T.sblock("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
            """,
            lambda a: a + 1,
        ),
    }


SCRIPT_PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {**_loops(), **_blocks(), **_calls(), **_signatures()}
)
"""Program by name."""
