"""The draft's own CPU model: directions that must hold, and quantities worked out by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pruner_ms.draft.block import (
    CALL_CYCLES,
    MATH_CYCLES,
    UNPACK_CYCLES,
    block_of,
    unrolled_loops,
)
from pruner_ms.draft.columns import column, overlapped
from pruner_ms.draft.cpu.latency import CPU_TERMS, busiest, cpu_terms
from pruner_ms.draft.cpu.traffic import FILL, missed_lines
from pruner_ms.draft.nest import nest_of
from pruner_ms.draft.score import concatenated, draft
from pruner_ms.errors import OptionError
from pruner_ms.hardware import Cache, hardware_named
from pruner_ms.symbolic.program import LoopKind
from tests.support.programs import elementwise

AVX2 = hardware_named("cpu-avx2").with_units(4)


def nest(program):
    return nest_of(program.statements[0], program)


def test_the_busiest_core_of_six_tasks_on_four_has_a_third():
    assert busiest(np.array([6.0, 8.0, 1.0]), 4) == pytest.approx([2 / 6, 2 / 8, 1.0])


def test_overlap_counts_the_longest_whole():
    low, high = np.array([1.0]), np.array([4.0])
    assert overlapped([low, high], 0.5)[0] == pytest.approx(4.5)


@pytest.mark.parametrize(("budget", "steps"), [(0, 1), (4, 4), (15, 4), (16, 4), (32, 32)])
def test_tvm_unrolls_from_the_inside_while_the_product_fits(cpu_program, budget, steps):
    # serial from the inside: k1 = 4, i1 = 8
    loops = nest(cpu_program([[8, 4, 16, 8, 4, 16]]))
    chosen, product = unrolled_loops(loops, np.full(1, float(budget), np.float32))
    assert column(loops.product(chosen), 1)[0] == column(product, 1)[0] == steps


def test_the_block_counts_vectors_and_runs(cpu_program):
    program = cpu_program([[8, 4, 8, 8, 8, 16]], unroll=64)
    block = block_of(nest(program), AVX2.core, 4)
    # k1 = 8 and i1 = 8 unrolled: 64 steps of 16 elements in two registers each
    assert [column(x, 1)[0] for x in (block.steps, block.vector, block.pieces)] == [64, 16, 2]
    assert column(block.count, 1)[0] * 64 * 16 == 64**3
    c, a, b = (column(v, 1)[0] for v in block.vectors)
    assert (c, a, b) == (8 * 2, 8 * 8, 8 * 2)


def test_a_vector_fills_registers_better_than_a_scalar(cpu_program):
    wide, narrow = cpu_program([[8, 4, 8, 8, 8, 16]]), cpu_program([[8, 64, 8, 8, 8, 1]])
    terms = [cpu_terms(p, AVX2)["compute"][0] for p in (wide, narrow)]
    assert terms[1] / terms[0] == pytest.approx(8, rel=0.01)


def test_a_ragged_vector_costs_more_than_the_power_of_two(cpu_program):
    ragged = draft(cpu_program([[8, 4, 8, 8, 8, 12]], size=48), AVX2)
    even = draft(cpu_program([[8, 3, 8, 8, 8, 16]], size=48), AVX2)
    assert ragged.latency[0] > 1.5 * even.latency[0]


def test_a_region_that_fits_is_not_drawn_again(cpu_program):
    small, large = cpu_program([[8, 4, 8, 8, 8, 16]]), cpu_program([[32, 64, 32, 32, 32, 16]], 1024)
    caches = (Cache(64 << 10, 64, 16),)
    assert column(missed_lines(nest(small), caches)[0](1.0, 0.0), 1)[0] == 0
    assert column(missed_lines(nest(large), caches)[0](1.0, 0.0), 1)[0] > 1024 * 1024 / 16


def test_rows_a_power_of_two_apart_collide(cpu_program):
    # the tile is 32 rows of A and of C: at a pitch of 1024 elements all fall into one set
    tile = [32, 64, 32, 32, 32, 16]
    close, apart = cpu_program([tile], size=1024), cpu_program([tile], size=1040)
    caches = (Cache(48 << 10, 64, 12),)
    drawn = [column(missed_lines(nest(p), caches)[0](1.0, 1.0), 1)[0] for p in (close, apart)]
    assert drawn[0] > 3 * drawn[1]


def drawn_one_by_one(nest, row, cache, lone, streamed):
    """What a first-level cache draws, as `traffic` describes it: one level at a time."""

    def lines(touch, level):
        region, run = (float(np.ravel(v)[row]) for v in (touch.region[level], touch.run[level]))
        length = max(run * touch.buffer.itemsize / cache.line, 1.0)
        return region / run, length

    def stays(touch, level):
        held = sum(np.prod(lines(other, level)) for other in nest.touches) * cache.line
        count, length = lines(touch, level)
        length, period = np.ceil(length), cache.sets * cache.line
        pitch = int(touch.buffer.shape[-1][row]) * touch.buffer.itemsize
        starts = min(period / math.gcd(pitch, period), cache.sets)
        ways = count * length / min(min(count, starts) * length, cache.sets)
        return held <= FILL * cache.size and ways <= cache.ways

    total = 0.0
    for touch in nest.touches:
        levels = [level for level in range(nest.depth) if stays(touch, level)]
        outside = (levels[0] if levels else nest.depth) - 1
        if outside >= 0:
            count, length = lines(touch, outside)
            trips = float(nest.trips[outside][row]) * touch.factor
            total += trips * count * (lone + (length - 1) * streamed)
    return total


def test_the_lines_drawn_are_those_of_the_level_just_outside(cpu_program):
    rng = np.random.default_rng(3)
    parts = [np.stack([rng.permutation([1, 2, 4, 8])[:3] for _ in range(40)]) for _ in range(2)]
    drawn_tiles = np.concatenate(parts, axis=1)
    loops, cache = nest(cpu_program(drawn_tiles, size=512)), Cache(2 << 10, 64, 4)
    drawn = column(missed_lines(loops, (cache,))[0](5.0, 2.0), len(drawn_tiles))
    expected = [drawn_one_by_one(loops, row, cache, 5.0, 2.0) for row in range(len(drawn_tiles))]
    assert np.count_nonzero(expected) > 0
    assert drawn == pytest.approx(expected, rel=1e-5)


def test_more_cores_help_until_the_tasks_run_out(cpu_program):
    program = cpu_program([[8, 4, 8, 8, 8, 16]])
    seconds = [draft(program, AVX2.with_units(n)).latency[0] for n in (1, 2, 4, 8, 16)]
    assert seconds[0] > seconds[1] > seconds[2] > seconds[3]
    assert seconds[4] == pytest.approx(seconds[3], rel=0.2)


tiles = st.lists(st.sampled_from([1, 2, 4, 8]), min_size=6, max_size=6)


@settings(max_examples=40, deadline=None)
@given(tiles, st.sampled_from([0, 16, 64, 512]))
def test_latency_is_finite_positive_and_no_better_than_the_peak(cpu_program, tile, unroll):
    program = cpu_program([tile], size=64, unroll=unroll)
    estimate = draft(program, AVX2)
    flops = 2 * np.prod(np.array(tile, dtype=float))
    assert flops / AVX2.peak("float32") <= estimate.latency[0] * (1 + 1e-5) < 1.0
    assert all((t >= 0).all() and np.isfinite(t).all() for t in estimate.terms.values())


@settings(max_examples=20, deadline=None)
@given(tiles, tiles)
def test_rows_do_not_see_each_other(cpu_program, first, second):
    both = draft(cpu_program([first, second]), AVX2)
    alone = concatenated([draft(cpu_program([t]), AVX2) for t in (first, second)])
    assert both.latency == pytest.approx(alone.latency)
    assert both.compile_seconds == pytest.approx(alone.compile_seconds)


def test_faster_memory_and_larger_caches_never_hurt(cpu_program):
    program = cpu_program([[32, 64, 32, 32, 32, 16], [64, 16, 8, 16, 128, 64]], size=1024)
    caches = tuple(
        dataclasses.replace(c, size=4 * c.size, ways=4 * c.ways) for c in AVX2.core.caches
    )
    larger = dataclasses.replace(AVX2, cpu=dataclasses.replace(AVX2.core, caches=caches))
    assert (draft(program, larger).latency <= draft(program, AVX2).latency * (1 + 1e-9)).all()


def test_compile_cost_grows_with_unrolling_and_bounds_validity(cpu_program):
    tile = [[8, 4, 1, 8, 64, 16]]
    costs = [draft(cpu_program(tile, unroll=u), AVX2).compile_seconds[0] for u in (0, 64, 512)]
    assert costs[0] < costs[1] < costs[2]
    estimate = draft(cpu_program(tile, unroll=512), AVX2, compile_limit=costs[1])
    assert not estimate.valid[0] and estimate.latency[0] == np.inf


def test_unsupported_rows_are_not_valid(cpu_program):
    program = cpu_program([[8, 4, 8, 8, 8, 16]] * 2)
    estimate = draft(dataclasses.replace(program, supported=np.array([True, False])), AVX2)
    assert estimate.valid.tolist() == [True, False]


def test_wrong_names_and_wrong_devices_are_refused(cpu_program):
    program = cpu_program([[8, 4, 8, 8, 8, 16]])
    with pytest.raises(OptionError, match="ours, paper, released"):
        draft(program, AVX2, "mine")
    with pytest.raises(OptionError, match="a100"):
        draft(program, hardware_named("a100"))


def test_every_term_of_the_table_is_in_the_draft(cpu_program):
    estimate = draft(cpu_program([[8, 4, 8, 8, 8, 16]]), AVX2)
    assert set(estimate.terms) == {term.name for term in CPU_TERMS}
    assert all(term.meaning and term.unit == "s" for term in CPU_TERMS)


def compute_with_calls(program, count, hardware=AVX2):
    """Seconds of arithmetic of a program with so many special functions in each step."""
    (statement,) = program.statements
    ops = {**statement.ops, "special": np.full(1, count)}
    program = dataclasses.replace(program, statements=(dataclasses.replace(statement, ops=ops),))
    return float(cpu_terms(program, hardware)["compute"][0])


def test_a_special_function_is_called_for_every_element(cpu_program):
    compute = compute_with_calls
    wide, narrow = cpu_program([[8, 4, 8, 8, 8, 16]]), cpu_program([[8, 64, 8, 8, 8, 1]])
    seconds = 64**3 / AVX2.clock / 4
    once = compute(wide, 1) - compute(wide, 0)
    assert once == pytest.approx((CALL_CYCLES + UNPACK_CYCLES) * seconds, rel=1e-4)
    assert compute(wide, 2) - compute(wide, 1) == pytest.approx(once, rel=1e-4)
    assert compute(narrow, 2) - compute(narrow, 1) == pytest.approx(CALL_CYCLES * seconds, rel=1e-4)


def test_vector_code_of_a_special_function_is_paid_by_the_register(cpu_program):
    wide, vectorizing = cpu_program([[8, 4, 8, 8, 8, 16]]), AVX2.with_vector_math()
    registers = 64**3 / (AVX2.core.vector_bytes // 4)
    expected = MATH_CYCLES * registers / AVX2.clock / 4
    once = compute_with_calls(wide, 1, vectorizing) - compute_with_calls(wide, 0, vectorizing)
    assert once == pytest.approx(expected, rel=1e-4)


def test_llvm_does_not_widen_what_calls():
    program = elementwise(np.array([4096]), lanes=128)
    (statement,) = program.statements
    outer, inner = statement.loops
    serial = dataclasses.replace(inner, kind=np.full(1, int(LoopKind.SERIAL), np.int8))
    looped = dataclasses.replace(statement, loops=(outer, serial), unroll=np.zeros(1, np.int64))

    def runs(count, hardware=AVX2):
        changed = dataclasses.replace(looped, ops={"add": np.ones(1), "special": np.full(1, count)})
        return column(block_of(nest_of(changed, program), hardware.core, 4).count, program.rows)

    assert runs(1) == pytest.approx(8 * runs(0)), "eight elements of a register at a time"
    assert runs(1, AVX2.with_vector_math()) == pytest.approx(runs(0))
