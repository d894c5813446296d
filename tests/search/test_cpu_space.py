"""`space="cpu"`: odd products padded, sums turned; in closed form, and of the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.search import cpu_space
from pruner_ms.search.cpu_space import padded_columns, padded_rows
from pruner_ms.symbolic.primitives.parse import parse_module
from pruner_ms.symbolic.primitives.trace import read_trace
from pruner_ms.tvm_compat.paths import (
    LAYOUT_FREE,
    IRModule,
    Target,
    TuneContext,
    as_tensor,
    build,
    te,
    te_workload,
    topi,
)
from tests.support.operators import TARGETS, context_of
from tests.support.oracle import disagreements, draw, task_of

COMPARED = 12


def dense(rows, columns, summed, bias=True):
    a, b = te.placeholder((rows, summed), name="A"), te.placeholder((summed, columns), name="B")
    c = te.placeholder((columns,), name="bias")
    product = topi.matmul(a, b)
    return [a, b, c, topi.nn.relu(topi.add(product, c))] if bias else [a, b, product]


def mean(*shape):
    x = te.placeholder(shape, name="x")
    return [x, topi.divide(topi.sum(x, axis=[1, 2], keepdims=True), float(shape[1] * shape[2]))]


def max_pool(x):
    return topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max", layout="NHWC")


PADDED = {
    "tokens": lambda: dense(197, 48, 32),
    "prime": lambda: dense(127, 127, 127),
    "prime, alone": lambda: dense(61, 61, 61, bias=False),
    "attention": lambda: te_workload.batch_matmul_nkkm(3, 197, 197, 16),
    "columns": lambda: dense(24, 30, 16),
}
SUMS = {
    "mean": lambda: mean(1, 9, 7, 24),
    "pool": lambda: [x := te.placeholder((1, 8, 8, 32)), max_pool(x)],
    "rows": lambda: [x := te.placeholder((61, 40)), topi.sum(x, axis=0)],
}
FITTING = {
    "tiles": lambda: dense(196, 48, 32),
    "few rows": lambda: dense(7, 1001, 32),
    "one row": lambda: dense(1, 1001, 64),
    "convolution": lambda: te_workload.conv2d_nhwc(1, 19, 19, 16, 16, 3, 1, 1),
    "no product": lambda: [x := te.placeholder((61, 61)), topi.sum(x, axis=1)],
    "few columns": lambda: [x := te.placeholder((61, 7)), topi.sum(x, axis=0)],
    "kept": lambda: [x := te.placeholder((8, 61, 3)), topi.sum(x, axis=(0, 2))],
    "softmax": lambda: [x := te.placeholder((61, 61)), topi.nn.softmax(x)],
}


@pytest.mark.parametrize(
    ("extent", "rows"),
    [
        (1, 1),
        (7, 7),
        (49, 50),
        (196, 196),
        (64, 64),
        (11, 12),
        (127, 128),
        (197, 198),
        (1021, 1024),
    ],
)
def test_rows_are_padded_where_no_tile_divides_them(extent, rows):
    assert padded_rows(extent) == rows


@pytest.mark.parametrize(
    ("extent", "columns"),
    [
        (1, 1),
        (7, 7),
        (8, 8),
        (12, 16),
        (20, 24),
        (40, 40),
        (1000, 1008),
        (24, 24),
        (30, 32),
        (197, 208),
        (61, 64),
    ],
)
def test_columns_are_padded_to_whole_vectors(extent, columns):
    assert padded_columns(extent) == columns


@pytest.mark.parametrize(
    ("extent", "columns"),
    [
        (8, 8),
        (12, 16),
        (20, 32),
        (24, 32),
        (40, 48),
        (72, 80),
        (112, 112),
        (176, 176),
        (1000, 1008),
    ],
)
def test_columns_are_whole_vectors_of_sixteen(extent, columns):
    assert padded_columns(extent, 16) == columns


@pytest.mark.parametrize(
    ("mcpu", "lanes"), [("emeraldrapids", 16), ("znver3", 8), ("x86-64-v3", 8), ("x86-64", 4)]
)
def test_the_numbers_of_a_vector_are_the_targets(mcpu, lanes):
    assert cpu_space.lanes_of(Target({"kind": "llvm", "mcpu": mcpu})) == lanes


CASES = PADDED | SUMS


def ours_of(case):
    """The task of a case, and its designs that stock does not have."""
    context, designs = context_of(CASES[case], "cpu")
    _, stock = context_of(CASES[case], "llvm")
    task = task_of(context, designs)
    return task, list(task.space)[len(stock) :]


def extents_of(case):
    context, designs = context_of(PADDED[case], "cpu")
    template = parse_module(context.mod)
    padded = [cpu_space.padded_extents(block, template) for block in template.blocks]
    return designs, padded[0]


def test_what_is_padded():
    expected = {
        "tokens": [198, 48, 32],
        "prime": [128, 128, 128],
        "prime, alone": [64, 64, 64],
        "attention": [3, 198, 208, 16],
        "columns": [24, 32, 16],
    }
    assert {case: extents_of(case)[1] for case in PADDED} == expected


def test_a_constant_factor_that_is_packed_keeps_its_columns():
    func = te.create_prim_func(dense(61, 61, 61)).with_attr(LAYOUT_FREE, [1])
    template = parse_module(IRModule({"main": func}))
    assert cpu_space.padded_extents(template.blocks[0], template) == [64, 61, 61]


@pytest.mark.parametrize("case", FITTING)
def test_where_nothing_is_to_be_padded_the_space_is_stocks(case):
    context, designs = context_of(FITTING[case], "cpu")
    _, stock = context_of(FITTING[case], "llvm")
    ours, stocks = ([read_trace(one.trace) for one in several] for several in (designs, stock))
    assert ours == stocks
    assert cpu_space.padded_schedule(context.mod) is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
def test_these_designs_are_in_closed_form_and_equal_the_oracle(case, rng):
    task, ours = ours_of(case)
    assert ours
    for sketch in ours:
        assert ("pad_einsum" if case in PADDED else "reorder") in str(sketch.trace)
        assert sketch.closed, sketch.reason
        rows = draw(sketch, COMPARED, rng)
        program = sketch.program(rows)
        for i in np.flatnonzero(program.supported):
            assert not list(disagreements(program, i, rows[i], task.read(sketch, rows[i])))
        assert sketch.program(sketch.sample(400, rng)).supported.mean() > 0.3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
def test_they_compute_the_same_numbers(case, rng):
    context, _ = context_of(CASES[case], "cpu")
    task, ours = ours_of(case)
    shapes = [[int(n) for n in one.shape] for one in CASES[case]()]
    arrays = [rng.integers(-4, 5, shape).astype("float32") for shape in shapes[:-1]]

    def computed(mod):
        result = as_tensor(np.full(shapes[-1], np.nan, "float32"))
        build(mod, target=context.target)(*map(as_tensor, arrays), result)
        return result.numpy()

    expected = computed(context.mod)
    for sketch in ours:
        (row,) = draw(sketch, 1, rng)
        schedule = sketch.replay(row)
        schedule.enter_postproc()
        assert all(postproc.apply(schedule) for postproc in task.postprocs)
        np.testing.assert_array_equal(computed(schedule.mod), expected)


def test_a_vector_of_channels_lies_inside_the_loops_of_a_sum(rng):
    _, (sketch,) = ours_of("mean")
    rows = sketch.sample(400, rng)
    (update,) = [s for s in sketch.program(rows).statements if s.name.endswith("update")]
    extents = np.stack([loop.extent for loop in update.loops], axis=1)
    nests = {tuple(int(n) for n in nest if n > 1) for nest in extents}
    assert {(9, 7, 24), (3, 9, 7, 8)} <= nests


def test_instructions_for_integers_stay():
    a, b = te.placeholder((64, 64), "uint8"), te.placeholder((64, 64), "int8")
    k = te.reduce_axis((0, 64))
    product = te.compute(
        (64, 64), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k)
    )
    mod = IRModule({"main": te.create_prim_func([a, b, product])})
    target = Target({**TARGETS["cpu"], "mcpu": "cascadelake"})
    traces = {}
    for space in ("cpu", "post-order-apply"):
        context = TuneContext(mod, target=target, space_generator=space, num_threads=1)
        traces[space] = [one.trace for one in context.generate_design_space()]
        kinds = [type(one).__name__ for one in context.space_generator.postprocs]
        assert "RewriteTensorize" in kinds
    ours, stocks = ([read_trace(one.simplified(True)) for one in traces[s]] for s in traces)
    assert ours == stocks
    assert "16x4" in str(traces["cpu"][0])
