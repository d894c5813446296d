"""The draft's first GPU model."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import numpy as np
import pytest

from pruner_ms.draft.columns import column
from pruner_ms.draft.gpu import latency as gpu
from pruner_ms.draft.gpu.latency import GPU_TERMS, gpu_terms
from pruner_ms.draft.gpu.memory import coalescing
from pruner_ms.draft.gpu.occupancy import (
    BASE_REGISTERS,
    Launch,
    in_use,
    launch_at,
    occupancy,
    registers_of,
)
from pruner_ms.draft.nest import nest_of
from pruner_ms.draft.score import draft, draft_once, draft_rows
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.program import GpuFacts
from tests.support.operators import tuning_context
from tests.support.oracle import task_of

A100 = hardware_named("a100")
GOOD = [4, 4, 16, 16, 4, 4, 16, 16]


def facts(threads=256, shared=0, valid=True):
    one = np.ones(1, np.int64)
    return GpuFacts(
        one * threads, one, one * 16, one * shared, one * 0, np.array([valid], np.bool_), one
    )


def launch(*args):
    return Launch.of(facts(*args), 32)


@pytest.mark.parametrize(
    ("threads", "shared", "registers", "blocks"),
    [
        (256, 0, 32, 8),  # 2,048 threads
        (256, 48 << 10, 32, 3),  # 164 KiB of shared memory
        (256, 0, 128, 2),  # 65,536 registers
        (32, 0, 32, 32),  # block slots
        (256, 54 << 10, 32, 2),  # 55 KiB each: CUDA keeps one for itself
        (256, 0, 36, 6),  # 40 registers a thread: they are given out in eights
        (256, 163 << 10, 32, 1),  # what one block may ask for
        (256, 164 << 10, 32, 0),
        (1024, 200 << 10, 32, 0),  # does not fit
    ],
)
def test_occupancy_by_hand(threads, shared, registers, blocks):
    residency = occupancy(launch(threads, shared), float(registers), A100.sm)
    assert column(residency.blocks, 1)[0] == blocks
    assert column(residency.warps, 1)[0] == blocks * threads // 32


def test_no_shared_memory_is_kept_from_blocks_before_ampere():
    residency = occupancy(launch(256, 48 << 10), 32.0, hardware_named("v100").sm)
    assert column(residency.blocks, 1)[0] == 2


def test_a_small_grid_fills_fewer_warps():
    possible = occupancy(launch(256), 32.0, A100.sm)
    assert in_use(possible, launch(256), 108).warps[0] == 8  # 16 blocks: one on an SM, 8 warps
    assert in_use(possible, launch(256), 2).warps[0] == possible.warps[0]


def test_a_block_that_does_not_fit_is_not_valid(gpu_program):
    program = gpu_program([GOOD])
    huge = dataclasses.replace(program, gpu=facts(shared=200 << 10))
    assert not draft(huge, A100).valid[0]


def test_short_runs_waste_transactions(gpu_program):
    program = gpu_program([GOOD, [4, 4, 16, 16, 4, 4, 256, 1]])
    load = nest_of(program.statements[0], program)
    share = coalescing(load, load.touches[0], A100.sm)
    assert share[0] == 1.0 and share[1] == pytest.approx(4 / 32)


def test_part_filled_warps_and_few_blocks_are_slower(gpu_program):
    good, few = gpu_program([GOOD]), gpu_program([[1, 1, 16, 16, 16, 16, 16, 16]])
    assert draft(few, A100).latency[0] > 2 * draft(good, A100).latency[0]


def test_terms_are_finite_and_the_faster_device_wins(gpu_program):
    program = gpu_program([GOOD, [8, 8, 8, 8, 4, 4, 32, 8]])
    for name in ("k80", "t4", "a100", "h100"):
        assert np.isfinite(gpu_terms(program, hardware_named(name))["total"]).all()
    old, new = (draft(program, hardware_named(n)).latency for n in ("k80", "h100"))
    assert (new < old).all()


def test_the_verdict_of_verify_gpu_code_is_kept(gpu_program):
    program = gpu_program([GOOD])
    assert draft(program, A100).valid[0]
    refused = dataclasses.replace(program, gpu=facts(valid=False))
    assert not draft(refused, A100).valid[0]


@pytest.mark.parametrize("variant", ["ours", "paper", "released"])
def test_every_variant_scores_a_gpu_program(gpu_program, variant):
    estimate = draft(gpu_program([GOOD]), A100, variant)
    assert 1e-7 < estimate.latency[0] < 1e-1


def test_every_term_of_the_table_is_in_the_draft(gpu_program):
    estimate = draft(gpu_program([GOOD]), A100)
    assert set(estimate.terms) == {term.name for term in GPU_TERMS}


def test_a_pipeline_hides_the_staging(gpu_program):
    program = gpu_program([GOOD])
    staged = dataclasses.replace(program.gpu, stages=program.gpu.stages * 4)
    piped = dataclasses.replace(program, gpu=staged)
    assert gpu_terms(piped, A100)["wait"][0] < gpu_terms(program, A100)["wait"][0]


def test_half_precision_is_cheaper_to_move(gpu_program):
    program = gpu_program([GOOD])
    fp16_buffers = [dataclasses.replace(b, dtype="float16") for b in program.buffers]
    thin = dataclasses.replace(program, buffers=tuple(fp16_buffers))
    assert gpu_terms(thin, A100)["l2"][0] < gpu_terms(program, A100)["l2"][0]


def test_fragments_are_held_by_a_warp(gpu_program):
    program = gpu_program([GOOD])
    scopes = ("global", "global", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")
    buffers = tuple(
        dataclasses.replace(b, scope=scope, dtype="float16" if scope != "global" else "float32")
        for b, scope in zip(program.buffers, scopes, strict=True)
    )
    tensor = dataclasses.replace(program, buffers=buffers)
    nests = [nest_of(s, tensor) for s in tensor.statements]
    held = column(registers_of(nests, launch(), buffers), 1)[0]
    assert held == BASE_REGISTERS + sum(b.alloc[0] / 2 / 32 for b in buffers[2:])


@pytest.mark.parametrize(("threads", "limit"), [(64, 255), (256, 255), (320, 200), (1024, 64)])
def test_registers_of_a_thread_are_bounded_by_the_threads_of_its_block(threads, limit):
    residency = occupancy(launch(threads), 300.0, A100.sm)
    assert column(residency.limit, 1)[0] == limit
    # what does not fit is spilled, and the block runs
    assert column(residency.blocks, 1)[0] >= 1


def test_rows_within_the_limits_are_scored_alone_with_the_same_outcome(gpu_program):
    tiles = np.array([GOOD, [4, 4, 64, 64, 1, 1, 16, 16], [2, 2, 64, 32, 2, 4, 16, 16]])
    rows = np.concatenate([tiles, np.tile(tiles[1], (5, 1))])
    asked = []

    class Sketch:
        def program(self, some, narrow=False):
            asked.append(len(some))
            return gpu_program(some)

        def screened(self, some):
            return gpu_program(some).gpu.valid

    estimate, closed = draft_rows(Sketch(), rows, lambda program: draft(program, A100))
    expected = draft(gpu_program(rows), A100)
    assert asked == [1] and closed.all()
    assert estimate.valid.tolist() == expected.valid.tolist() == [True] + [False] * 7
    assert estimate.latency.tolist() == expected.latency.tolist()
    assert all(estimate.terms[n][0] == expected.terms[n][0] for n in expected.terms)


def test_a_program_is_scored_once_for_each_device_while_it_is_there(gpu_program):
    program, other = gpu_program([GOOD]), gpu_program([GOOD])
    estimate = draft_once(program, A100)
    assert draft_once(program, A100) is estimate and draft_once(other, A100) is not estimate
    assert estimate.latency[0] == draft(other, A100).latency[0]
    assert draft_once(program, hardware_named("t4")).latency[0] != estimate.latency[0]
    gone = weakref.ref(program)
    del program
    gc.collect()
    assert gone() is None


def test_a_kernel_with_a_small_grid_of_its_own_leaves_sms_idle(monkeypatch):
    """Softmax without shared reductions: its maxima have a kernel of a block or two."""
    space = task_of(*tuning_context("softmax", "cuda")).space
    sketch = next(s for s in space if s.closed)
    program = sketch.program(sketch.sample(256, np.random.default_rng(0)))
    grid = Launch.of(program.gpu, A100.sm.warp)
    own = [launch_at(nest_of(s, program), grid, A100.sm.warp) for s in program.statements]
    grids = np.stack([column(each.blocks, program.rows) for each in own])
    np.testing.assert_array_equal(grids.max(axis=0), program.gpu.blocks)
    fewer = grids[0] < program.gpu.blocks
    assert fewer.sum() > 50
    apart = gpu_terms(program, A100)["total"]
    monkeypatch.setattr(gpu, "launch_at", lambda nest, launch, warp: launch)
    alike = gpu_terms(program, A100)["total"]
    assert (apart[fewer] > alike[fewer]).all()


def test_the_statements_of_one_kernel_share_its_launch(gpu_program):
    program = gpu_program([GOOD])
    grid = Launch.of(program.gpu, A100.sm.warp)
    assert all(launch_at(nest_of(s, program), grid, 32) is grid for s in program.statements)
