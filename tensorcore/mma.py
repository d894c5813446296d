"""Intrinsics of `mma` m16n8k16, which TVM's rule for `mma` can use and TVM does not have.

The rule (TVM, multi_level_tiling_tensor_core.cc) takes every instruction of 16 x 8 results whose
tiles of A have 32 rows and those of B 32 columns. Fragments are buffers of the scopes
"m16n8k8.matrixA" and "...B", of which TransformMmaBufferLayout makes as many registers as a thread
has of them, whatever their order; that of the sums is the same for all instructions of 16 x 8.

Notation
--------
lane        thread of the warp, 0..31
offset      element of a fragment's buffer at which a tile starts
stride      elements of a row of that buffer
block       16 x 16 elements of A, 16 x 8 of B, 16 x 8 of the sums: an operand of one instruction,
            of which a thread holds 8, 4 and 4 elements side by side
"""

from __future__ import annotations

from typing import Any

from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tvm_compat.script import parsed

TILES = {"A": (32, 16), "B": (16, 32)}
"""Rows and columns of what one load takes: two blocks of A, four of B."""

_LOAD = """
@T.prim_func
def load(a: T.handle, c: T.handle) -> None:
    src = T.match_buffer(
        a, (rows, columns), dtype, align=64, offset_factor=1, scope=shared
    )
    dst = T.match_buffer(
        c, (rows, columns), dtype, align=64, offset_factor=1, scope=fragment
    )
    with T.sblock("root"):
        T.reads(src[0:rows, 0:columns])
        T.writes(dst[0:rows, 0:columns])
        for i, j in T.grid(rows, columns):
            with T.sblock("load"):
                vi, vj = T.axis.remap("SS", [i, j])
                dst[vi, vj] = src[vi, vj]
"""

_LOAD_BY_LANES = """
@T.prim_func
def load(a: T.handle, c: T.handle) -> None:
    s0 = T.int32()
    s1 = T.int32()
    src = T.match_buffer(
        a, (rows, columns), dtype, align=64, offset_factor=1, scope=shared, strides=[s0, s1]
    )
    d0 = T.int32()
    d1 = T.int32()
    dst = T.match_buffer(
        c, (rows, columns), dtype, align=64, offset_factor=1, scope=fragment, strides=[d0, d1]
    )
    with T.sblock("root"):
        T.reads(src[0:rows, 0:columns])
        T.writes(dst[0:rows, 0:columns])
        for lane in T.thread_binding(0, 32, "threadIdx.x"):
            T.evaluate(
                ldmatrix(
                    turned, 4, ".b16", dst.data, held(dst.elem_offset, d0, 0),
                    src.access_ptr("r"), pointed(lane, s0, 0), dtype=dtype,
                )
            )
            T.evaluate(
                ldmatrix(
                    turned, 4, ".b16", dst.data, held(dst.elem_offset, d0, 1),
                    src.access_ptr("r"), pointed(lane, s0, 1), dtype=dtype,
                )
            )
"""

_PRODUCT = """
@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(
        a, (m, k), dtype, align=64, offset_factor=1, scope="m16n8k8.matrixA"
    )
    B = T.match_buffer(
        b, (k, n), dtype, align=64, offset_factor=1, scope="m16n8k8.matrixB"
    )
    C = T.match_buffer(
        c, (m, n), sums, align=64, offset_factor=1, scope="m16n8k8.matrixC"
    )
    with T.sblock("root"):
        T.reads(C[0:m, 0:n], A[0:m, 0:k], B[0:k, 0:n])
        T.writes(C[0:m, 0:n])
        for i, j, l in T.grid(m, n, k):
            with T.sblock("product"):
                vi, vj, vl = T.axis.remap("SSR", [i, j, l])
                C[vi, vj] = C[vi, vj] + wide(A[vi, vl]) * wide(B[vl, vj])
"""

_PRODUCT_BY_LANES = """
@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle) -> None:
    a0 = T.int32()
    a1 = T.int32()
    A = T.match_buffer(
        a, (m, k), dtype, align=64, offset_factor=1, scope="m16n8k8.matrixA", strides=[a0, a1]
    )
    b0 = T.int32()
    b1 = T.int32()
    B = T.match_buffer(
        b, (k, n), dtype, align=64, offset_factor=1, scope="m16n8k8.matrixB", strides=[b0, b1]
    )
    c0 = T.int32()
    c1 = T.int32()
    C = T.match_buffer(
        c, (m, n), sums, align=64, offset_factor=1, scope="m16n8k8.matrixC", strides=[c0, c1]
    )
    with T.sblock("root"):
        T.reads(C[0:m, 0:n], A[0:m, 0:k], B[0:k, 0:n])
        T.writes(C[0:m, 0:n])
        T.evaluate(
            mma(
                shape, "row", "col", dtype, dtype, sums,
                A.data, held_a(A.elem_offset, a0, 0),
                B.data, held_b(B.elem_offset, b0, 0),
                C.data, held_c(C.elem_offset, c0),
                False, dtype=sums,
            )
        )
"""


def held_a(offset: Any, stride: Any, part: int) -> Any:
    """First element that a thread holds of a block of A, or of the one `part` blocks below."""
    row, column = offset // stride, offset % stride
    return (row // 16 + part) * (stride // 16) * 8 + column // 16 * 8


def held_b(offset: Any, stride: Any, part: int) -> Any:
    """The same of B, or of the one `part` pairs of blocks to the right."""
    row, column = offset // stride, offset % stride
    return row // 16 * (stride // 8) * 4 + column // 8 * 4 + part * 8


def held_c(offset: Any, stride: Any) -> Any:
    """First element that a thread holds of a block of the sums, as TVM lays them out."""
    row, column = offset // stride, offset % stride
    return row // 16 * (stride // 8) * 4 + column // 8 * 4


def row_of_a(lane: Any, stride: Any, part: int) -> Any:
    """Element at which the row starts that a lane points to, in the `part`-th 16 rows of a tile.

    Lanes go down the left half of a block and then down the right one: the four matrices of
    `ldmatrix` are those that the four registers of an operand hold.
    """
    return (lane % 16 + 16 * part) * stride + lane // 16 * 8


def row_of_b(lane: Any, stride: Any, part: int) -> Any:
    """The same in the `part`-th 16 columns of a tile: two blocks of B, one beside the other."""
    return lane % 16 * stride + lane // 16 * 8 + 16 * part


def load(row: Instruction, which: str, shared: str) -> tuple[Any, Any]:
    """Description and implementation of a load of A or B by rows.

    Parameters
    ----------
    row
        An instruction m16n8k16 on operands of 16 bits.
    which
        "A" or "B".
    shared
        Scope of the source.
    """
    rows, columns = TILES[which]
    names = {
        "rows": rows,
        "columns": columns,
        "dtype": row.operands,
        "shared": shared,
        "fragment": f"m16n8k8.matrix{which}",
        # the rows of B are along k, and a thread's pair of elements is along k, too
        "turned": which == "B",
        "held": held_a if which == "A" else held_b,
        "pointed": row_of_a if which == "A" else row_of_b,
    }
    return parsed(_LOAD, **names), parsed(_LOAD_BY_LANES, **names)


def product(row: Instruction) -> tuple[Any, Any]:
    """Description and implementation of an instruction m16n8k16 on operands of 16 bits."""
    m, n, k = row.shape

    def wide(value: Any) -> Any:
        return value if row.operands == row.sums else value.astype(row.sums)

    names = {
        "m": m,
        "n": n,
        "k": k,
        "shape": f"m{m}n{n}k{k}",
        "dtype": row.operands,
        "sums": row.sums,
        "wide": wide,
        "held_a": held_a,
        "held_b": held_b,
        "held_c": held_c,
    }
    return parsed(_PRODUCT, **names), parsed(_PRODUCT_BY_LANES, **names)
