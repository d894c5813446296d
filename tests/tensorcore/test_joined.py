"""Padding where axes of the result become one: what TVM would cut off in the wrong place."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.symbolic.buildable import buildable
from pruner_ms.tensorcore.listing import products
from pruner_ms.tensorcore.rule import by_groups
from pruner_ms.tensorcore.strides import joins_axes
from pruner_ms.tensorcore.verdicts import JOINED
from pruner_ms.tvm_compat.paths import VERSION, Schedule, Target, te, te_workload
from pruner_ms.tvm_compat.schedules import get_block
from tests.support.designs import design_of, shortest_first
from tests.support.device import kernels, run
from tests.support.operators import TARGETS, context_of
from tests.support.oracle import task_of
from tests.support.products import batched, with_relu

HALF = {"in_dtype": "float16", "out_dtype": "float32"}
HEADS, LENGTH, GROUPS = 2, 16, 2


def grouped(channels):
    """An image of 1 x 1 windows in two groups of so many channels of the result."""
    return te_workload.conv2d_nhwc(1, 4, 4, 32, GROUPS * channels, 1, 1, 0, 1, GROUPS, **HALF)


def image(side, channels, results, kernel, around):
    return te_workload.conv2d_nhwc(1, side, side, channels, results, kernel, 1, around, **HALF)


def heads_side_by_side(size, quotient=te.floordiv, remainder=te.floormod):
    """A product of each head, whose results are one row for all heads."""
    *factors, sums = batched((HEADS,), LENGTH, size, 32, turned=False)

    def joined(i, j):
        return sums[quotient(j, size), i, remainder(j, size)]

    return [*factors, te.compute((LENGTH, HEADS * size), joined, name="D")]


@pytest.mark.parametrize(
    ("tensors", "block", "joins"),
    [
        (grouped(12), "conv2d_nhwc", False),
        (with_relu(grouped(12)), "conv2d_nhwc", True),
        (heads_side_by_side(24), "C", True),
        (heads_side_by_side(24, te.truncdiv, te.truncmod), "C", True),
        (with_relu(te_workload.matmul(40, 24, 32, **HALF)), "C", False),
        (with_relu(batched((HEADS,), 40, 24, 32, turned=False)), "C", False),
        (
            with_relu(te_workload.conv2d_nhwc(1, 5, 5, 16, 24, 3, 1, 1, **HALF)),
            "conv2d_nhwc",
            False,
        ),
    ],
    ids=[
        "groups",
        "groups, relu",
        "heads",
        "heads, truncated",
        "one product",
        "several products",
        "image",
    ],
)
def test_what_joins_axes(tensors, block, joins):
    schedule = Schedule(te.create_prim_func(tensors))
    block_rv = get_block(schedule, block)
    cut = by_groups(schedule, block_rv)
    assert (cut is not None) == (tensors[0].shape[-1] == 32 and block != "C")
    assert joins_axes(cut or schedule, block_rv) == joins


@pytest.mark.parametrize(
    ("tensors", "fitting"),
    [
        # of 12 columns none is a multiple, of 8 that of one shape, of 32 those of all
        (with_relu(grouped(12)), set()),
        (with_relu(grouped(8)), set()),
        (with_relu(grouped(32)), {"m16n16k16", "m8n32k16"}),
        (heads_side_by_side(24), set()),
        (heads_side_by_side(16), {"m16n16k16"}),
    ],
)
def test_designs_that_would_be_padded_are_not_offered(tensors, fitting):
    target = Target({**TARGETS["cuda"], "arch": "sm_80"})
    (block,) = products(te.create_prim_func(tensors), target)
    wmma = [v for v in block.verdicts if v.instruction.family == "wmma"]
    assert len(wmma) == 3
    assert {v.instruction.name.split("_")[1] for v in wmma if v.designs} == fitting
    assert {v.reason for v in wmma if not v.designs} == {JOINED}


@pytest.mark.skipif(VERSION.startswith(("0.17", "0.25")), reason="kernels look different there")
@pytest.mark.parametrize("size", [16, 32])
def test_what_is_joined_is_right_where_nothing_is_padded(size, rng):
    task = task_of(*context_of(lambda: heads_side_by_side(size), "tensorcore"))
    a = rng.integers(-3, 4, (HEADS, LENGTH, 32)).astype(np.float16)
    b = rng.integers(-3, 4, (HEADS, 32, size)).astype(np.float16)
    exact = np.concatenate([*(a.astype(np.float64) @ b.astype(np.float64))], axis=1)
    seen = 0
    for sketch in task.space:
        if not design_of(sketch.trace)[0]:
            continue
        rows = sketch.sample(256, rng)
        program = sketch.program(rows)
        usable = program.supported & program.gpu.valid & buildable(program)
        schedule = sketch.replay(rows[shortest_first(program, usable)[0]])
        schedule.enter_postproc()
        assert all(postproc.apply(schedule) for postproc in task.postprocs)
        (func,) = kernels(schedule.mod, task.target)
        result = np.full(exact.shape, 99, np.float32)
        run(func, {"A": a, "B": b, "D": result})
        np.testing.assert_array_equal(result, exact)
        seen += 1
    assert seen
