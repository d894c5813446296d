"""Names of the tensor intrinsics of an instruction, registered with TVM where it lacks them.

A group is what `MultiLevelTilingTensorCore` takes: intrinsics that clear, load A, load B, multiply
and store. TVM has groups of `wmma` for one shape and two dtypes, and generators for the others.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from pruner_ms.symbolic.program import MMA_SCOPE
from pruner_ms.tensorcore import mma_loads
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS, Instruction
from pruner_ms.tensorcore.layouts import BY_ROWS, LAYOUTS, Layout
from pruner_ms.tensorcore.mma_loads import (
    DEEP,
    WIDTHS,
    along_k,
    depth_of,
    fetched,
    held,
    is_fetched,
    segment_of,
)
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import TensorIntrin, cuda_intrinsics, te
from pruner_ms.tvm_compat.script import __file__ as script_file
from pruner_ms.tvm_compat.script import parsed
from pruner_ms.tvm_compat.script_cache import ScriptCache

# Intrinsics that clear the accumulators of `mma` and those that store them in shared memory.
#
# TVM's intrinsics clear floats only and store straight to global memory: LowerAutoCopy makes that
# copy, which cannot read another buffer. Accumulators in shared memory can be read by any thread.
#
# 16 x 8 accumulators have TVM's layout (TransformMmaBufferLayout): each lane holds two neighbours
# in a row, and two more eight rows below.


_CLEAR = """
@T.prim_func
def clear(c: T.handle) -> None:
    accumulators = T.match_buffer(
        c, (m, n), dtype, align=64, offset_factor=1, scope=fragment
    )
    with T.sblock("root"):
        T.reads()
        T.writes(accumulators[0:m, 0:n])
"""

_STORE = """
@T.prim_func
def store(c: T.handle, d: T.handle) -> None:
    accumulators = T.match_buffer(
        c, (m, n), dtype, align=64, offset_factor=1, scope=fragment
    )
    out = T.match_buffer(
        d, (m, n), dtype, align=64, offset_factor=1, scope=shared
    )
    with T.sblock("root"):
        T.reads(accumulators[0:m, 0:n])
        T.writes(out[0:m, 0:n])
"""

_BY_ELEMENTS = """
        for i, j in T.grid(m, n):
            with T.sblock("element"):
                vi, vj = T.axis.remap("SS", [i, j])
                {statement}
"""

_BY_LANES = """
        for lane in T.thread_binding(0, 32, "threadIdx.x"):
            for below in range(m // 8):
                for beside in T.vectorized(2):
                    {statement}
"""

_HELD = "below * 8 + lane // 4, lane % 4 * 2 + beside"
"""Row and column of a lane's elements."""


def clear_accumulators(row: Instruction) -> tuple[Any, Any]:
    """Description and implementation of clearing the accumulators of an instruction."""
    names = {**_names(row), "zero": te.const(0, row.accumulator)}
    return _both(_CLEAR, "accumulators[{at}] = zero", names)


def store_accumulators(row: Instruction, shared: str) -> tuple[Any, Any]:
    """Description and implementation of storing the accumulators of an instruction.

    Parameters
    ----------
    shared
        Scope of the destination.
    """
    names = {**_names(row), "shared": shared}
    return _both(_STORE, "out[{at}] = accumulators[{at}]", names)


def _names(row: Instruction) -> dict[str, Any]:
    m, n, _ = row.shape
    return {"m": m, "n": n, "dtype": row.accumulator, "fragment": f"{MMA_SCOPE}C"}


def _both(head: str, statement: str, names: dict[str, Any]) -> tuple[Any, Any]:
    """Description (a loop over elements) and implementation (by lanes) of an elementwise step."""
    described = _BY_ELEMENTS.format(statement=statement.format(at="vi, vj"))
    done = _BY_LANES.format(statement=statement.format(at=_HELD))
    return parsed(head + described, **names), parsed(head + done, **names)


# `mma` products that stock's rule can use but TVM lacks, and those of other layouts.
#
# The rule (TVM, multi_level_tiling_tensor_core.cc) takes every product of 16 x 8 results whose
# tiles of A have 32 rows and those of B 32 columns. Fragments are buffers of the scopes
# "m16n8k8.matrixA" and "...B", which TransformMmaBufferLayout maps to the registers of a thread,
# in any order. Accumulators have TVM's layout, operands that of `mma_loads`, with its notation.


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
        c, (m, n), accumulator, align=64, offset_factor=1, scope="m16n8k8.matrixC"
    )
    with T.sblock("root"):
        T.reads(C[0:m, 0:n], {regions})
        T.writes(C[0:m, 0:n])
        for i, j, l in T.grid(m, n, k):
            with T.sblock("product"):
                vi, vj, vl = T.axis.remap("SSR", [i, j, l])
                a0, a1 = T.meta_var(place_a(vi, vl))
                b0, b1 = T.meta_var(place_b(vl, vj))
                C[vi, vj] = C[vi, vj] + {operands}
"""

_REGIONS = ("A[0:shape_a[0], 0:shape_a[1]]", "B[0:shape_b[0], 0:shape_b[1]]")
_OPERANDS = ("wide(A[a0, a1])", "wide(B[b0, b1])")
"""What the product reads, A first; TVM compares it in the order of a block's reads."""

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
        c, (m, n), accumulator, align=64, offset_factor=1, scope="m16n8k8.matrixC", strides=[c0, c1]
    )
    with T.sblock("root"):
        T.reads(C[0:m, 0:n], {regions})
        T.writes(C[0:m, 0:n])
"""

_INSTRUCTION = """
        T.evaluate(
            mma(
                shape, "row", "col", given, given, accumulator,
                A.data, part_a(A.elem_offset, a0, {depth}),
                B.data, part_b(B.elem_offset, b0, {depth}),
                C.data, part_c(C.elem_offset, c0),
                False, dtype=accumulator,
            )
        )
"""


def part_a(segment: int, offset: Any, stride: Any, depth: int) -> Any:
    """Offset of a thread's first element of A, from a depth on."""
    wide = 2 * segment
    return held(segment, offset, stride, 0, depth // wide) + depth % wide // segment * segment // 2


def part_b(segment: int, offset: Any, stride: Any, depth: int) -> Any:
    """Offset of a thread's first element of eight columns of row-major B, from a depth on."""
    shift = offset % stride % 16 // 8 * 4 + depth % 16 // 8 * 2
    return held(segment, offset, stride, depth // 16, 0) + shift


def part_b_transposed(segment: int, offset: Any, stride: Any, depth: int) -> Any:
    """As `part_b`, of column-major B."""
    wide = 2 * segment
    shift = offset // stride % 16 // 8 * (segment // 2) + depth % wide // segment * (segment // 4)
    return held(segment, offset, stride, 0, depth // wide) + shift


def part_a_transposed(offset: Any, stride: Any, depth: int) -> Any:
    """Offset of a thread's first element of 16 rows of column-major A, from a depth on."""
    return held(8, offset, stride, depth // 16, 0) + depth % 16 // 8 * 4


def part_fetched(width: int, offset: Any, stride: Any, depth: int) -> Any:
    """Offset of a thread's first element of an operand loaded one by one, from a depth on."""
    slot = depth % DEEP // 4 * (width // 8)
    return fetched(width, offset, stride, depth // DEEP, 0, slot)


def part_c(offset: Any, stride: Any) -> Any:
    """Offset of a thread's first element of 16 x 8 accumulators, in TVM's layout."""
    row, column = offset // stride, offset % stride
    return row // 16 * (stride // 8) * 4 + column // 8 * 4


def part_of(row: Instruction, which: str, layout: Layout) -> Callable[[Any, Any, int], Any]:
    """Function that gives the offset of a thread's first element of an operand, from a depth on."""
    if is_fetched(row, which, layout):
        return partial(part_fetched, WIDTHS[which])
    straight, segment = along_k(which, layout), segment_of(row)
    if which == "a":
        return partial(part_a, segment) if straight else part_a_transposed
    return partial(part_b_transposed if straight else part_b, segment)


def mma_product(row: Instruction, layout: Layout) -> tuple[Any, Any]:
    """Description and implementation of a product: one instruction for each k of its depth."""
    m, n, k = row.shape
    deep = depth_of(row, layout)

    def wide(value: Any) -> Any:
        return value if row.operands == row.accumulator else value.astype(row.accumulator)

    names = {
        "m": m,
        "n": n,
        "shape_a": (deep, m) if layout.transposed_a else (m, deep),
        "shape_b": (n, deep) if layout.transposed_b else (deep, n),
        "k": deep,
        "place_a": _place(layout.transposed_a),
        "place_b": _place(layout.transposed_b),
        "shape": f"m{m}n{n}k{k}",
        "dtype": row.operands,
        "accumulator": row.accumulator,
        "wide": wide,
        "given": "tf32" if row.tf32 else row.operands,
        "part_a": part_of(row, "a", layout),
        "part_b": part_of(row, "b", layout),
        "part_c": part_c,
    }
    order = -1 if layout.swapped else 1
    regions, operands = ", ".join(_REGIONS[::order]), " * ".join(_OPERANDS[::order])
    calls = "".join(_INSTRUCTION.format(depth=depth) for depth in range(0, deep, k))
    described = _PRODUCT.format(regions=regions, operands=operands)
    done = _INSTRUCTIONS.format(regions=regions) + calls
    return parsed(described, **names), parsed(done, **names)


def _place(transposed: bool) -> Callable[[Any, Any], tuple[Any, Any]]:
    """A function that swaps two indices of a transposed operand, and returns others as they are."""

    def place(first: Any, second: Any) -> tuple[Any, Any]:
        return (second, first) if transposed else (first, second)

    return place


SHARED = "shared.dyn"
"""Scope of dynamic shared memory, of which a kernel may request more than 48 KiB."""

PARTS = ("description", "implementation")
"""The two functions of an intrinsic."""

Maker = Callable[[], Any]
"""Returns description and implementation."""

_LOCK = threading.Lock()
"""Makes looking up and registering atomic: design spaces are generated in several threads."""

_NAME = re.compile(r"\bw?mma_(?:fill|init|load|sync|store)_\w+")


@cache
def _script_cache() -> ScriptCache:
    """Cache on disk of our intrinsics, valid for this TVM and these sources."""
    files = (script_file, cuda_intrinsics().__file__)
    return ScriptCache("ours", [*map(Path, files), *Path(__file__).parent.glob("*.py")])


def registered(name: str, make: Maker) -> str:
    """Register an intrinsic unless TVM has the name already; returns the name.

    `make` is called only where the intrinsic is not in the cache either.
    """
    with _LOCK:
        if TensorIntrin.get(name, allow_missing=True) is None:
            stored, parts = _script_cache(), [f"{name} {part}" for part in PARTS]
            functions = [stored.get(part) for part in parts]
            if None in functions:
                functions = [
                    stored.put(part, made) for part, made in zip(parts, make(), strict=True)
                ]
            TensorIntrin.register(name, *functions)
    return name


def keep() -> None:
    """Save the intrinsics made for later processes."""
    with _LOCK:
        # empty: no intrinsic was requested, so that none was made
        if _script_cache.cache_info().currsize:
            _script_cache().save()


def wmma_group(row: Instruction, *, trans_b: bool) -> dict[str, str]:
    """Intrinsics of a `wmma` instruction by what they do, named as TVM names its own.

    Parameters
    ----------
    trans_b
        Whether B is column-major, (n, k).

    Raises
    ------
    ValueError
        The instruction is of another family.
    """
    if row.family != "wmma":
        raise ValueError(f"{row.name} is not of the wmma family")
    return _all_registered(_wmma_makers(row, trans_b))


def mma_group(row: Instruction, layout: Layout = BY_ROWS) -> dict[str, str] | None:
    """Intrinsics of an `mma` instruction by what they do; None where its loads cannot be made.

    Fragments are laid out for 16 x 8 results (TVM, multi_level_tiling_tensor_core.cc). TVM has
    those of m16n8k8 with row-major operands. 8-bit operands have to be contiguous along k.
    """
    if not mma_loads.is_usable(row, layout):
        return None
    return _all_registered(_mma_makers(row, layout))


def register_named_in(text: str) -> None:
    """Register our intrinsics that a text names: traces of a database, a module's JSON.

    Needed to replay a trace in a process that has generated no design space.
    """
    wanted = {*_NAME.findall(text)}
    if not wanted:
        return
    import_intrinsics()
    for row in INSTRUCTIONS.values():
        for layout in LAYOUTS:
            if row.family == "wmma" and layout.is_stock:
                makers = _wmma_makers(row, layout.transposed_b)
            elif mma_loads.is_usable(row, layout):
                makers = _mma_makers(row, layout)
            else:
                continue
            for name, make in makers.values():
                if name in wanted:
                    registered(name, make)
    keep()


def _all_registered(makers: Mapping[str, tuple[str, Maker]]) -> dict[str, str]:
    import_intrinsics()
    return {what: registered(name, make) for what, (name, make) in makers.items()}


def _wmma_makers(row: Instruction, trans_b: bool) -> dict[str, tuple[str, Maker]]:
    """Names of a `wmma` instruction's intrinsics and the functions that make them, by purpose."""
    made, size = cuda_intrinsics(), row.shape
    shape, scope = "x".join(map(str, size)), SHARED.replace(".", "_")
    (given, _, accumulator), suffix = row.ptx_types, "_trans" * trans_b

    def load(is_b: bool, by_columns: bool) -> Maker:
        return partial(made.get_wmma_load_intrin, *size, row.operands, SHARED, is_b, by_columns)

    product = partial(made.get_wmma_sync_intrin, *size, row.operands, row.accumulator, trans_b)
    return {
        "init": (
            f"wmma_fill_{shape}_{accumulator}",
            partial(made.get_wmma_fill_intrin, *size, row.accumulator),
        ),
        "load_a": (f"wmma_load_{shape}_{given}_a_{scope}", load(False, False)),
        "load_b": (f"wmma_load_{shape}_{given}_b{suffix}_{scope}", load(True, trans_b)),
        "compute": (f"wmma_sync_{shape}_{given}{given}{accumulator}{suffix}", product),
        "store": (
            f"wmma_store_{shape}_{accumulator}_{scope}",
            partial(made.get_wmma_store_intrin, *size, row.accumulator, SHARED),
        ),
    }


def _mma_init(row: Instruction) -> Any:
    """The intrinsic that clears the accumulators; TVM's clears floats only."""
    if row.accumulator == "int32":
        return clear_accumulators(row)
    m, n, _k = row.shape
    return cuda_intrinsics().get_mma_init_intrin(m, n, mma_loads.STOCK_K, row.accumulator)


def _mma_makers(row: Instruction, layout: Layout) -> dict[str, tuple[str, Maker]]:
    """As `_wmma_makers`, of an `mma` instruction."""
    made, (m, n, k) = cuda_intrinsics(), row.shape
    is_stock, depth = mma_loads.has_tvm_intrinsics(row, layout), mma_loads.depth_of(row, layout)
    shape, (given, _, accumulator) = f"m{m}n{n}k{depth}", row.ptx_types
    scope = SHARED.replace(".", "_")
    lying = replace(layout, swapped=False).suffix
    # a product deeper than one instruction takes several
    steps = "" if depth == k else f"_by_k{k}"

    def load(which: str) -> Any:
        if not is_stock:
            return mma_loads.load(row, which, SHARED, layout)
        return made.get_mma_load_intrin(32, 32, k, row.operands, SHARED, which == "b", False)

    def product() -> Any:
        if not is_stock:
            return mma_product(row, layout)
        return made.get_mma_sync_intrin(m, n, k, row.operands, row.accumulator, False)

    def store() -> Any:
        return made.get_mma_store_dummy_intrin(m, n, mma_loads.STOCK_K, row.accumulator)

    names = {
        f"load_{which}": (
            f"mma_load_{shape}_{given}_{which.upper()}{lying}_{scope}",
            partial(load, which),
        )
        for which in "ab"
    }
    return {
        # TVM's for 16 x 8 accumulators, of any k
        "init": (f"mma_init_m{m}n{n}k{mma_loads.STOCK_K}_{accumulator}", partial(_mma_init, row)),
        **names,
        # the rule recognises `mma` by the prefix of this name
        "compute": (f"mma_sync_{shape}_{given}{given}{accumulator}{layout.suffix}{steps}", product),
        "store": (f"mma_store_m{m}n{n}k{mma_loads.STOCK_K}_{accumulator}_global", store),
        # for our designs; stock's rule does not use it
        "store_shared": (
            f"mma_store_m{m}n{n}k{mma_loads.STOCK_K}_{accumulator}_{scope}",
            partial(store_accumulators, row, SHARED),
        ),
    }
