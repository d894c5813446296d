"""Split-K: where it is offered, into how many parts, and two kernels that add up to the product."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.draft.gpu import gpu_terms
from pruner_ms.hardware import hardware_named
from pruner_ms.tensorcore.split import LEAST_SUMS, TILE, parts_for
from pruner_ms.testing.designs import design_of, is_split
from pruner_ms.testing.operators import context_of
from pruner_ms.testing.oracle import task_of
from pruner_ms.tvm_compat.paths import te_workload

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


def test_it_is_offered_where_there_are_few_results_and_long_sums():
    found = split_of(designs(128, 128, 2048))
    kinds = [design_of(sketch.trace) for sketch in found]
    assert {name for name, _ in kinds} == {"wmma_sync_16x16x16_f16f16f32"}
    assert sorted(ahead for _, ahead in kinds) == [0, 0, 3, 3]
    assert all(sketch.closed for sketch in found)
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
