"""Kernels of a program one by one; what is hidden, and what a kernel waits for."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pruner_ms.draft.columns import column
from pruner_ms.draft.gpu.kernels import (
    BEHIND,
    CUDA_CORE_OVERLAP,
    MMA_OVERLAP,
    ON_DEVICE,
    WMMA_OVERLAP,
    Kernel,
    copies_and_work,
    kernel_at,
    launched,
    overlap_of,
)
from pruner_ms.draft.gpu.latency import (
    BARRIER_CYCLES,
    LOADS_IN_FLIGHT,
    PIPELINED,
    Work,
    copying,
    gpu_terms,
)
from pruner_ms.draft.gpu.memory import coalescing, requested_elements, tile_sectors
from pruner_ms.draft.gpu.occupancy import Launch, Occupancy
from pruner_ms.draft.score import draft
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.program import Buffer, LoopKind
from pruner_ms.tensorcore.terms import depth_share
from tests.support.designs import design_of, is_split
from tests.support.operators import tuning_context
from tests.support.oracle import task_of

from .conftest import copied

A100, H100 = hardware_named("a100"), hardware_named("h100")
L2 = A100.sm.l2_latency
ONE = Occupancy(1.0, 4.0, 32.0, 255.0)


def grid(blocks, threads=128, stages=1):
    warps = threads / 32
    return Launch(float(threads), float(blocks), warps, 1024.0, 0.0, float(stages))


def copy_of(lanes, loads):
    """A statement by which 128 threads of 16 blocks copy halves: so many vectors each."""
    kinds = (LoopKind.BLOCK, LoopKind.SERIAL, LoopKind.THREAD, LoopKind.VECTORIZED)
    loops = list(zip((16, loads, 128, lanes), kinds, strict=True))
    step = ({}, {1: 128 * lanes, 2: lanes, 3: 1})
    return copied(loops, step, step, 1 << 20, dtype="float16")[0]


@pytest.mark.parametrize(
    ("lanes", "loads", "stages", "steps", "latencies"),
    [
        (8, 4, 1, 1, 1.0),  # all on their way together
        (8, 32, 1, 1, 32 / LOADS_IN_FLIGHT),
        (8, 32, 1, 16, 16.0),  # two at each step: a latency each
        (8, 32, 4, 16, 16 * PIPELINED / 4),  # asynchronous
        (2, 32, 4, 16, 16 * PIPELINED / 4),  # a word is
        (1, 32, 4, 1, 32 / LOADS_IN_FLIGHT),  # a half alone is not
    ],
)
def test_a_block_waits_for_loads_that_are_not_asynchronous(lanes, loads, stages, steps, latencies):
    nest = copy_of(lanes, loads)
    cycles = copying(nest, grid(16, stages=stages), ONE, float(steps), False, A100.sm)
    assert column(cycles, 1)[0] == pytest.approx(latencies * L2 + steps * BARRIER_CYCLES)
    two = dataclasses.replace(ONE, blocks=2.0)
    shared = copying(nest, grid(16, stages=stages), two, float(steps), False, A100.sm)
    assert column(shared, 1)[0] == pytest.approx(latencies * L2 / 2 + steps * BARRIER_CYCLES)


def test_who_loads_fragments_ahead_hides_most():
    scopes = {
        "m16n8k8.matrixA": MMA_OVERLAP,
        "wmma.matrix_a": WMMA_OVERLAP,
        "local": CUDA_CORE_OVERLAP,
    }
    one = np.ones(1, np.int64)
    for scope, overlap in scopes.items():
        buffers = [
            Buffer(name, "float16", s, False, (one,), one)
            for name, s in (("A", "global"), ("F", scope))
        ]
        assert overlap_of(buffers) is overlap
    terms = {"compute": 4.0, "shared": 3.0, "l2": 2.0}
    seconds = [copies_and_work(terms, each, each.least) for each in (MMA_OVERLAP, WMMA_OVERLAP)]
    assert seconds[0] == pytest.approx(4.6 + 0.2 * 2.0)
    assert seconds[1] == pytest.approx(5.5 + 0.4 * 2.0)


def test_copies_and_work_of_a_block_alone_follow_each_other():
    terms = {"compute": 4.0, "l2": 2.0, "memory": 2.0}
    assert copies_and_work(terms, CUDA_CORE_OVERLAP, 1.0) == pytest.approx(4.0 + 2.5)


def test_no_round_of_blocks_is_shorter_than_a_load():
    small = Kernel(grid(1320), ONE, {"l2": 1e-9})
    dealt, even = small.dealt(CUDA_CORE_OVERLAP, H100)
    assert dealt == pytest.approx(10 * H100.sm.l2_latency / H100.clock) and even < 1e-8
    assert Kernel(grid(1320), ONE, {"l2": 0.0}).dealt(CUDA_CORE_OVERLAP, H100) == (0.0, 0.0)


def test_statements_of_one_grid_are_one_kernel():
    kernels = []
    first = kernel_at(kernels, grid(4), ONE)
    columns = dataclasses.replace(grid(4), blocks=np.array([4.0, 8.0]))
    second = kernel_at(kernels, columns, ONE)
    assert kernel_at(kernels, grid(4), ONE) is first and kernel_at(kernels, columns, ONE) is second
    assert kernels == [first, second] and first is not second


def test_launching_hides_behind_a_long_kernel():
    launch = H100.sm.launch_seconds
    host, long = launched(1e-3, 1.0, H100)
    assert host == launch and long == pytest.approx(1e-3 + ON_DEVICE + BEHIND * launch)
    host, short = launched(1e-6, 2.0, H100)
    assert host == 2 * launch
    assert short == pytest.approx(2 * launch + BEHIND * (1e-6 + 2 * ON_DEVICE))


def test_shallow_instructions_are_slower_on_hopper_alone():
    assert [depth_share(16, arch) for arch in ("sm_80", "sm_89", "sm_90", "sm_90a")] == [
        1.0,
        1.0,
        0.75,
        0.75,
    ]
    assert depth_share(32, "sm_90") == depth_share(np.inf, "sm_90") == 1.0


@pytest.fixture(scope="module")
def long_sums():
    """Programs of split products, by whether sums are split, with the design of each."""
    space = task_of(*tuning_context("gemm_half_long", "tensorcore")).space
    rng, programs = np.random.default_rng(0), []
    for sketch in space:
        rows = sketch.sample(64, rng)
        trace = sketch.trace_of(rows[0])
        programs.append((design_of(trace)[0], is_split(trace), sketch.program(rows)))
    return programs


def test_a_split_product_is_launched_twice(long_sums):
    for _, split, program in long_sums:
        launches = np.round(gpu_terms(program, H100)["launch"] / H100.sm.launch_seconds, 3)
        counted_rows = program.gpu.kernels > 0
        assert counted_rows.any() and (launches[counted_rows] == (2 if split else 1)).all()


def test_half_as_deep_instructions_compute_longer_on_hopper(long_sums):
    """Per sum that is taken, of valid rows of like blocks: medians a third apart, as on no A100."""
    ratios = []
    for hardware in (H100, A100):
        medians = {}
        for name, split, program in long_sums:
            if not split and name.startswith("mma_sync_m16n8k"):
                terms, valid = gpu_terms(program, hardware), draft(program, hardware).valid
                if valid.any():
                    depth = name.removeprefix("mma_sync_m16n8k").partition("_")[0]
                    medians.setdefault(depth, []).append(np.min(terms["compute"][valid]))
        ratios.append(np.min(medians["8"]) / np.min(medians["16"]))
    assert ratios[0] == pytest.approx(ratios[1] / 0.75, rel=0.05)


def image(between, together):
    """A copy of a tile in two steps by blocks of 32 threads, and what it reads: 64 elements that
    lie among so many."""
    loops = [(4, LoopKind.BLOCK), (32, LoopKind.THREAD), (2, "sum")]
    nest, (read, written) = copied(loops, ({}, {2: 64}), ({}, {}), 64)
    read.elements, written.elements = (lambda level: between), (lambda level: 64.0)
    nest.cooperating_threads = together
    return nest, read


@pytest.mark.parametrize(("between", "asked"), [(50.0, 50.0), (64.0, 64.0), (1000.0, 64.0)])
def test_a_tile_of_an_image_asks_for_what_it_has(between, asked):
    nest, read = image(between, 32.0)
    assert requested_elements(nest, read) == asked
    each = tile_sectors(nest, read, A100.sm)
    nest.touches[0].elements = lambda level: asked
    assert each == tile_sectors(nest, read, A100.sm)


@pytest.mark.parametrize(
    ("between", "together", "elements"),
    [
        (1000.0, 32.0, 4 * 2 * 64),  # a tile of each block at each step
        (32.0, 1.0, 4 * 32),  # what lies together is drawn once for a block
    ],
)
def test_no_more_is_drawn_than_the_copies_ask_for(between, together, elements):
    nest, read = image(between, together)
    drawn, _ = Work(nest, grid(4, 32), ONE, A100).traffic[0]
    assert drawn == pytest.approx(elements * 4 / coalescing(nest, read, A100.sm))
