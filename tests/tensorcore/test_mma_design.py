"""What stock's rule for `mma` does not take: padded, cut off, and right on an emulated grid."""

from __future__ import annotations

from functools import partial

import ml_dtypes  # noqa: F401  numpy's bfloat16
import numpy as np
import pytest

from pruner_ms.symbolic.buildable import RULES, buildable, pipeline_has_steps
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.layouts import BY_ROWS
from pruner_ms.tensorcore.mma_design import design, padding
from pruner_ms.tensorcore.registration import mma_group
from pruner_ms.tensorcore.rule import MMA_STAGES
from pruner_ms.tvm_compat.paths import VERSION, Schedule, te, te_workload
from pruner_ms.tvm_compat.schedules import get_block, has_block
from tests.support.designs import design_of, shortest_first
from tests.support.device import kernels, run
from tests.support.operators import TARGETS, context_of
from tests.support.oracle import task_of
from tests.support.products import batched, by_columns, convolved, with_bias, with_relu

HALF = {"in_dtype": "float16", "out_dtype": "float32"}


REPLAYED = 24

lowered = pytest.mark.skipif(
    VERSION.startswith(("0.17", "0.25")), reason="the emulator does not read lowered kernels there"
)


def image(side, channels, results, kernel, stride=1, around=0):
    return lambda: te_workload.conv2d_nhwc(
        2, side, side, channels, results, kernel, stride, around, **HALF
    )


def by_groups(count):
    def reference(x, w):
        pairs = zip(np.split(x, count, axis=3), np.split(w, count, axis=3), strict=True)
        return np.concatenate([convolved(some, own) for some, own in pairs], axis=3)

    return reference


def product(a, b):
    return a @ b


def of_sums():
    """A product of which a factor, that is not padded, is a sum itself."""
    a = te.placeholder((40, 64), name="A", dtype="float16")
    x = te.placeholder((64, 64, 2), name="X", dtype="float16")
    r, k = te.reduce_axis((0, 2), name="r"), te.reduce_axis((0, 64), name="k")
    b = te.compute((64, 64), lambda i, j: te.sum(x[i, j, r], axis=r), name="B")

    def product(i, j):
        return te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k)

    return [a, x, te.compute((40, 64), product, name="C")]


def rows_of(axes, n, k):
    """A product of rows that are several axes and one factor, as in a network's linear layers."""
    a = te.placeholder((*axes, k), name="A", dtype="float16")
    b = te.placeholder((k, n), name="B", dtype="float16")
    r = te.reduce_axis((0, k), name="k")

    def sums(*indices):
        *rows, j = indices
        return te.sum(a[(*rows, r)].astype("float32") * b[r, j].astype("float32"), axis=r)

    return [a, b, te.compute((*axes, n), sums, name="C")]


def test_a_factor_that_is_not_padded_may_be_a_sum():
    row = INSTRUCTIONS["mma_m16n8k16_f16f16f32"]
    schedule = Schedule(te.create_prim_func(of_sums()))
    mma_schedule = design(
        schedule,
        get_block(schedule, "C"),
        row,
        mma_group(row),
        layout=BY_ROWS,
        through=True,
        limits=TARGETS["cuda"],
    )
    assert mma_schedule is not None and has_block(mma_schedule, "B")


PRODUCTS = {
    # tensors, shapes of the factors, result
    "rows": (lambda: te_workload.matmul(40, 64, 64, **HALF), (40, 64), (64, 64), product),
    "columns": (lambda: te_workload.matmul(64, 24, 64, **HALF), (64, 64), (64, 24), product),
    "sums": (lambda: te_workload.matmul(64, 64, 72, **HALF), (64, 72), (72, 64), product),
    "all, no vectors": (
        lambda: te_workload.matmul(33, 33, 33, **HALF),
        (33, 33),
        (33, 33),
        product,
    ),
    "one row": (lambda: te_workload.matmul(1, 64, 64, **HALF), (1, 64), (64, 64), product),
    "one column": (lambda: te_workload.matmul(100, 1, 96, **HALF), (100, 96), (96, 1), product),
    "by columns": (
        lambda: by_columns(50, 40, 80, "float16", "float32"),
        (50, 80),
        (40, 80),
        lambda a, b: a @ b.T,
    ),
    "bias": (
        lambda: with_bias(te_workload.matmul(50, 40, 72, **HALF)),
        (50, 72),
        (72, 40),
        lambda a, b, bias: np.maximum(a @ b + bias, 0),
    ),
    "bias, sums": (
        lambda: with_bias(te_workload.matmul(64, 64, 72, **HALF)),
        (64, 72),
        (72, 64),
        lambda a, b, bias: np.maximum(a @ b + bias, 0),
    ),
    "pixels": (image(7, 16, 32, 3, 1, 1), (2, 7, 7, 16), (3, 3, 16, 32), convolved),
    "every second pixel": (
        image(9, 16, 32, 3, 2, 1),
        (2, 9, 9, 16),
        (3, 3, 16, 32),
        partial(convolved, stride=2),
    ),
    # not padded: stock's rule takes no batch, and no image of 1 x 1
    "batch, relu": (
        lambda: with_relu(batched((3,), 64, 96, 64, turned=False)),
        (3, 64, 64),
        (3, 64, 96),
        lambda a, b: np.maximum(a @ b, 0),
    ),
    # of rows that are several axes of one element stock's rule for `wmma` makes nothing
    "one row of axes": (
        lambda: rows_of((1, 1), 40, 72),
        (1, 1, 72),
        (72, 40),
        product,
    ),
    "batch of one, one row": (
        lambda: batched((1, 1), 1, 40, 72, turned=False),
        (1, 1, 1, 72),
        (1, 1, 72, 40),
        product,
    ),
    "one pixel of each image": (
        image(1, 64, 40, 1),
        (2, 1, 1, 64),
        (1, 1, 64, 40),
        partial(convolved, around=0),
    ),
    # each of several products is padded, before their rows become one axis
    "batch, all odd": (
        lambda: batched((3,), 50, 50, 72, turned=True),
        (3, 50, 72),
        (3, 50, 72),
        lambda a, b: a @ b.swapaxes(1, 2),
    ),
    "batch, rows": (
        lambda: with_relu(batched((2, 2), 7, 64, 64, turned=False)),
        (2, 2, 7, 64),
        (2, 2, 64, 64),
        lambda a, b: np.maximum(a @ b, 0),
    ),
    "batch, sums": (
        lambda: batched((2,), 64, 32, 72, turned=False),
        (2, 64, 72),
        (2, 72, 32),
        product,
    ),
    "bias, batch": (
        lambda: with_bias(batched((3,), 33, 40, 64, turned=False)),
        (3, 33, 64),
        (3, 64, 40),
        lambda a, b, bias: np.maximum(a @ b + bias, 0),
    ),
    "pixels of groups": (
        lambda: te_workload.conv2d_nhwc(1, 8, 8, 64, 64, 3, 1, 1, 1, 2, **HALF),
        (1, 8, 8, 64),
        (3, 3, 32, 64),
        by_groups(2),
    ),
    "each pixel": (
        image(8, 64, 64, 1),
        (2, 8, 8, 64),
        (1, 1, 64, 64),
        partial(convolved, around=0),
    ),
}


PERHAPS = ("one column", "one row of axes", "batch of one, one row")
"""Of one row whose columns are cut off, too, what TVM takes for a region is not always known."""


def arrays_of(factors, result, bias):
    """Arguments of a kernel by the names that they may have."""
    a, b = factors
    sums = dict.fromkeys(("C", "D", "conv2d_nhwc"), result)
    return {"A": a, "B": b, "inputs": a, "weight": b, "bias": bias, **sums}


@pytest.mark.sampled(8)
@lowered
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_right(name, rng):
    make, *shapes, reference = PRODUCTS[name]
    task, seen = task_of(*context_of(make, "tensorcore")), 0
    factors = [rng.integers(-3, 4, shape).astype(np.float16) for shape in shapes]
    for sketch in task.space:
        instruction, ahead = design_of(sketch.trace)
        if not instruction.startswith("mma") or ahead > MMA_STAGES:
            continue
        rows = sketch.sample(2048, rng)
        program = sketch.program(rows)
        assert program.supported.all() or (name in PERHAPS and program.supported.any())
        usable = program.supported & program.gpu.valid & buildable(program)
        drawn = rng.permutation(np.flatnonzero(usable))[:REPLAYED]
        for row in drawn:
            sketch.replay(rows[row])  # TVM refuses none of them
        for row in (shortest_first(program, usable)[0], drawn[0]):
            schedule = sketch.replay(rows[row])
            schedule.enter_postproc()
            assert all(postproc.apply(schedule) for postproc in task.postprocs)
            (func,) = kernels(schedule.mod, task.target)
            bias = rng.integers(-9, 10, shapes[1][-1]).astype(np.float32)
            given = [x.astype(np.float64) for x in factors] + [bias] * name.startswith("bias")
            exact = reference(*given)
            result = np.full(exact.shape, 99, np.float32)
            run(func, arrays_of(factors, result, bias))
            np.testing.assert_array_equal(result, exact, err_msg=str(rows[row]))
            seen += 1
    assert seen >= 4


@pytest.mark.parametrize(
    ("tensors", "block", "expected"),
    [
        (lambda: te_workload.matmul(64, 96, 32, **HALF), "C", (False, False)),
        (lambda: te_workload.matmul(48, 96, 32, **HALF), "C", (True, False)),
        (lambda: te_workload.matmul(64, 96, 48, **HALF), "C", (False, True)),
        (image(8, 16, 32, 3, 1, 1), "conv2d_nhwc", (False, True)),
        (image(7, 32, 32, 1), "conv2d_nhwc", (True, False)),
        (lambda: batched((2,), 40, 40, 40, turned=False), "C", (True, True)),
        (lambda: batched((3,), 32, 64, 96, turned=False), "C", (False, False)),
    ],
)
def test_what_is_padded(tensors, block, expected):
    schedule = Schedule(te.create_prim_func(tensors()))
    assert padding(schedule.get(get_block(schedule, block))) == expected


@lowered
def test_a_pipeline_that_is_not_filled_never_builds(rng):
    """Copies that run ahead by three steps of a loop of two; every other rule holds."""
    task = task_of(*context_of(lambda: te_workload.matmul(64, 64, 128, **HALF), "tensorcore"))
    sketch = next(
        s
        for s in task.space
        if design_of(s.trace) == ("mma_sync_m16n8k16_f16f16f32", MMA_STAGES + 1)
    )
    rows = sketch.sample(2048, rng)
    program = sketch.program(rows)
    outer = next(
        next(loop for loop in s.loops if loop.reduction) for s in program.statements if s.reduction
    )
    others = [rule(program) for rule in RULES if rule is not pipeline_has_steps]
    usable = program.supported & program.gpu.valid & np.all(others, axis=0)
    assert (pipeline_has_steps(program) == (outer.extent > MMA_STAGES))[usable].all()
    short = rows[usable & (outer.extent == MMA_STAGES)]
    schedule = sketch.replay(short[0])
    schedule.enter_postproc()
    assert all(postproc.apply(schedule) for postproc in task.postprocs)
    with pytest.raises(TypeError, match="Call"):  # of the number of copies that a wait leaves open
        (func,) = kernels(schedule.mod, task.target)
        arrays = {name: np.zeros((64, 128), np.float16) for name in "AB"}
        run(func, {**arrays, "C": np.zeros((64, 64), np.float32)})
