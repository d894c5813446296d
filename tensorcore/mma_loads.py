"""Loads of tiles of A and B from shared memory into the fragments of `mma`.

`ldmatrix` loads eight rows of 16 bytes, and can transpose them if elements have 16 bits. Elements
of another size that are not contiguous along k are loaded one by one, by the lane that holds them.

Notation
--------
lane        thread of the warp, 0..31
offset      element of a fragment's buffer at which a tile starts
stride      elements of a row of that buffer
segment     number of elements in 16 bytes, of which a thread gets a quarter
square      16 rows of two segments, loaded by one `ldmatrix`: each thread gets as many elements as
            a segment has, side by side
down, right squares of a tile below and beside its first one
width       of operands loaded one by one: columns of an instruction's operand, whose eight rows run
            along k (those of two instructions where k is four)
slot        index of an element among those that a lane loads of such an operand
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pruner_ms.dtypes import bits_of, bytes_of
from pruner_ms.symbolic.program import MMA_SCOPE
from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tensorcore.layouts import BY_ROWS, Layout
from pruner_ms.tvm_compat.script import parsed

SIDE = 32
"""Rows of a tile of A and columns of one of B; the depth of both where the last index of B, or the
first of A, runs along k."""

STOCK_K = 8
"""k of the 16 x 8 instruction for which TVM has intrinsics."""

TRANSPOSABLE_BITS = 16
"""Bits of the operands that `ldmatrix` can transpose."""

DEEP = 8
"""Rows, along k, of operands that are loaded one by one."""

WIDTHS = {"a": 16, "b": 8}
"""Columns of such operands: rows and columns of an instruction's result."""

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

_FETCH = """
            T.evaluate(
                T.call_extern(
                    "handle", "memcpy",
                    T.tvm_access_ptr(
                        T.type_annotation(dtype), dst.data,
                        fetched(dst.elem_offset, d0, {down}, {right}, {slot}), 1, 2,
                    ),
                    src.access_ptr("r", offset=pointed(lane, s0, {down}, {right}, {slot})),
                    size,
                )
            )
"""


def segment_of(row: Instruction) -> int:
    """Elements of an operand in 16 bytes."""
    return 128 // bits_of(row.operands)


def held(segment: int, offset: Any, stride: Any, down: int, right: int) -> Any:
    """Offset of a thread's first element of a square; squares are in row-major order."""
    wide = 2 * segment
    row, column = offset // stride, offset % stride
    return (row // 16 + down) * (stride // wide) * segment + (column // wide + right) * segment


def pointed(segment: int, lane: Any, stride: Any, down: int, right: int) -> Any:
    """Start of the row that a lane points to, in a square of A or of row-major B.

    Lanes go down the left half and then down the right one. In A that is the order in which
    registers hold the quarters of an operand; in B each half is the operand of one instruction.
    """
    return (lane % 16 + 16 * down) * stride + lane // 16 * segment + 2 * segment * right


def pointed_transposed(segment: int, lane: Any, stride: Any, down: int, right: int) -> Any:
    """As `pointed`, in a square of column-major B: the upper half is one operand, left to right."""
    row = lane // 16 * 8 + lane % 8
    return (row + 16 * down) * stride + lane // 8 % 2 * segment + 2 * segment * right


def fetched(width: int, offset: Any, stride: Any, down: int, right: int, slot: int) -> Any:
    """Offset in the fragment of an element that a lane loads; operands are in row-major order."""
    row, column = offset // stride, offset % stride
    operand = (row // DEEP + down) * (stride // width) + column // width + right
    return operand * (width // 4) + slot


def fetched_from(width: int, lane: Any, stride: Any, down: int, right: int, slot: int) -> Any:
    """Offset in shared memory of what a lane loads into a slot (PTX ISA 8.5, 9.7.13.5)."""
    row, column = slot // (width // 8) * 4 + lane % 4, slot % (width // 8) * 8 + lane // 4
    return (row + DEEP * down) * stride + column + width * right


def along_k(which: str, layout: Layout) -> bool:
    """Whether an operand is contiguous along k."""
    return not layout.transposed_a if which == "a" else layout.transposed_b


def is_fetched(row: Instruction, which: str, layout: Layout) -> bool:
    """Whether lanes load elements of an operand one by one."""
    return bits_of(row.operands) != TRANSPOSABLE_BITS and not along_k(which, layout)


def is_permuted(row: Instruction) -> bool:
    """Whether tiles of an instruction's operands have TVM's permuted layout: 16-bit types only.

    It permutes groups of eight elements, which are half of what `ldmatrix` reads at once of 8-bit
    elements and twice that of 32-bit ones, so that rows share banks. TVM does not apply it to
    elements that lanes load one by one.
    """
    return bits_of(row.operands) == TRANSPOSABLE_BITS


def is_usable(row: Instruction, layout: Layout) -> bool:
    """Whether both operands can be loaded: 8-bit ones only if they are contiguous along k."""
    one_by_one = any(is_fetched(row, which, layout) for which in "ab")
    return row.family == "mma" and (bits_of(row.operands) >= TRANSPOSABLE_BITS or not one_by_one)


def has_tvm_intrinsics(row: Instruction, layout: Layout) -> bool:
    """Whether TVM has the intrinsics itself."""
    return row.shape[2] == STOCK_K and layout == BY_ROWS and not row.tf32


def depth_of(row: Instruction, layout: Layout) -> int:
    """Length of the reduction of a product: at least that of a square, except for TVM's intrinsics.

    TVM requires multiples of 32 in one dimension of a fragment and of 8 in the other
    (TransformMmaBufferLayout): in the first of A, in the last of B.
    """
    if layout.transposed_a or layout.transposed_b:
        return SIDE
    return STOCK_K if has_tvm_intrinsics(row, layout) else max(row.shape[2], 16)


def load(row: Instruction, which: str, shared: str, layout: Layout) -> tuple[Any, Any]:
    """Description and implementation of a load of a tile of A or B.

    Parameters
    ----------
    row
        An instruction for which `is_usable`.
    which
        "a" or "b".
    shared
        Scope of the source.
    """
    deep = depth_of(row, layout)
    straight = along_k(which, layout)
    size = (SIDE, deep) if straight else (deep, SIDE)
    names = {
        "rows": size[0],
        "columns": size[1],
        "dtype": row.operands,
        "shared": shared,
        "fragment": f"{MMA_SCOPE}{which.upper()}",
    }
    if is_fetched(row, which, layout):
        calls, more = _fetches(which, size, bytes_of(row.operands))
    else:
        calls, more = _squares(which, size, segment_of(row), straight)
    return parsed(_COPY, **names), parsed(_LOAD + calls, **names, **more)


def _squares(
    which: str, size: tuple[int, int], segment: int, straight: bool
) -> tuple[str, dict[str, Any]]:
    """Calls of `ldmatrix` that load a tile, and the names that they use."""
    squares = [(i, j) for i in range(size[0] // 16) for j in range(size[1] // (2 * segment))]
    # a thread's pair of elements is along k; the side of the product that rows of a square are on
    # decides in which order its quarters are operands or halves of one
    by_columns = (which == "b") is straight
    names = {
        "transposed": not straight,
        "held": partial(held, segment),
        "pointed": partial(pointed_transposed if by_columns else pointed, segment),
    }
    return "".join(_SQUARE.format(down=i, right=j) for i, j in squares), names


def _fetches(which: str, size: tuple[int, int], item: int) -> tuple[str, dict[str, Any]]:
    """Copies of single elements that load a tile, and the names that they use."""
    width = WIDTHS[which]
    places = [
        {"down": down, "right": right, "slot": slot}
        for down in range(size[0] // DEEP)
        for right in range(size[1] // width)
        for slot in range(width // 4)
    ]
    names = {
        "size": item,
        "fetched": partial(fetched, width),
        "pointed": partial(fetched_from, width),
    }
    return "".join(_FETCH.format(**place) for place in places), names
