"""CUDA spaces without tensor instructions: closed, equal to the oracle near the limits, fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pruner_ms.draft import draft, draft_rows
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic import interpret
from pruner_ms.symbolic.interpret import FEW_ROWS
from pruner_ms.symbolic.space import decision_space
from pruner_ms.symbolic.target import TargetLimits, read_limits
from pruner_ms.tvm_compat.paths import IRModule, Schedule, Target, te, te_workload
from pruner_ms.tvm_compat.schedules import get_block
from tests.support.operators import TARGETS
from tests.support.oracle import disagreements
from tests.support.products import with_bias
from tests.support.seeds import sample_of

OPERATORS = [
    "gemm",
    "gemm_odd",
    "gemm_int8",
    "gemm_half_odd",
    "gemm_bias_relu",
    "batched_gemm",
    "transposed_batched_gemm",
    "conv1d",
    "conv2d_nhwc",
    "conv2d_strided",
    "conv2d_dilated",
    "conv2d_nchw",
    "conv2d_bn_relu",
    "conv3d",
    "depthwise",
    "elementwise",
    "transpose",
]
ROWS = 8
POOL = 3000
A100 = hardware_named("a100")


def balanced(sketch: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of which half are called valid, and half invalid near the limits."""
    pool = sketch.sample(POOL, rng)
    gpu = sketch.program(pool).gpu
    near = ~gpu.valid & (gpu.threads >= 16) & (gpu.threads <= 2048) & (gpu.shared <= 2 * 49152)
    chosen = [pool[np.flatnonzero(mask)[: count // 2]] for mask in (gpu.valid, near)]
    return np.concatenate(chosen)


@pytest.mark.parametrize("operator", sample_of(OPERATORS, 7, 2))
def test_closed_and_equal_near_the_limits(
    operator: str, task: Any, rng: np.random.Generator
) -> None:
    operator_task = task(operator, "cuda")
    for sketch in operator_task.space:
        assert sketch.closed, sketch.reason
        rows = balanced(sketch, ROWS, rng)
        program = sketch.program(rows)
        for i, row in enumerate(rows):
            if not program.supported[i]:
                continue
            reading = operator_task.read(sketch, row)
            assert list(disagreements(program, i, row, reading)) == [], row.tolist()


@pytest.mark.parametrize("operator", OPERATORS)
def test_nearly_every_row_is_expressed(operator: str, task: Any, rng: np.random.Generator) -> None:
    for sketch in task(operator, "cuda").space:
        assert sketch.closed, sketch.reason
        supported = sketch.program(sketch.sample(POOL, rng)).supported
        # half-precision convolutions: see `gpu_vectors.stepped_vectors`
        assert supported.mean() > 0.95 if "half" in operator else supported.all()


@pytest.mark.parametrize("operator", ["gemm_odd", "conv2d_nhwc", "gemm_half_odd"])
def test_the_verdict_alone_is_the_programs(
    operator: str, task: Any, rng: np.random.Generator
) -> None:
    for sketch in task(operator, "cuda").space:
        rows = sketch.sample(POOL, rng)
        program = sketch.program(rows)
        accepted = sketch.accepted(rows)
        assert (accepted == program.gpu.valid)[program.supported].all()
    cpu = task("gemm", "llvm").space[0]
    assert cpu.accepted(cpu.sample(5, rng)).all()


@pytest.mark.parametrize("operator", ["gemm_odd", "conv2d_nhwc"])
def test_few_rows_are_scored_without_asking_which_are_within_the_limits(
    operator: str, task: Any, rng: np.random.Generator
) -> None:
    for sketch in task(operator, "cuda").space:
        few, many = sketch.sample(FEW_ROWS, rng), sketch.sample(FEW_ROWS + 1, rng)
        assert (sketch.screened(many) == sketch.accepted(many)).all()
        assert sketch.screened(few).all() and not sketch.accepted(few).all()
    cpu = task("gemm", "llvm").space[0]
    assert cpu.screened(cpu.sample(5, rng)).all()


def test_where_an_image_is_taken_apart_rows_beyond_the_limits_are_never_scored(
    task: Any, rng: np.random.Generator
) -> None:
    """A row of im2col may take long."""
    for operator, several in (("conv2d_half_bn_relu", False), ("gemm_half", True)):
        for sketch in task(operator, "cuda-mma").space:
            rows = sketch.sample(256, rng)
            assert sketch.compiled.divides is not several
            assert not sketch.accepted(rows).all()
            assert sketch.screened(rows).all() == several


@pytest.mark.parametrize("operator", ["gemm", "gemm_half_odd", "conv2d_nhwc"])
def test_drafts_are_the_same_whichever_rows_are_told_apart_first(
    operator: str, task: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sketch in task(operator, "cuda").space:
        rows = sketch.sample(200, rng)
        drafts = []
        for few in (0, len(rows)):
            monkeypatch.setattr(interpret, "FEW_ROWS", few)
            monkeypatch.setattr(sketch, "compiled", replace(sketch.compiled, divides=False))
            drafts.append(draft_rows(sketch, rows, lambda program: draft(program, A100)))
        (first, closed), (second, alike) = drafts
        assert first.valid.any() and not first.valid.all()
        assert (first.valid == second.valid).all() and (closed == alike).all()
        good = first.valid
        assert (first.latency == second.latency).all()
        assert all((first.terms[n][good] == second.terms[n][good]).all() for n in second.terms)


def test_a_pipeline_of_one_step_is_rejected(task: Any, rng: np.random.Generator) -> None:
    gemm = task("gemm", "cuda")
    sketch = gemm.space[1]
    rows = sketch.sample(POOL, rng)
    gpu = sketch.program(rows).gpu
    outer = [tile for tile, where in sketch.choices.slices() if tile.width == 3]
    where = next(where for tile, where in sketch.choices.slices() if tile is outer[0])
    single = rows[:, where.start] == 1
    assert single.any() and not gpu.valid[single].any() and gpu.valid[~single].any()
    assert not gemm.read(sketch, rows[single][0]).verdict


def test_limits_are_the_targets_own() -> None:
    config = {
        "kind": "cuda",
        "arch": "sm_90",
        "max_threads_per_block": 512,
        "max_shared_memory_per_block": 232448,
        "thread_warp_size": 32,
    }
    assert read_limits(Target(config)) == TargetLimits("cuda", 512, 232448, 32, "sm_90")
    assert not read_limits(Target({"kind": "llvm"})).gpu


def test_a_block_below_part_of_loops_that_were_fused_is_left_to_the_oracle() -> None:
    """Its place in them is no sum of loops."""
    tensors = with_bias(te_workload.matmul(32, 48, 64))
    schedule = Schedule(te.create_prim_func(tensors))
    block, last = get_block(schedule, "C"), get_block(schedule, "D")
    outer, inner = schedule.split(schedule.fuse(*schedule.get_loops(last)), [None, 32])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    schedule.compute_at(block, inner, preserve_unit_loops=True)
    mod = IRModule({"main": te.create_prim_func(tensors)})
    (sketch,) = decision_space([schedule], mod, Target(dict(TARGETS["cuda"])))
    assert not sketch.closed and "fused" in sketch.reason
