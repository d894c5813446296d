"""Intrinsics of `mma` that TVM's rule for `mma` can use and TVM lacks.

The rule (TVM, multi_level_tiling_tensor_core.cc) takes every product of 16 x 8 results whose tiles
of A have 32 rows and those of B 32 columns. Fragments are buffers of the scopes "m16n8k8.matrixA"
and "...B", of which TransformMmaBufferLayout makes as many registers as a thread has of them,
whatever their order, if B has a multiple of 32 columns. The layout of the sums is TVM's own
(`accumulators`).
Operands of 8 and of 32 bits are loaded as if they were 16 bits each: eight rows of 16 bytes.

Notation
--------
lane        thread of the warp, 0..31
offset      element of a fragment's buffer at which a tile starts
stride      elements of a row of that buffer
segment     elements of 16 bytes, of which a thread gets a quarter
square      16 rows of two segments, what `ldmatrix` loads at once: a segment's elements to each
            thread, side by side
down, right squares of a tile below and beside its first one
turned      B is stored by columns, (n, k): a tile is then as deep as wide, several instructions
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pruner_ms.tensorcore.intrinsics import BITS, Instruction
from pruner_ms.tvm_compat.script import parsed

SIDE = 32
"""Rows of a tile of A and columns of one of B, and the depth of both if B is turned."""

HALF = 16
"""Bits of the operands that `ldmatrix` can transpose, as B by rows needs."""

_COPY = """
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

_LOAD = """
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
"""

_SQUARE = """
            T.evaluate(
                ldmatrix(
                    transposed, 4, ".b16", dst.data, held(dst.elem_offset, d0, {down}, {right}),
                    src.access_ptr("r"), pointed(lane, s0, {down}, {right}), dtype=dtype,
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
        b, shape_b, dtype, align=64, offset_factor=1, scope="m16n8k8.matrixB"
    )
    C = T.match_buffer(
        c, (m, n), sums, align=64, offset_factor=1, scope="m16n8k8.matrixC"
    )
    with T.sblock("root"):
        T.reads(C[0:m, 0:n], A[0:m, 0:k], B[0:shape_b[0], 0:shape_b[1]])
        T.writes(C[0:m, 0:n])
        for i, j, l in T.grid(m, n, k):
            with T.sblock("product"):
                vi, vj, vl = T.axis.remap("SSR", [i, j, l])
                b0, b1 = T.meta_var(place(vl, vj))
                C[vi, vj] = C[vi, vj] + wide(A[vi, vl]) * wide(B[b0, b1])
"""

_INSTRUCTIONS = """
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
        b, shape_b, dtype, align=64, offset_factor=1, scope="m16n8k8.matrixB", strides=[b0, b1]
    )
    c0 = T.int32()
    c1 = T.int32()
    C = T.match_buffer(
        c, (m, n), sums, align=64, offset_factor=1, scope="m16n8k8.matrixC", strides=[c0, c1]
    )
    with T.sblock("root"):
        T.reads(C[0:m, 0:n], A[0:m, 0:k], B[0:shape_b[0], 0:shape_b[1]])
        T.writes(C[0:m, 0:n])
"""

_INSTRUCTION = """
        T.evaluate(
            mma(
                shape, "row", "col", given, given, sums,
                A.data, part_a(A.elem_offset, a0, {depth}),
                B.data, part_b(B.elem_offset, b0, {depth}),
                C.data, part_c(C.elem_offset, c0),
                False, dtype=sums,
            )
        )
"""


def segment_of(row: Instruction) -> int:
    """Elements of 16 bytes of an operand."""
    return 128 // BITS[row.operands]


def held(segment: int, offset: Any, stride: Any, down: int, right: int) -> Any:
    """First element that a thread holds of a square; squares lie row by row."""
    wide = 2 * segment
    row, column = offset // stride, offset % stride
    return (row // 16 + down) * (stride // wide) * segment + (column // wide + right) * segment


def pointed(segment: int, lane: Any, stride: Any, down: int, right: int) -> Any:
    """Element at which the row starts that a lane points to in a square of A, or of B by rows.

    Lanes go down the left half and then down the right one. Of A that is the order in which the
    registers of an operand hold its quarters; of B each half is the operand of one instruction.
    """
    return (lane % 16 + 16 * down) * stride + lane // 16 * segment + 2 * segment * right


def pointed_turned(segment: int, lane: Any, stride: Any, down: int, right: int) -> Any:
    """The same in a square of B by columns: here the upper half is one operand, left to right."""
    row = lane // 16 * 8 + lane % 8
    return (row + 16 * down) * stride + lane // 8 % 2 * segment + 2 * segment * right


def part_a(segment: int, offset: Any, stride: Any, depth: int) -> Any:
    """First element that a thread holds of A from a depth on."""
    wide = 2 * segment
    return held(segment, offset, stride, 0, depth // wide) + depth % wide // segment * segment // 2


def part_b(segment: int, offset: Any, stride: Any, depth: int) -> Any:
    """First element that a thread holds of eight columns of B by rows, from a depth on."""
    half = offset % stride % 16 // 8 * 4 + depth % 16 // 8 * 2
    return held(segment, offset, stride, depth // 16, 0) + half


def part_b_turned(segment: int, offset: Any, stride: Any, depth: int) -> Any:
    """The same of B by columns."""
    wide = 2 * segment
    half = offset // stride % 16 // 8 * (segment // 2) + depth % wide // segment * (segment // 4)
    return held(segment, offset, stride, 0, depth // wide) + half


def part_c(offset: Any, stride: Any) -> Any:
    """First element that a thread holds of 16 x 8 sums, as TVM lays them out."""
    row, column = offset // stride, offset % stride
    return row // 16 * (stride // 8) * 4 + column // 8 * 4


def is_usable(row: Instruction, turned: bool) -> bool:
    """Whether TVM's rule can use an instruction on B by columns (turned) or by rows."""
    return row.family == "mma" and (turned or BITS[row.operands] == HALF)


def depth_of(row: Instruction, turned: bool) -> int:
    """Length of the sums of a product: a square's at least."""
    return SIDE if turned else max(row.shape[2], 16)


def load(row: Instruction, which: str, shared: str, turned: bool) -> tuple[Any, Any]:
    """Description and implementation of a load of a tile of A or B.

    Parameters
    ----------
    row
        An instruction that is usable.
    which
        "a" or "b".
    shared
        Scope of the source.
    turned
        Whether B is stored by columns.
    """
    deep, segment = depth_of(row, turned), segment_of(row)
    by_rows_b = which == "b" and not turned
    rows, columns = (deep, SIDE) if by_rows_b else (SIDE, deep)
    names = {
        "rows": rows,
        "columns": columns,
        "dtype": row.operands,
        "shared": shared,
        "fragment": f"m16n8k8.matrix{which.upper()}",
        # a thread's pair of elements is along the sums
        "transposed": by_rows_b,
        "held": partial(held, segment),
        "pointed": partial(pointed_turned if which == "b" and turned else pointed, segment),
    }
    wide = 2 * segment
    squares = [(down, right) for down in range(rows // 16) for right in range(columns // wide)]
    calls = "".join(_SQUARE.format(down=down, right=right) for down, right in squares)
    return parsed(_COPY, **names), parsed(_LOAD + calls, **names)


def product(row: Instruction, turned: bool) -> tuple[Any, Any]:
    """Description and implementation of a product: as many instructions as it is deep."""
    m, n, k = row.shape
    deep, segment = depth_of(row, turned), segment_of(row)

    def wide(value: Any) -> Any:
        return value if row.operands == row.sums else value.astype(row.sums)

    names = {
        "m": m,
        "n": n,
        "k": deep,
        "shape_b": (n, deep) if turned else (deep, n),
        "place": (lambda deep, j: (j, deep)) if turned else (lambda deep, j: (deep, j)),
        "shape": f"m{m}n{n}k{k}",
        "dtype": row.operands,
        "sums": row.sums,
        "wide": wide,
        "given": "tf32" if row.tf32 else row.operands,
        "part_a": partial(part_a, segment),
        "part_b": partial(part_b_turned if turned else part_b, segment),
        "part_c": part_c,
    }
    calls = "".join(_INSTRUCTION.format(depth=depth) for depth in range(0, deep, k))
    return parsed(_PRODUCT, **names), parsed(_INSTRUCTIONS + calls, **names)
