"""Products of `mma` that stock's rule can use and TVM lacks, and those of other layouts.

The rule (TVM, multi_level_tiling_tensor_core.cc) takes every product of 16 x 8 results whose tiles
of A have 32 rows and those of B 32 columns. Fragments are buffers of the scopes "m16n8k8.matrixA"
and "...B", of which TransformMmaBufferLayout makes as many registers as a thread has of them,
whatever their order. The layout of the sums is TVM's own (`accumulators`), that of the factors the
one of `mma_loads`, with its notation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tensorcore.layouts import Layout
from pruner_ms.tensorcore.mma_loads import (
    DEEP,
    WIDTHS,
    along_sums,
    depth_of,
    fetched,
    held,
    is_fetched,
    segment_of,
)
from pruner_ms.tvm_compat.script import parsed

_PRODUCT = """
@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(
        a, shape_a, dtype, align=64, offset_factor=1, scope="m16n8k8.matrixA"
    )
    B = T.match_buffer(
        b, shape_b, dtype, align=64, offset_factor=1, scope="m16n8k8.matrixB"
    )
    C = T.match_buffer(
        c, (m, n), sums, align=64, offset_factor=1, scope="m16n8k8.matrixC"
    )
    with T.sblock("root"):
        T.reads(C[0:m, 0:n], {regions})
        T.writes(C[0:m, 0:n])
        for i, j, l in T.grid(m, n, k):
            with T.sblock("product"):
                vi, vj, vl = T.axis.remap("SSR", [i, j, l])
                a0, a1 = T.meta_var(place_a(vi, vl))
                b0, b1 = T.meta_var(place_b(vl, vj))
                C[vi, vj] = C[vi, vj] + {factors}
"""

_REGIONS = ("A[0:shape_a[0], 0:shape_a[1]]", "B[0:shape_b[0], 0:shape_b[1]]")
_FACTORS = ("wide(A[a0, a1])", "wide(B[b0, b1])")
"""What is read, A first; TVM compares it in the order of a block's factors."""

_INSTRUCTIONS = """
@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle) -> None:
    a0 = T.int32()
    a1 = T.int32()
    A = T.match_buffer(
        a, shape_a, dtype, align=64, offset_factor=1, scope="m16n8k8.matrixA", strides=[a0, a1]
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
        T.reads(C[0:m, 0:n], {regions})
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


def part_a_turned(offset: Any, stride: Any, depth: int) -> Any:
    """First element that a thread holds of 16 rows of A by columns, from a depth on."""
    return held(8, offset, stride, depth // 16, 0) + depth % 16 // 8 * 4


def part_fetched(width: int, offset: Any, stride: Any, depth: int) -> Any:
    """First element that a thread holds of an operand that was fetched, from a depth on."""
    slot = depth % DEEP // 4 * (width // 8)
    return fetched(width, offset, stride, depth // DEEP, 0, slot)


def part_c(offset: Any, stride: Any) -> Any:
    """First element that a thread holds of 16 x 8 sums, as TVM lays them out."""
    row, column = offset // stride, offset % stride
    return row // 16 * (stride // 8) * 4 + column // 8 * 4


def part_of(row: Instruction, which: str, layout: Layout) -> Callable[[Any, Any, int], Any]:
    """What gives the first element that a thread holds of an operand, from a depth on."""
    if is_fetched(row, which, layout):
        return partial(part_fetched, WIDTHS[which])
    straight, segment = along_sums(which, layout), segment_of(row)
    if which == "a":
        return partial(part_a, segment) if straight else part_a_turned
    return partial(part_b_turned if straight else part_b, segment)


def product(row: Instruction, layout: Layout) -> tuple[Any, Any]:
    """Description and implementation of a product: as many instructions as it is deep."""
    m, n, k = row.shape
    deep = depth_of(row, layout)

    def wide(value: Any) -> Any:
        return value if row.operands == row.sums else value.astype(row.sums)

    names = {
        "m": m,
        "n": n,
        "shape_a": (deep, m) if layout.turned_a else (m, deep),
        "shape_b": (n, deep) if layout.turned_b else (deep, n),
        "k": deep,
        "place_a": _place(layout.turned_a),
        "place_b": _place(layout.turned_b),
        "shape": f"m{m}n{n}k{k}",
        "dtype": row.operands,
        "sums": row.sums,
        "wide": wide,
        "given": "tf32" if row.tf32 else row.operands,
        "part_a": part_of(row, "a", layout),
        "part_b": part_of(row, "b", layout),
        "part_c": part_c,
    }
    order = -1 if layout.swapped else 1
    regions, factors = ", ".join(_REGIONS[::order]), " * ".join(_FACTORS[::order])
    calls = "".join(_INSTRUCTION.format(depth=depth) for depth in range(0, deep, k))
    described = _PRODUCT.format(regions=regions, factors=factors)
    done = _INSTRUCTIONS.format(regions=regions) + calls
    return parsed(described, **names), parsed(done, **names)


def _place(turned: bool) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Gives two indices, exchanged where a factor is turned."""

    def place(first: Any, second: Any) -> tuple[Any, Any]:
        return (second, first) if turned else (first, second)

    return place
