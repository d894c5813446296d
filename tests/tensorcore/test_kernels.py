"""Kernels as TVM gives them to its code generator, run on an emulated grid: numbers, and hazards.

Descriptions on a CPU (test_space) show neither barriers nor waits nor permuted layouts; these do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace

import ml_dtypes  # noqa: F401  numpy's bfloat16
import numpy as np
import pytest

from pruner_ms.symbolic.buildable import buildable
from pruner_ms.tensorcore.layouts import Layout
from pruner_ms.tvm_compat.paths import VERSION
from tests.support.designs import accepted, design_of, shortest_first
from tests.support.device import kernels, run
from tests.support.kernel import Grid
from tests.support.kernel_memory import Hazard
from tests.support.kernel_ops import KERNEL_INSTRUCTIONS
from tests.support.operators import context_of
from tests.support.oracle import task_of
from tests.support.products import batched, laid_out, with_bias

pytestmark = pytest.mark.skipif(
    VERSION.startswith(("0.17", "0.25")), reason="lowered kernels look different there"
)

SHAPE = (64, 64, 64)
LONG = (64, 64, 256)
"""Where B is stored by columns, a step of the outer loop is 32 deep or more."""

PRODUCTS = {
    "float16": (SHAPE, "float16", "float32"),
    "bfloat16": (SHAPE, "bfloat16", "float32"),
    "int8": (SHAPE, "int8", "int32"),
    "odd": ((40, 24, 48), "float16", "float16"),
    "long": (LONG, "float16", "float32"),
    "dense": (LONG, "float16", "float32"),
    "dense tf32": (LONG, "float32", "float32"),
    "tf32": (LONG, "float32", "float32"),
    "tf32, odd": ((40, 24, 48), "float32", "float32"),
    "A dense": (LONG, "float16", "float32"),
    "A dense tf32": (LONG, "float32", "float32"),
    "A dense dense swapped": (LONG, "float16", "float32"),
    "swapped": (SHAPE, "float16", "float32"),
    "swapped int8, dense": (LONG, "int8", "int32"),
    "swapped bias": (SHAPE, "float16", "float32"),
    "dense int8": (LONG, "int8", "int32"),
    "batched": ((2, 3, *SHAPE), "float16", "float32"),
    "batched dense": ((2, 3, *LONG), "float16", "float32"),
    "bias": (SHAPE, "float16", "float32"),
    "dense bias int8": (LONG, "int8", "int32"),
    "batched bias": ((2, 3, *SHAPE), "float16", "float32"),
    "batched bias, long": ((2, 3, *LONG), "float16", "float32"),
}


def tensors(product: str):
    product_tensors = factors_and_sums(product)
    return with_bias(product_tensors) if "bias" in product else product_tensors


def factors_and_sums(product: str):
    (*batch, m, n, k), dtype, sums = PRODUCTS[product]
    if batch:
        return batched(batch, m, n, k, turned="dense" in product)
    return laid_out(layout_of(product), m, n, k, dtype, sums)


def layout_of(product: str):
    """How factors lie, in the words of a product's name."""
    rest = product.removeprefix("A dense")
    return Layout("A dense" in product, "dense" in rest, "swapped" in product)


@lru_cache(maxsize=8)
def task(product: str):
    space = "tensorcore-tf32" if "tf32" in product else "tensorcore"
    return task_of(*context_of(lambda: tensors(product), space))


BEYOND = 3
"""Steps of a pipeline's outer loop beyond its stages: filled, it goes on for as many at least."""


def steps_of(program):
    """Steps of the outer loop over the sums, of each row."""
    update = next(s for s in program.statements if s.reduction)
    return next(loop.extent for loop in update.loops if loop.reduction)


@lru_cache(maxsize=32)
def kernel(product: str, instruction: str, ahead: int):
    """A kernel of several warps with a short program, of a design.

    Of long sums one whose pipeline is filled for a while.
    """
    product_task = task(product)
    sketch = next(s for s in product_task.space if design_of(s.trace) == (instruction, ahead))
    is_long = PRODUCTS[product][0][-1] > SHAPE[-1]
    rows = sketch.sample(1024 if is_long else 256, np.random.default_rng(0))
    program = sketch.program(rows)
    usable = program.gpu.valid & buildable(program) & (program.gpu.threads >= 64)
    if is_long:
        usable &= steps_of(program) >= program.gpu.stages + BEYOND
    for mod in accepted(
        product_task, sketch, rows[shortest_first(program, usable)[: usable.sum()]]
    ):
        (func,) = kernels(mod, product_task.target)
        return func
    raise LookupError(instruction)


def difference(product: str, func, instructions=KERNEL_INSTRUCTIONS) -> int:
    """Elements of the result that are wrong; small integers, so that all sums are exact."""
    (*batch, m, n, k), dtype, sums = PRODUCTS[product]
    rng = np.random.default_rng(0)
    shapes = ((*batch, m, k), (*batch, k, n))
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    c = np.full((*batch, m, n), 99).astype(sums)
    layout = layout_of(product)
    first, given = (
        np.ascontiguousarray(x.swapaxes(-1, -2)) if turned else x
        for x, turned in ((a, layout.transposed_a), (b, layout.transposed_b))
    )
    expected = a.astype(np.float64) @ b.astype(np.float64)
    arrays = {"A": first, "B": given, "C": c}
    if "bias" in product:
        bias = rng.integers(-9, 10, n).astype(sums)
        arrays = {"A": first, "B": given, "bias": bias, "D": c}
        expected = np.maximum(expected + bias, 0)
    run(func, arrays, instructions)
    return int((c.astype(np.float64) != expected).sum())


DESIGNS = [
    ("float16", "mma_sync_m16n8k16_f16f16f32", 2),
    ("float16", "mma_sync_m16n8k8_f16f16f32", 2),
    ("long", "mma_sync_m16n8k16_f16f16f32", 3),
    ("dense", "mma_sync_m16n8k32_f16f16f32_trans_by_k16", 3),
    ("batched bias, long", "mma_sync_m16n8k8_f16f16f32", 3),
    ("float16", "wmma_sync_16x16x16_f16f16f32", 3),
    ("float16", "wmma_sync_32x8x16_f16f16f32_trans", 0),
    ("dense", "wmma_sync_16x16x16_f16f16f32_trans", 3),
    ("dense", "mma_sync_m16n8k32_f16f16f32_trans_by_k16", 2),
    ("dense", "mma_sync_m16n8k32_f16f16f32_trans_by_k8", 2),
    ("dense tf32", "mma_sync_m16n8k32_tf32tf32f32_trans_by_k8", 2),
    ("dense tf32", "mma_sync_m16n8k32_tf32tf32f32_trans_by_k4", 2),
    ("dense int8", "mma_sync_m16n8k32_s8s8s32_trans", 2),
    ("tf32", "mma_sync_m16n8k16_tf32tf32f32_by_k8", 3),
    ("tf32", "mma_sync_m16n8k16_tf32tf32f32_by_k4", 2),
    ("tf32, odd", "mma_sync_m16n8k16_tf32tf32f32_by_k8", 2),
    ("A dense", "mma_sync_m16n8k32_f16f16f32_transa_by_k16", 3),
    ("A dense", "mma_sync_m16n8k32_f16f16f32_transa_by_k8", 2),
    ("A dense tf32", "mma_sync_m16n8k32_tf32tf32f32_transa_by_k8", 3),
    ("A dense tf32", "mma_sync_m16n8k32_tf32tf32f32_transa_by_k4", 2),
    ("A dense dense swapped", "mma_sync_m16n8k32_f16f16f32_transa_trans_swapped_by_k8", 2),
    ("swapped", "mma_sync_m16n8k16_f16f16f32_swapped", 2),
    ("swapped bias", "mma_sync_m16n8k16_f16f16f32_swapped", 2),
    ("swapped int8, dense", "mma_sync_m16n8k32_s8s8s32_trans_swapped", 2),
    ("float16", "wmma_sync_8x32x16_f16f16f32", 0),
    ("float16", "", 3),
    ("bfloat16", "mma_sync_m16n8k16_bf16bf16f32", 2),
    ("bfloat16", "wmma_sync_16x16x16_bf16bf16f32", 2),
    ("int8", "wmma_sync_16x16x16_s8s8s32", 3),
    ("odd", "wmma_sync_16x16x16_f16f16f16", 2),
    ("batched", "mma_sync_m16n8k16_f16f16f32", 2),
    ("batched", "mma_sync_m16n8k8_f16f16f32", 2),
    ("batched dense", "mma_sync_m16n8k32_f16f16f32_trans_by_k16", 2),
    ("bias", "mma_sync_m16n8k16_f16f16f32", 2),
    ("dense bias int8", "mma_sync_m16n8k32_s8s8s32_trans", 2),
    ("batched bias", "mma_sync_m16n8k8_f16f16f32", 2),
]


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("product", "instruction", "ahead"), DESIGNS)
def test_a_kernel_is_right_and_does_not_rely_on_luck(product, instruction, ahead):
    assert difference(product, kernel(product, instruction, ahead)) == 0


def argument(i: int, change: Callable) -> Callable:
    """Another value of argument i of an instruction."""

    def changed(args):
        return [*args[:i], lambda: change(args[i]()), *args[i + 1 :]]

    return changed


def lanes_rolled(pointer):
    place = np.roll(pointer.place.reshape(-1, 32), 1, axis=1).reshape(pointer.place.shape)
    return type(pointer)(pointer.memory, place)


def first_register(pointer):
    return type(pointer)(pointer.memory, pointer.place * 0)


def operands_swapped(args):
    """Of `wmma.mma`: buffers and fragments of A and B."""
    return [*args[:2], *args[4:6], *args[2:4], *args[6:]]


DEEP = ("float16", "mma_sync_m16n8k16_f16f16f32", 2)
WMMA = ("float16", "wmma_sync_16x16x16_f16f16f32", 3)
COLUMNS = ("dense", "mma_sync_m16n8k32_f16f16f32_trans_by_k16", 2)
FURTHER = ("long", "mma_sync_m16n8k16_f16f16f32", 3)
INT8 = ("dense int8", "mma_sync_m16n8k32_s8s8s32_trans", 2)
FETCHED = ("A dense tf32", "mma_sync_m16n8k32_tf32tf32f32_transa_by_k8", 3)
EVERY, LAST, MIDDLE = "every", -1, "in the middle"
CHANGED = {
    "lanes point to the rows of their neighbours": (DEEP, "ldmatrix", argument(5, lanes_rolled)),
    "a matrix is turned": (DEEP, "ldmatrix", argument(0, lambda x: not x)),
    "lanes fetch what their neighbours should": (FETCHED, "call_extern", argument(2, lanes_rolled)),
    "what is fetched goes to one register": (FETCHED, "call_extern", argument(1, first_register)),
    "registers of another fragment": (DEEP, "mma", argument(7, lambda x: x * 0)),
    "sums of another fragment": (DEEP, "mma", argument(11, lambda x: x * 0)),
    "operands swapped": (WMMA, "tvm_mma_sync", operands_swapped),
    "a fragment by columns": (WMMA, "tvm_load_matrix_sync", argument(7, lambda x: "col_major")),
    "a wait for one group less": (DEEP, "wait_group", argument(0, lambda x: x + 1)),
    "a wait for one group less, wmma": (WMMA, "wait_group", argument(0, lambda x: x + 1)),
    "copies to the next place": (DEEP, "cp_async_raw", argument(1, lambda x: x + 8)),
    "copies of the wrong place": (WMMA, "cp_async_raw", argument(3, lambda x: x * 0)),
    "a wait for one group less, further ahead": (
        FURTHER,
        "wait_group",
        argument(0, lambda x: x + 1),
    ),
    "a wait for one group less, by columns": (COLUMNS, "wait_group", argument(0, lambda x: x + 1)),
}
DROPPED = {
    "no barrier": (DEEP, "tvm_storage_sync", EVERY),
    "no barrier, wmma": (WMMA, "tvm_storage_sync", EVERY),
    "the first barrier is missing": (DEEP, "tvm_storage_sync", 0),
    "one barrier is missing": (DEEP, "tvm_storage_sync", 1),
    "one barrier is missing, wmma": (WMMA, "tvm_storage_sync", 3),
    "the last barrier is missing": (DEEP, "tvm_storage_sync", LAST),
    "no group is committed": (DEEP, "commit_group", EVERY),
    "the tail of the sums is skipped": (DEEP, "mma", LAST),
    "the tail of the copies is skipped": (WMMA, "cp_async_raw", LAST),
    "sums are not cleared": (WMMA, "tvm_fill_fragment", LAST),
    "a part is not stored": (WMMA, "tvm_store_matrix_sync", LAST),
    # while the pipeline is full
    "no barrier, by columns": (COLUMNS, "tvm_storage_sync", EVERY),
    "no barrier, further ahead": (FURTHER, "tvm_storage_sync", EVERY),
    "one barrier is missing, further ahead": (FURTHER, "tvm_storage_sync", MIDDLE),
    "one barrier is missing, by columns": (COLUMNS, "tvm_storage_sync", MIDDLE),
    "one barrier is missing, fetched": (FETCHED, "tvm_storage_sync", MIDDLE),
    "the tail of what is fetched is skipped": (FETCHED, "call_extern", LAST),
    "one barrier is missing, by columns of bytes": (INT8, "tvm_storage_sync", MIDDLE),
}


def verdict(design, instructions) -> bool:
    """Whether a fault is seen."""
    try:
        return difference(design[0], kernel(*design), instructions) > 0
    except Hazard:
        return True


@pytest.mark.parametrize("fault", CHANGED)
def test_a_changed_instruction_is_seen(fault):
    design, name, change = CHANGED[fault]
    calls = []

    def faulty(grid, args):
        calls.append(name)
        return KERNEL_INSTRUCTIONS[name](grid, change(args))

    assert verdict(design, {**KERNEL_INSTRUCTIONS, name: faulty})
    assert calls


@pytest.mark.parametrize("fault", DROPPED)
def test_a_dropped_instruction_is_seen(fault):
    design, name, which = DROPPED[fault]
    total = count(design, name)
    dropped = {EVERY: range(total), MIDDLE: [total // 2]}.get(which) or [which % total]
    calls = []

    def faulty(grid, args):
        calls.append(name)
        if len(calls) - 1 not in dropped:
            KERNEL_INSTRUCTIONS[name](grid, args)

    assert verdict(design, {**KERNEL_INSTRUCTIONS, name: faulty})
    assert calls


def count(design, name: str) -> int:
    """How often a kernel comes to an instruction."""
    calls = []

    def counted(grid, args):
        calls.append(name)
        return KERNEL_INSTRUCTIONS[name](grid, args)

    assert difference(design[0], kernel(*design), {**KERNEL_INSTRUCTIONS, name: counted}) == 0
    return len(calls)


@pytest.mark.parametrize(("places", "aligned"), [(1, False), (2, False), (4, False), (8, True)])
def test_an_asynchronous_copy_begins_at_a_multiple_of_its_bytes(places, aligned):
    """Of eight halves; on a device anything else ends the kernel, whatever the numbers are."""

    def faulty(grid, args):
        return KERNEL_INSTRUCTIONS["cp_async_raw"](
            grid, argument(3, lambda x: np.maximum(x - places, x % 8))(args)
        )

    message = ""
    try:
        difference(DEEP[0], kernel(*DEEP), {**KERNEL_INSTRUCTIONS, "cp_async_raw": faulty})
    except Hazard as hazard:
        message = str(hazard)
    assert ("in global memory is not aligned" in message) is not aligned


def node(kind: str, **fields: object):
    """What stands for a node of TVM."""
    return type(kind, (SimpleNamespace,), {})(**fields)


@pytest.mark.parametrize(
    ("start", "step", "aligned"), [(0, 1, True), (4, 1, True), (6, 1, False), (6, 2, True)]
)
def test_a_store_of_a_vector_begins_at_a_multiple_of_its_bytes(start, step, aligned):
    """But for one whose elements do not follow one another: TVM stores each by itself."""
    number = {value: node("IntImm", value=value) for value in (1, 2, start)}
    index = node("Ramp", base=number[start], stride=number[step], lanes=4)
    value = node("Broadcast", value=number[1], lanes=4)
    buffer = node("Buffer", data="C", dtype="float32")
    store = node("BufferStore", buffer=buffer, indices=[index], value=value)
    result = np.zeros(16, np.float32)
    grid = Grid(node("PrimFunc", params=["C"], body=store), [result], {})
    if aligned:
        grid.run()
        assert result[start : start + 4 * step : step].tolist() == [1] * 4
    else:
        with pytest.raises(Hazard, match="a store of 16 bytes in global memory is not aligned"):
            grid.run()
