"""Split-K: where it is offered, into how many parts, and two kernels that add up to the product."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pruner_ms.draft import draft
from pruner_ms.draft.gpu.latency import gpu_terms
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.buildable import buildable
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.split import (
    LEAST_K,
    TILE,
    Sizes,
    _followers,
    lanes_for,
    parts_for,
    sizes,
    splits,
)
from pruner_ms.tvm_compat.paths import VERSION, Schedule, te, te_workload
from pruner_ms.tvm_compat.schedules import get_block
from tests.support.designs import design_of, is_split, shortest_first
from tests.support.device import kernels, run
from tests.support.operators import context_of
from tests.support.oracle import disagreements, task_of
from tests.support.products import batched, convolved, with_bias

A100 = hardware_named("a100")
HALF = {"in_dtype": "float16", "out_dtype": "float32"}


def image(batch, side, channels, results, kernel):
    return te_workload.conv2d_nhwc(
        batch, side, side, channels, results, kernel, 1, kernel // 2, **HALF
    )


def product(m, n, k):
    return Sizes(m, n, k, axis=k, place=2, last=n)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        (product(128, 768, 3072), (4, 8)),  # 24 tiles for 108 SMs
        (product(128, 768, 768), (2,)),  # a part is 384 long, a half of it would be 192
        (product(64, 64, 8192), (8, 16)),  # one tile: as many as there are
        (product(1024, 1024, 1024), ()),  # 256 tiles
        (product(128, 128, 400), ()),  # too short
        (product(128, 128, 16 * 37), ()),  # no part of whole tiles
        (Sizes(49, 512, 9 * 512, axis=512, place=6, last=512), (8, 16)),
        (Sizes(64, 64, 9 * 32, axis=32, place=6, last=64), ()),  # a part is 144 long
        (
            Sizes(64, 64, 9 * 96, axis=96, place=6, last=64),
            (2,),
        ),  # 24 are no multiple of 16
    ],
)
def test_parts_by_hand(sizes, parts):
    assert parts_for(sizes, 16, 108) == parts


@pytest.mark.parametrize(
    ("columns", "wmma", "mma"), [(256, 128, 32), (192, 64, 32), (96, 32, 32), (49, None, None)]
)
def test_threads_that_add_up_divide_rows_of_results(columns, wmma, mma):
    sizes, rows = product(64, columns, 1024), ("wmma_m16n16k16_f16f16f32", "mma_m16n8k16_f16f16f32")
    lanes = [lanes_for(sizes, INSTRUCTIONS[name]) for name in rows]
    assert lanes == [wmma, mma]
    # without a warp of its own the second kernel would change what the first one copies
    assert [splits(sizes, INSTRUCTIONS[name]) for name in rows] == [True, mma is not None]
    assert not splits(sizes, INSTRUCTIONS["mma_m16n8k8_f16f16f32"])
    assert not splits(None, INSTRUCTIONS["wmma_m16n16k16_f16f16f32"])


@pytest.mark.parametrize(
    ("tensors", "block", "expected"),
    [
        (lambda: te_workload.matmul(64, 96, 32, **HALF), "C", Sizes(64, 96, 32, 32, 2, 96)),
        (lambda: image(2, 8, 64, 32, 3), "conv2d_nhwc", Sizes(128, 32, 576, 64, 6, 32)),
        (
            lambda: te_workload.conv2d_nchw(2, 8, 8, 64, 32, 3, 3, 1, 1, **HALF),
            "conv2d_nchw",
            Sizes(128, 32, 576, 64, 4, 8),
        ),
        (lambda: batched((2,), 64, 64, 64, turned=False), "C", None),
        (
            lambda: te_workload.conv2d_nhwc(1, 8, 8, 64, 64, 3, 1, 1, 1, 2, **HALF),
            "conv2d_nhwc",
            None,
        ),
    ],
)
def test_sizes_of_a_product(tensors, block, expected):
    schedule = Schedule(te.create_prim_func(tensors()))
    assert sizes(schedule.get(get_block(schedule, block))) == expected


WMMA, MMA = "wmma_sync_16x16x16_f16f16f32", "mma_sync_m16n8k16_f16f16f32"
DESIGNS = [(WMMA, 0), (WMMA, 3), (MMA, 2), (MMA, 3)]


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 1 << 15), st.integers(1, 200))
def test_parts_are_whole_and_long_and_needed(m, n, k, units):
    for parts in parts_for(product(m, n, k), 16, units):
        assert k % (16 * parts) == 0 and k // parts >= LEAST_K
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
    sketches = split_of(designs(128, 128, 2048))
    kinds = [design_of(sketch.trace) for sketch in sketches]
    assert sorted(kinds) == sorted(DESIGNS * 2)
    for sketch in sketches:
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


def doubled(sums, name):
    return te.compute(sums.shape, lambda *i: sums(*i) * 2, name=name)


def twice(tensors):
    """What follows in two steps, of which the first can become part of the second."""
    *others, sums = with_bias(tensors)
    return [*others, doubled(sums, "E")]


CASES = {
    # tensors, shapes of the factors, reference; of the result with bias after that
    "product": (lambda: te_workload.matmul(32, 64, 512, **HALF), (32, 512), (512, 64), np.matmul),
    "tiles of rows": (
        lambda: te_workload.matmul(96, 64, 512, **HALF),
        (96, 512),
        (512, 64),
        np.matmul,
    ),
    "few rows": (lambda: te_workload.matmul(7, 64, 1024, **HALF), (7, 1024), (1024, 64), np.matmul),
    # a part of 260: padded by `mma`, no multiple of what `wmma` takes
    "odd parts": (lambda: te_workload.matmul(64, 64, 520, **HALF), (64, 520), (520, 64), np.matmul),
    "image": (lambda: image(1, 8, 64, 32, 3), (1, 8, 8, 64), (3, 3, 64, 32), convolved),
    "bias": (
        lambda: with_bias(te_workload.matmul(64, 32, 512, **HALF)),
        (64, 512),
        (512, 32),
        lambda a, b, bias: np.maximum(a @ b + bias, 0),
    ),
    "bias, twice": (
        lambda: twice(image(1, 8, 64, 32, 3)),
        (1, 8, 8, 64),
        (3, 3, 64, 32),
        lambda x, w, bias: 2 * np.maximum(convolved(x, w) + bias, 0),
    ),
}


def returned():
    """The product is a result, too."""
    a, b, c = te_workload.matmul(64, 64, 1024, **HALF)
    return [a, b, c, doubled(c, "D")]


def needed_twice():
    a, b, c = te_workload.matmul(64, 64, 1024, **HALF)
    return [a, b, doubled(c, "D"), te.compute(c.shape, lambda i, j: c[i, j] + 1, name="E")]


def summed():
    """What follows is no end: rows of it are added up."""
    a, b, c = te_workload.matmul(64, 64, 1024, **HALF)
    d, k = doubled(c, "D"), te.reduce_axis((0, 64), name="k")
    return [a, b, te.compute((64,), lambda i: te.sum(d[i, k], axis=k), name="E")]


def turned():
    a, b, c = te_workload.matmul(64, 64, 1024, **HALF)
    return [a, b, te.compute((64, 64), lambda i, j: c[j, i] * 2, name="D")]


@pytest.mark.parametrize(
    ("tensors", "names"),
    [
        (lambda: with_bias(te_workload.matmul(64, 64, 1024, **HALF)), ["D"]),
        (lambda: twice(te_workload.matmul(64, 64, 1024, **HALF)), ["D", "E"]),
        (lambda: te_workload.matmul(64, 64, 1024, **HALF), []),
        (returned, []),
        (needed_twice, []),
        (summed, []),
        (turned, []),
    ],
)
def test_what_follows_is_one_chain_to_the_result_or_nothing(tensors, names):
    schedule = Schedule(te.create_prim_func(tensors()))
    followers = _followers(schedule, get_block(schedule, "C"))
    assert [str(schedule.get(block).name_hint) for block in followers] == names


@pytest.mark.parametrize("tensors", [returned, needed_twice, summed])
def test_sums_that_others_read_stay_in_memory(tensors, rng):
    """Of another kernel's registers they would read nothing."""
    task = task_of(*context_of(tensors, "tensorcore"))
    several = split_of(task)
    assert several
    for sketch in several[::3]:
        schedule = sketch.replay(sketch.sample(1, rng)[0])
        assert "C_local" not in str(schedule.mod)


def test_of_an_image_of_one_pixel_there_are_designs():
    tensors = with_bias(te_workload.conv2d_nhwc(1, 3, 3, 128, 64, 3, 1, 0, **HALF))
    assert task_of(*context_of(lambda: tensors, "tensorcore")).space


@pytest.mark.parametrize("shape", [(4, 7, 64, 64), (2, 14, 256, 96)])
def test_images_whose_rows_are_no_multiple_of_threads_are_added_up(shape, rng):
    batch, side, channels, results = shape
    task = task_of(
        *context_of(lambda: with_bias(image(batch, side, channels, results, 3)), "tensorcore")
    )
    for sketch in split_of(task):
        rows = sketch.sample(2048, rng)
        program = sketch.program(rows)
        usable = program.gpu.valid & buildable(program) & program.supported
        row = rows[np.flatnonzero(usable)[0]]
        reading = task.read(sketch, row)
        assert list(disagreements(sketch.program(row[None]), 0, row, reading)) == []


def test_what_follows_a_large_result_costs_what_the_oracle_says(rng):
    """The best of a design, by its closed form and as read off its schedule."""
    make = lambda: with_bias(te_workload.matmul(128, 768, 3072, **HALF))  # noqa: E731
    task = task_of(*context_of(make, "tensorcore"))
    sketch = split_of(task)[-1]
    rows = sketch.sample(512, rng)
    estimate = draft(sketch.program(rows), A100)
    best = int(np.argmin(estimate.latency))
    read = draft(task.read(sketch, rows[best]).program, A100)
    assert estimate.latency[best] == pytest.approx(read.latency[0], rel=1e-6)


@pytest.mark.sampled(12)
@pytest.mark.skipif(VERSION.startswith(("0.17", "0.25")), reason="kernels look different there")
@pytest.mark.parametrize(
    ("name", "design"),
    [(n, d) for n in CASES for d in DESIGNS if n != "odd parts" or d[0] == MMA],
)
def test_two_kernels_on_an_emulated_grid_add_up_to_the_product(name, design, rng):
    """The parts, and their sum with what follows; small integers, so that all sums are exact."""
    make, *shapes, reference = CASES[name]
    task = task_of(*context_of(make, "tensorcore"))
    sketch = next(s for s in split_of(task) if design_of(s.trace) == design)
    rows = sketch.sample(2048, rng)
    program = sketch.program(rows)
    assert program.supported.all()
    usable = program.gpu.valid & buildable(program)
    several = usable & (rows[:, 0] > 1) if name == "tiles of rows" else usable
    row = rows[shortest_first(program, several)[0]]
    reading = task.read(sketch, row)
    assert list(disagreements(sketch.program(row[None]), 0, row, reading)) == []
    schedule = sketch.replay(row)
    schedule.enter_postproc()
    assert all(postproc.apply(schedule) for postproc in task.postprocs)
    given = [rng.integers(-3, 4, shape).astype("float16") for shape in shapes]
    bias = rng.integers(-9, 10, shapes[1][-1]).astype(np.float32)
    factors = [x.astype(np.float64) for x in given]
    exact = reference(*factors, *([bias] * name.startswith("bias")))
    result = np.full(exact.shape, 99, np.float32)
    parts = next(tile for tile in program.buffers if tile.name.endswith(("_rf", ".rf")))
    between = np.full([int(size[0]) for size in parts.shape], 77, np.float32)
    sums = dict.fromkeys(("C", "conv2d_nhwc", "D", "E"), result)
    factors_by_name = dict(zip(("A", "B"), given, strict=True))
    factors_by_name |= dict(zip(("inputs", "weight"), given, strict=True))
    arrays = {**sums, **factors_by_name, "bias": bias}
    arrays |= dict.fromkeys(("C.rf", "conv2d_nhwc.rf"), between)
    first, second = kernels(schedule.mod, task.target)
    run(first, arrays)
    run(second, arrays)
    np.testing.assert_array_equal(result, exact)
    if "bias" not in name:
        np.testing.assert_array_equal(between.sum(axis=0), exact)
