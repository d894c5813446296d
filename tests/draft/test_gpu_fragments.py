"""The draft of tensorised kernels: what an H100 and nvcc showed of fragments, copies and builds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from pruner_ms.draft.gpu.memory import tile_conflicts
from pruner_ms.draft.gpu.occupancy import BASE_REGISTERS, Launch, Occupancy, exposed, registers_of
from pruner_ms.draft.gpu.spills import filling
from pruner_ms.draft.nest import nest_of
from pruner_ms.draft.score import OF_EQUALS, draft
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.program import GpuFacts, Loop, LoopKind, Role, SketchProgram, Statement
from pruner_ms.tensorcore.layouts import BY_COLUMNS, BY_ROWS
from pruner_ms.tvm_compat.paths import te_workload
from tests.support.designs import design_of
from tests.support.operators import context_of
from tests.support.oracle import task_of
from tests.support.products import laid_out

H100 = hardware_named("h100")


@cache
def sketch_of(name):
    dtypes = {"in_dtype": "float16", "out_dtype": "float32"}
    task = task_of(
        *context_of(lambda: te_workload.matmul(1024, 1024, 1024, **dtypes), "tensorcore")
    )
    return next(s for s in task.space if design_of(s.trace)[0].startswith(name))


def drawn(name, count=2048):
    sketch = sketch_of(name)
    rows = sketch.sample(count, np.random.default_rng(0))
    program = sketch.program(rows)
    return sketch, rows, program, draft(program, H100)


def unrolled(program):
    return np.max([np.broadcast_to(s.unroll, program.rows) for s in program.statements], axis=0)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["mma_sync_m16n8k16", "wmma_sync_16x16x16"])
def test_of_kernels_that_nvcc_unrolls_alike_the_quicker_build_comes_first(name):
    sketch, rows, _, estimates = drawn(name)
    variants = np.repeat(rows[np.argmin(estimates.latency)][None], 8, axis=0)
    variants[:, -1] = np.arange(8)
    program = sketch.program(variants)
    assert sorted(unrolled(program)) == [0, 16, 32, 64, 128, 256, 512, 1024]
    scored = draft(program, H100)
    order = np.argsort(unrolled(program))
    seconds, latency = scored.compile_seconds[order], scored.latency[order]
    assert (np.diff(seconds) >= 0).all() and seconds[-1] > 1.5 * seconds[0]
    assert scored.valid.all() and (np.diff(latency) >= 0).all()
    np.testing.assert_allclose(latency / (1.0 + OF_EQUALS * seconds), latency[0], rtol=1e-2)
    assert latency[-1] > latency[0]


@pytest.mark.heavy
def test_operands_of_mma_are_held_twice_and_sums_once():
    _, _, program, _ = drawn("mma_sync_m16n8k16")
    nests = [nest_of(s, program) for s in program.statements]
    launch = Launch.of(program.gpu, 32)
    held = {b.scope: b.alloc * b.itemsize / 128 for b in program.buffers if "m16n8k8" in b.scope}
    operands = held["m16n8k8.matrixA"] + held["m16n8k8.matrixB"]
    expected = BASE_REGISTERS + launch.local / 4 + held["m16n8k8.matrixC"] + 2 * operands
    np.testing.assert_allclose(registers_of(nests, launch, program.buffers), expected)


@pytest.mark.heavy
def test_what_does_not_fit_into_registers_costs_several_times_as_much():
    """280 wanted: 1.1 to 1.6 times as long on an H100; 470: five times."""
    _, _, program, estimates = drawn("mma_sync_m16n8k16", 16384)
    nests = [nest_of(s, program) for s in program.statements]
    registers = registers_of(nests, Launch.of(program.gpu, 32), program.buffers)
    update = next(n for n in nests if n.statement.reduction)
    loops = [p for p in range(update.depth) if update.reduction[p]]
    steps = np.broadcast_to(update.sizes[loops[1]], program.rows)
    inside = (steps > 1) | (unrolled(program) >= 64)
    usual = estimates.valid & inside & (program.gpu.threads >= 64)
    compute = estimates.terms["compute"]
    fits, beyond = compute[usual & (registers <= 255)], compute[usual & (registers > 400)]
    assert len(fits) and len(beyond)
    assert np.median(beyond) > 3 * np.median(fits)


@pytest.mark.heavy
def test_an_inner_pipeline_of_one_step_leaves_fragments_in_memory():
    """Its loops stay loops unless TVM unrolls them; nvcc then indexes the fragments."""
    _, _, program, estimates = drawn("mma_sync_m16n8k16", 8192)
    update = next(
        n for n in (nest_of(s, program) for s in program.statements) if n.statement.reduction
    )
    loops = [p for p in range(update.depth) if update.reduction[p]]
    steps = np.broadcast_to(update.sizes[loops[1]], program.rows)
    few = unrolled(program) < 64
    compute, valid = estimates.terms["compute"], estimates.valid & (program.gpu.threads == 128)
    slow, fast = valid & few & (steps == 1), valid & few & (steps > 1)
    written = valid & (unrolled(program) >= 64) & (steps == 1)
    assert min(slow.sum(), fast.sum(), written.sum()) > 0
    assert np.median(compute[slow]) > 3 * np.median(compute[fast])
    assert np.median(compute[slow]) > 2 * np.median(compute[written])


@pytest.mark.parametrize("layout", [BY_ROWS, BY_COLUMNS], ids=["fetched", "ldmatrix"])
def test_tiles_of_tf32_lie_apart_and_no_lanes_meet_in_a_bank(layout):
    task = task_of(
        *context_of(lambda: laid_out(layout, 128, 128, 128, "float32"), "tensorcore-tf32")
    )
    sketch = next(s for s in task.space if design_of(s.trace)[0].startswith("mma"))
    program = sketch.program(sketch.sample(64, np.random.default_rng(0)))
    loads = [
        (nest, touch)
        for nest in (nest_of(s, program) for s in program.statements)
        for touch in nest.touches
        if touch.read and touch.buffer.scope.startswith("shared") and writes_fragments(nest)
    ]
    assert len(loads) == 2
    for nest, touch in loads:
        np.testing.assert_allclose(tile_conflicts(nest, touch), 1.0)
        compact = np.prod([np.asarray(n) for n in touch.buffer.shape], axis=0)
        together = SimpleNamespace(write=False, buffer=replace(touch.buffer, alloc=compact))
        # TVM's permuted layout, as stock's rule has it: two rows meet
        np.testing.assert_allclose(tile_conflicts(nest, together), 2.0)


def writes_fragments(nest):
    return any(t.write and "m16n8k8.matrix" in t.buffer.scope for t in nest.touches)


def summing(extents):
    """A nest of loops over sums."""
    one = np.ones(1, np.int64)
    kind = np.full(1, LoopKind.SERIAL, np.int8)
    loops = tuple(Loop(one * extent, kind, True, one > 0) for extent in extents)
    statement = Statement("s", Role.LOAD, loops, (), {}, "float16", one > 0, one * 0, False)
    return nest_of(statement, SketchProgram(1, (statement,), (), one > 0))


@pytest.mark.parametrize(
    ("extents", "blocks", "seconds"),
    [
        ((8,), 1, 1.0),  # no inner pipeline: nothing is loaded ahead
        ((8, 4), 1, 8 * 0.01 + 1 / 4),  # eight times a latency, and the first of four steps
        ((8, 4), 2, 8 * 0.01 + 1 / 8),  # another block has work meanwhile
        ((8, 1), 1, 8 * 0.01 + 1.0),
    ],
)
def test_warps_wait_for_the_fragments_of_the_first_step(extents, blocks, seconds):
    held = Occupancy(float(blocks), 4.0 * blocks, 32.0, 255.0)
    assert filling(summing(extents), held, 1.0, 0.01) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("shared", "blocks", "stages", "share"),
    [
        (1024, 1, 1, 1.0),
        (1024, 2, 1, 0.5),
        (1024, 1, 3, 1 / 3),
        (1024, 8, 1, 0.25),
        (0, 1, 1, 0.25),
    ],
)
def test_a_block_alone_computes_when_it_has_loaded(shared, blocks, stages, share):
    one = np.ones(1, np.int64)
    facts = GpuFacts(one * 128, one, one * 16, one * shared, one * 0, one > 0, one * stages)
    resident = Occupancy(float(blocks), 4.0 * blocks, 32.0, 255.0)
    assert exposed(Launch.of(facts, 32), resident, 0.25) == pytest.approx(share)
