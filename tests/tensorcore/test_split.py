"""Split-K: where it is offered, into how many parts, and two kernels that add up to the product."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.draft.gpu import gpu_terms
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.buildable import buildable
from pruner_ms.tensorcore.split import LEAST_SUMS, TILE, parts_for
from pruner_ms.testing.designs import design_of, is_split, shortest_first
from pruner_ms.testing.device import kernels, run
from pruner_ms.testing.operators import context_of, tuning_context
from pruner_ms.testing.oracle import task_of
from pruner_ms.tvm_compat.paths import VERSION, te_workload

A100 = hardware_named("a100")


@pytest.mark.parametrize(
    ("m", "n", "k", "parts"),
    [
        (128, 768, 3072, (4, 8)),  # 24 tiles for 108 SMs
        (128, 768, 768, (2,)),  # a part is 384 long, a half of it would be 192
        (64, 64, 8192, (8, 16)),  # one tile: as many as there are
        (1024, 1024, 1024, ()),  # 256 tiles
        (128, 128, 400, ()),  # too short
        (128, 128, 16 * 37, ()),  # no part of whole tiles
    ],
)
def test_parts_by_hand(m, n, k, parts):
    assert parts_for(m, n, k, 16, 108) == parts


WMMA, MMA = "wmma_sync_16x16x16_f16f16f32", "mma_sync_m16n8k16_f16f16f32"
DESIGNS = [(WMMA, 0), (WMMA, 3), (MMA, 2), (MMA, 3)]


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 1 << 15), st.integers(1, 200))
def test_parts_are_whole_and_long_and_needed(m, n, k, units):
    for parts in parts_for(m, n, k, 16, units):
        assert k % (16 * parts) == 0 and k // parts >= LEAST_SUMS
        assert -(-m // TILE) * -(-n // TILE) * parts < 2 * units


@cache
def designs(m, n, k, batch=0):
    make = te_workload.batch_matmul_nkkm if batch else te_workload.matmul
    shape = (batch, m, n, k) if batch else (m, n, k)
    dtypes = {"in_dtype": "float16", "out_dtype": "float32"}
    return task_of(*context_of(lambda: make(*shape, **dtypes), "tensorcore"))


def split_of(task):
    return [sketch for sketch in task.space if is_split(sketch.trace)]


@pytest.mark.heavy
def test_it_is_offered_where_there_are_few_results_and_long_sums():
    found = split_of(designs(128, 128, 2048))
    kinds = [design_of(sketch.trace) for sketch in found]
    assert sorted(kinds) == sorted(DESIGNS * 2)
    for sketch in found:
        rows = sketch.sample(512, np.random.default_rng(0))
        assert sketch.closed and sketch.program(rows).supported.all()
    assert not split_of(designs(1024, 1024, 1024))
    assert not split_of(designs(64, 64, 2048, batch=2))


def test_the_draft_sees_that_parts_fill_the_device():
    """A tile or two on 108 SMs: the best in parts is drafted well ahead of the best whole."""
    best = {True: np.inf, False: np.inf}
    rng = np.random.default_rng(0)
    for sketch in designs(128, 128, 2048).space:
        if not design_of(sketch.trace)[0].startswith("wmma_sync_16x16"):
            continue
        rows = sketch.sample(2048, rng)
        program = sketch.program(rows)
        total = np.where(program.gpu.valid, gpu_terms(program, A100)["total"], np.inf)
        parted = is_split(sketch.trace)
        best[parted] = min(best[parted], total.min())
    assert best[True] < 0.8 * best[False]


@pytest.mark.skipif(VERSION.startswith(("0.17", "0.25")), reason="kernels look different there")
@pytest.mark.parametrize("design", DESIGNS)
def test_two_kernels_on_an_emulated_grid_add_up_to_the_product(design):
    """The parts, and their sum; small integers, so that all sums are exact."""
    task, rng = task_of(*tuning_context("gemm_half_long", "tensorcore")), np.random.default_rng(0)
    sketch = next(s for s in split_of(task) if design_of(s.trace) == design)
    rows = sketch.sample(256, rng)
    program = sketch.program(rows)
    usable = program.gpu.valid & buildable(program) & (program.gpu.threads >= 64)
    schedule = sketch.replay(rows[shortest_first(program, usable)[0]])
    schedule.enter_postproc()
    assert all(postproc.apply(schedule) for postproc in task.postprocs)
    a, b = (rng.integers(-3, 4, shape).astype("float16") for shape in ((32, 512), (512, 64)))
    arrays = {"A": a, "B": b, "C": np.full((32, 64), 99, np.float32)}
    arrays["C.rf"] = np.full((2, 32, 64), 77, np.float32)
    first, second = kernels(schedule.mod, task.target)
    run(first, arrays)
    run(second, arrays)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(arrays["C.rf"].sum(axis=0), exact)
    np.testing.assert_array_equal(arrays["C"], exact)
