"""Programs in TVMScript with blocks of every kind, and with every kind of parameter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from benchmarks.zoo.program import Program, tir

_BLOCKS: dict[str, Program] = {
    "block": tir(
        "A 8 9, B 8 9",
        """
        for i, j in T.grid(8, 9):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        """,
        lambda a: a * 2,
    ),
    "block_product": tir(
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
    "update_without_init": tir(
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
    "init_in_a_block_of_its_own": tir(
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
    "in_place": tir(
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
    "written_twice": tir(
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
    "two_results": tir(
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
    "two_stores_in_a_block": tir(
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
    "opaque": tir(
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
    "opaque_by_rows": tir(
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
    "nested": tir(
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
    "predicate": tir(
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
    "predicate_of_data": tir(
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
    "branches": tir(
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
    "select": tir(
        "A 10, B 10",
        """
        for i in range(10):
            with T.sblock("B"):
                vi = T.axis.spatial(10, i)
                B[vi] = T.if_then_else(
                    vi < 3, A[vi], T.Select(A[vi] > T.float32(0), A[vi], T.float32(0)))
        """,
        lambda a: np.where(np.arange(10) < 3, a, np.maximum(a, 0)),
    ),
    "while": tir(
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
    "scan_in_a_block": tir(
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
    "scan_axis": tir(
        "A 9 4, B 9 4",
        """
        for t, j in T.grid(9, 4):
            with T.sblock("step"):
                vt = T.axis.opaque(9, t)
                vj = T.axis.spatial(4, j)
                B[vt, vj] = A[vt, vj] + T.if_then_else(
                    vt > 0, B[T.max(vt - 1, 0), vj], T.float32(0))
        """,
        lambda a: a.cumsum(0),
    ),
    "gather_rows": tir(
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
    "scatter_rows": tir(
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
    "sub_buffer": tir(
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
    "same_names": tir(
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
    "two_dtypes": tir(
        "A 6 8 int8, S 6, B 6 8",
        """
        for i, j in T.grid(6, 8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.Cast("float32", A[vi, vj]) * S[vi]
        """,
        lambda a, s: a * s[:, None],
    ),
    "wraps_around": tir(
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
    "divisions": tir(
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
    "infinite_numbers": tir(
        "A 8, B 8",
        """
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.if_then_else(
                    vi == 3, T.infinity("float32"), T.min(A[vi], T.infinity("float32")))
        """,
        lambda a: np.where(np.arange(8) == 3, np.inf, a),
    ),
    "three_levels": tir(
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
    "loops_and_blocks": tir(
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
    "scalar_block": tir(
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
    "equal_arguments": tir(
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
    "named_root": tir(
        "A 8, B 8",
        """
        for i in range(8):
            with T.sblock("root"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + T.float32(1)
        """,
        lambda a: a + 1,
    ),
    "other_root": tir(
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
"""Blocks as most people write them, and those that a scheduler must leave as they are."""


_BODY = """
    for i in range(8):
        with T.sblock("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] + T.float32(1)
    """
_ROWS = """
    for i, j in T.grid(4, 6):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
    """
_NOALIAS = 'T.func_attr({"tirx.noalias": True, "global_symbol": "ä b/c"})\n'


def _attribute(text: str) -> str:
    return f"    T.func_attr({text})\n{_BODY}"


_SIGNATURES: dict[str, Program] = {
    "attributes": tir("A 8, B 8", f"    {_NOALIAS}{_BODY}", lambda a: a + 1),
    "own_attribute": tir("A 8, B 8", _attribute('{"mine": "yes", "number": 3}'), lambda a: a + 1),
    "already_scheduled": tir(
        "A 8, B 8", _attribute('{"tirx.is_scheduled": True}'), lambda a: a + 1
    ),
    "scheduled_by_name": tir("A 8, B 8", _attribute('{"tir.is_scheduled": True}'), lambda a: a + 1),
    "scalar_parameter": tir(
        "A 8, s: T.float32, B 8", _BODY.replace("T.float32(1)", "s"), lambda a, s: a + s
    ),
    "open_shape": tir(
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
    "strided": tir(
        "a: T.handle, B 4 6",
        f'    A = T.match_buffer(a, (4, 6), "float32", strides=[6, 1])\n{_ROWS}',
        lambda a: a + 1,
    ),
    "with_offset": tir(
        "a: T.handle, B 4 6",
        f'    A = T.match_buffer(a, (4, 6), "float32", offset_factor=1)\n{_ROWS}',
        lambda a: a + 1,
    ),
    "aligned": tir(
        "a: T.handle, B 4 6",
        f'    A = T.match_buffer(a, (4, 6), "float32", align=16)\n{_ROWS}',
        lambda a: a + 1,
    ),
    "result_first": tir("B 8, A 8", _BODY, lambda a: a + 1, writes=(0,)),
    "unused_parameter": tir("A 8, Z 5 int32, B 8", _BODY, lambda a, z: a + 1),
    "no_rule": tir(
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
    "unknown_rule": tir(
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
    "annotated_loop": tir(
        "A 8, B 8",
        """
        for i in T.serial(8, annotations={"pragma_mine": 1}):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + T.float32(1)
        """,
        lambda a: a + 1,
    ),
    "parallel_block": tir(
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
    "tiled_by_hand": tir(
        "A 16, B 16",
        """
        for i, j in T.grid(4, 4):
            with T.sblock("B"):
                vi = T.axis.spatial(16, i * 4 + j)
                B[vi] = A[vi] + T.float32(1)
        """,
        lambda a: a + 1,
    ),
    "extents_of_one": tir(
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
"""Parameters and attributes."""


BLOCK_PROGRAMS: Mapping[str, Program] = MappingProxyType({**_BLOCKS, **_SIGNATURES})
"""Program by name."""
