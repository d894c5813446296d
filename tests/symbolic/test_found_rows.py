"""Rows that the closed form once got wrong, found by drawing shapes at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pruner_ms.tvm_compat.paths import te, te_workload, topi
from tests.support.operators import OPERATORS, context_of
from tests.support.oracle import Task, disagreements, task_of

HALF = {"in_dtype": "float16", "out_dtype": "float32"}
FLOAT16 = {"in_dtype": "float16", "out_dtype": "float16"}
CHAR = {"in_dtype": "int8", "out_dtype": "int32"}


@dataclass(frozen=True)
class Case:
    """A workload on a target, one of its sketches, and decision rows of that."""

    build: Callable[[], Any]
    space: str
    sketch: int
    rows: tuple[tuple[int, ...], ...]
    doubted: int = 0
    """How many of the rows, from the first, are left to the oracle."""


CASES = {
    # the condition of the padding is not one digit of the fetch: idle threads count in the region
    "idle_threads": Case(
        lambda: te_workload.matmul(1000, 128, 96, **CHAR),
        "cuda-tensorcore",
        1,
        (
            (7, 3, 3, 1, 1, 2, 1, 4, 1, 1, 3, 2, 1, 2, 3, 1, 3),
            (7, 1, 3, 1, 3, 1, 1, 2, 1, 4, 2, 1, 3, 2, 5, 3, 5),
            (7, 3, 3, 1, 1, 2, 2, 2, 1, 1, 3, 1, 2, 2, 1, 2, 7),
        ),
        doubted=1,
    ),
    # a tile of the filter's columns is all that the quotient divides by: idle threads go beyond it
    "idle_quotient": Case(
        OPERATORS["conv2d_half_bn_relu"],
        "tensorcore",
        12,
        ((4, 2, 1, 1, 1, 1, 4, 1, 1, 1, 3, 3, 1, 1, 0, 3, 6),),
    ),
    # stride and dilation have no common unit: TVM leaves the indices as the inverse map has them
    "stride_dilation": Case(
        lambda: te_workload.conv2d_nhwc(1, 17, 20, 32, 100, 3, 3, 1, 2, **FLOAT16),
        "cuda-tensorcore",
        0,
        ((1, 1, 1, 1, 2, 1, 1, 1, 7, 1, 3, 6, 1, 1, 1, 1, 4),),
    ),
    "stride_dilation_mma": Case(
        lambda: te_workload.conv2d_nhwc(1, 27, 27, 3, 128, 3, 3, 1, 2, **HALF),
        "cuda-mma",
        0,
        ((1, 3, 1, 1, 2, 2, 1, 2, 4, 1, 1, 1, 4, 5),),
    ),
    # a fused loop counts groups, and its inner part has as many iterations as a group's share:
    # TVM loses sight of the group (not so in the last row)
    "hidden_group": Case(
        OPERATORS["conv2d_grouped_nchw"],
        "llvm",
        1,
        (
            (1, 1, 1, 1, 16, 2, 1, 1, 1, 1, 7, 2, 2, 1, 7, 1, 2, 2, 3, 1, 3, 1, 2, 9),
            (1, 1, 1, 1, 16, 2, 1, 1, 1, 7, 1, 2, 2, 1, 7, 1, 2, 2, 3, 1, 3, 1, 1, 6),
            (1, 1, 1, 1, 16, 2, 1, 1, 1, 7, 2, 1, 2, 1, 1, 7, 2, 2, 1, 3, 1, 3, 0, 6),
            (1, 1, 1, 1, 16, 2, 1, 1, 2, 1, 7, 1, 2, 7, 1, 1, 2, 2, 1, 3, 3, 1, 1, 8),
        ),
        doubted=3,
    ),
    # a digit between others that moves more slowly than the loop keeps its lanes: no ramp
    "slow_digits": Case(
        lambda: te_workload.transpose_batch_matmul(2, 128, 4, 32, **CHAR),
        "cuda-mma",
        0,
        (
            (1, 1, 2, 1, 1, 1, 4, 1, 1, 1, 2, 4, 2, 4, 2, 1, 4, 8, 1, 4, 4, 8, 1, 2, 4, 2),
            (1, 2, 1, 1, 1, 1, 1, 2, 1, 2, 2, 4, 2, 4, 2, 4, 1, 8, 2, 2, 2, 16, 1, 4, 4, 3),
            (1, 1, 2, 1, 1, 2, 1, 2, 1, 1, 1, 4, 1, 1, 32, 2, 2, 16, 1, 2, 1, 32, 1, 4, 4, 4),
        ),
    ),
    # one tile is all there is: TVM sees that what is read ends before the padding
    "single_tile": Case(
        lambda: te_workload.conv2d_nhwc(1, 9, 9, 32, 32, 3, 1, 0, **FLOAT16),
        "cuda-mma",
        0,
        (
            (1, 1, 2, 2, 1, 1, 1, 1, 1, 4, 9, 4, 1, 4),
            (1, 1, 1, 4, 1, 1, 1, 1, 4, 1, 18, 1, 2, 7),
        ),
    ),
    # a digit of one value does not move in iterations that the last threads leave out
    "unit_digit": Case(
        lambda: te_workload.matmul(96, 192, 16, **CHAR),
        "cuda-tensorcore",
        0,
        ((1, 3, 1, 1, 2, 2, 2, 1, 1, 3, 1, 1, 1, 5, 4, 4, 2),),
    ),
    # the loop of a padded reduction keeps its variable: TVM sees no end, of rows or channels
    "padded_reduction_mma": Case(
        lambda: te_workload.conv2d_nhwc(1, 32, 28, 3, 32, 3, 3, 2, 1, **FLOAT16),
        "cuda-mma",
        0,
        (
            (1, 2, 1, 4, 1, 1, 1, 1, 1, 4, 1, 2, 2, 1),
            (4, 1, 1, 2, 1, 1, 1, 1, 1, 4, 1, 1, 4, 1),
            (2, 1, 1, 4, 1, 1, 1, 1, 1, 4, 2, 1, 2, 1),
        ),
    ),
    # an index is a remainder, and only the threads that are idle come to its end
    "idle_threads_wrap": Case(
        lambda: te_workload.conv2d_nhwc(1, 16, 16, 32, 32, 3, 1, 1, **HALF),
        "tensorcore",
        12,
        ((1, 2, 4, 1, 1, 2, 1, 2, 1, 1, 9, 1, 2, 1, 2, 2, 1),),
    ),
    # groups and tiles of rows in them are one loop over blocks, whose cycles TVM does count
    "cycles_of_one_loop": Case(
        OPERATORS["conv2d_grouped_half"],
        "tensorcore",
        3,
        ((2, 2, 1, 4, 1, 2, 1, 4, 3, 3, 2, 1), (1, 2, 8, 1, 2, 1, 2, 2, 6, 1, 3, 0)),
    ),
    # sums of a factor of several groups: what the block divides is one variable again
    "gathered_sums": Case(
        OPERATORS["conv2d_grouped_half"],
        "tensorcore",
        4,
        ((2, 2, 2, 2, 1, 1, 1, 8, 1, 9, 2, 5), (1, 1, 4, 4, 1, 1, 1, 8, 1, 18, 1, 6)),
    ),
    # parts of sums that blocks of threads share rows of: all of the parts' buffer is written
    "parts_of_several_tiles": Case(
        lambda: te_workload.matmul(128, 768, 3072, **HALF),
        "tensorcore",
        3,
        ((2, 2, 2, 1, 3, 2, 4, 4, 2, 12, 1, 0, 1), (2, 1, 4, 1, 1, 6, 8, 2, 3, 2, 4, 1, 3)),
    ),
    # a padding inlined into the rfactor block is no condition of the write-back block
    "conditions_of_rfactor": Case(
        lambda: _average(8, 7, 3, 1),
        "llvm",
        1,
        ((1, 9, 3, 2, -1, -2), (3, 3, 2, 2, -1, -2), (3, 3, 3, 2, 2, -2)),
    ),
}


def _average(channels: int, size: int, kernel: int, stride: int) -> list[Any]:
    x = te.placeholder((1, channels, size, size), name="A")
    return [x, topi.nn.pool2d(x, [kernel] * 2, [stride] * 2, [1, 1], [1] * 4, "avg")]


@pytest.mark.parametrize("name", CASES)
def test_rows_once_wrong_equal_what_tvm_makes_of_them(name: str) -> None:
    case = CASES[name]
    task = _task(name)
    sketch = task.space[case.sketch]
    rows = np.array(case.rows)
    program = sketch.program(rows)
    assert program.supported.tolist() == [i >= case.doubted for i in range(len(rows))]
    for i in range(case.doubted, len(rows)):
        reading = task.read(sketch, rows[i], unrolled=True)
        assert not list(disagreements(program, i, rows[i], reading)), case.rows[i]


def test_rows_whose_loops_depend_on_others_are_refused_before_replay() -> None:
    task = task_of(*context_of(lambda: _average(8, 7, 3, 1), "llvm"))
    sketch = task.space[1]
    # the padding follows the factored loop, and the loop inside of that runs
    rows = np.array([(3, 3, 0, -1, 1, 5), (3, 3, 0, -1, 1, 2), (1, 9, 0, -1, 1, 5)])
    accepted = [task.read(sketch, row).accepted for row in rows]
    assert not all(accepted)
    assert sketch.accepted(rows).tolist() == accepted


def _task(name: str) -> Task:
    return task_of(*context_of(CASES[name].build, CASES[name].space))
