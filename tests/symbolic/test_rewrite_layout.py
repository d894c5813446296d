"""Arguments whose layout is free, against what TVM makes of them and builds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.index.forms import Leaf
from pruner_ms.symbolic.lowering import rewrite_layout
from pruner_ms.symbolic.lowering.rewrite_layout import (
    UNCHANGED,
    Digit,
    complete,
    dimensions,
    opposed,
    shape_of,
    windows,
)
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.primitives.state import Block, Loop
from pruner_ms.symbolic.space import decision_space
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import Target, TuneContext, prim_func, te, te_workload, topi
from tests.support.operators import TARGETS
from tests.support.oracle import Task, disagreements, draw

ROWS = 8


def free_task(tensors: list[Any], free: Sequence[int], space: str = "llvm") -> Task:
    """The design spaces of an operator some of whose arguments have a free layout."""
    import_intrinsics()
    target = Target(dict(TARGETS[space]))
    mod = te.create_prim_func(tensors).with_attr("layout_free_buffers", list(free))
    context = TuneContext(
        mod, target=target, space_generator=space, search_strategy=None, rand_state=1
    )
    spaces = list(context.generate_design_space())
    postprocs = list(context.space_generator.postprocs)
    return Task(target, postprocs, decision_space(spaces, context.mod, target))


def compared(task: Task, rng: np.random.Generator, rows: int = ROWS) -> int:
    """Rows of a task that were looked at; none of them may be wrong."""
    count = 0
    for sketch in task.space:
        assert sketch.closed, sketch.reason
        drawn = draw(sketch, rows, rng)
        program = sketch.program(drawn)
        for i, row in enumerate(drawn):
            if program.supported[i]:
                reading = task.read(sketch, row, unrolled=i % 4 == 0)
                assert list(disagreements(program, i, row, reading)) == [], row.tolist()
                count += 1
    return count


def _epilogue(act: str) -> list[Any]:
    a, b = te.placeholder((7, 48), name="A"), te.placeholder((100, 48), name="B")
    bias = te.placeholder((100,), name="bias")
    c = topi.add(topi.nn.dense(a, b), bias)
    if act == "relu":
        return [a, b, bias, topi.nn.relu(c)]
    return [a, b, bias, te.compute(c.shape, lambda i, j: c[i, j] * te.erf(c[i, j]), name="gelu")]


def _conv_bias() -> list[Any]:
    x, w = te.placeholder((1, 16, 14, 14), name="X"), te.placeholder((24, 16, 3, 3), name="W")
    b = te.placeholder((1, 24, 1, 1), name="b")
    return [x, w, b, topi.nn.relu(topi.add(topi.nn.conv2d(x, w, 1, 1, 1, "NCHW", "OIHW"), b))]


def _added(shape: tuple[int, ...]) -> list[Any]:
    a, b = te.placeholder(shape, name="A"), te.placeholder(shape, name="B")
    return [a, b, topi.add(a, b)]


FREE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "one row": (lambda: te_workload.matmul(1, 100, 96), (1,)),
    "bias": (lambda: _epilogue("relu"), (1, 2)),
    "bias read twice": (lambda: _epilogue("gelu"), (1, 2)),
    "filter": (lambda: te_workload.conv2d_nhwc(1, 14, 14, 16, 32, 3, 1, 1), (1,)),
    "filter and bias": (_conv_bias, (1, 2)),
    "three dimensions that TVM does not see through": (lambda: _added((7, 30, 64)), (1,)),
    "element by element": (lambda: _added((5, 30, 50)), (0, 1)),
}


@pytest.mark.parametrize("name", FREE)
def test_packed_arguments_are_what_tvm_builds(name: str, rng: np.random.Generator) -> None:
    make, free = FREE[name]
    assert compared(free_task(make(), free), rng) >= ROWS


@pytest.mark.parametrize("operator", ["dense", "dense_odd", "batch_matmul_free"])
def test_operators_with_free_weights(operator: str, task: Any, rng: np.random.Generator) -> None:
    assert compared(task(operator), rng) >= ROWS


def test_the_weight_is_packed_on_a_cpu_and_left_on_a_gpu(
    task: Any, rng: np.random.Generator
) -> None:
    for space, packed in (("llvm", True), ("cuda", False)):
        sketch = task("dense", space).space[0]
        names = {b.name for b in sketch.program(sketch.sample(4, rng)).buffers if b.param}
        assert ("B_global" in names, "B" in names) == (packed, not packed)


def test_what_is_measured_has_no_rewriting_in_it(task: Any, rng: np.random.Generator) -> None:
    dense = task("dense")
    sketch = dense.space[1]
    schedule = sketch.replay(sketch.sample(1, rng)[0])
    schedule.enter_postproc()
    assert all(postproc.apply(schedule) for postproc in dense.postprocs)
    assert "layout_rewrite_preproc" in str(prim_func(schedule.mod))
    program = read(schedule.mod, dense.target, unrolled=True)
    assert "B_global" not in {statement.name for statement in program.statements}
    weight = next(b for b in program.buffers if b.name == "B_global")
    assert weight.param
    assert int(weight.alloc[0]) == 128 * 96
    assert program.unrolled is not None
    assert int(program.unrolled()[0]) > 0


def test_without_the_postprocessor_rows_are_wrong(
    task: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite_layout, "_pack", lambda *given: None)
    with pytest.raises(AssertionError, match="B_global"):
        compared(task("dense"), rng)


def _annotated_producer() -> list[Any]:
    a, w = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="W")
    packed = te.compute((64, 64), lambda i, j: w[j, i] * 2.0 + w[i, j], name="P")
    k = te.reduce_axis((0, 64), name="k")
    note = {"layout_free_placeholders": [packed]}
    c = te.compute(
        (64, 64), lambda i, j: te.sum(a[i, k] * packed[k, j], axis=k), name="C", attrs=note
    )
    return [a, w, c]


@pytest.mark.parametrize(
    ("make", "free", "reason"),
    [
        (_annotated_producer, (), "RewriteLayout of P, which is not an argument"),
        (
            lambda: te_workload.conv2d_nhwc(1, 8, 8, 16, 16, 3, 1, 1),
            (0,),
            "RewriteLayout of inputs, which PadInput copies",
        ),
    ],
)
def test_what_has_no_closed_form_says_why(make: Any, free: tuple[int, ...], reason: str) -> None:
    assert {sketch.reason for sketch in free_task(make(), free).space} == {reason}


def test_loops_fused_to_one_are_one_dimension() -> None:
    leaves = [Leaf(np.array(e), False) for e in ([4, 4], [2, 1], [3, 3])]
    loops = [Loop((leaf,), leaf.extent) for leaf in leaves]
    loops[1].glued = loops[2].glued = True
    block = Block("B", (), {}, loops, [True] * 3, [], [], {}, {}, "float32", False, False)
    # the middle leaf is in no index: where it runs, the outer ones are not neighbours
    real = [leaf.extent != 1 for leaf in leaves]
    digits = [Digit(leaves[0], 3, leaves[0].extent, real[0]), Digit(leaves[2], 1, 3, real[2])]
    outer, inner = dimensions(block, digits)
    assert np.broadcast_to(outer.extent, 2).tolist() == [4, 12]
    assert np.broadcast_to(inner.extent, 2).tolist() == [3, 1]


def test_the_order_of_digits_may_depend_on_the_row() -> None:
    strides = np.array([[8, 1, 1], [1, 4, 2]])
    extents = np.array([[2, 4, 2], [8, 2, 3]])
    digits = [
        Digit(Leaf(extent, False), stride, extent, extent > 1)
        for stride, extent in zip(strides, extents, strict=True)
    ]
    assert np.asarray(complete(digits, 8)).tolist() == [False, True, False]
    assert np.asarray(complete(digits, 6)).tolist() == [False, False, True]
    assert np.asarray(complete(digits, 16)).tolist() == [True, False, False]


def test_a_number_has_to_be_complete() -> None:
    def digit(stride: int, extent: int) -> Digit:
        return Digit(Leaf(extent, False), stride, extent, extent > 1)

    assert complete([digit(6, 4), digit(1, 2), digit(2, 3)], 24)
    assert not complete([digit(6, 4), digit(1, 2), digit(2, 3)], 48)
    assert not complete([digit(5, 4), digit(1, 6)], 24)
    assert not complete([digit(1, 2), digit(2, 2), digit(2, 3)], 12)
    assert opposed([digit(-1, 3), digit(3, 2)])
    assert not opposed([digit(-1, 1), digit(3, 2)])


@pytest.mark.parametrize(
    ("extents", "strides", "size", "cuts"),
    [
        ((10, 100), (0, 1), 100, (64,)),
        ((100, 32), (1, 0), 100, (2,)),
        ((7, 30, 32), (0, 32, 1), 960, (64, 32)),
        ((7, 30, 64), (1920, 64, 1), 13440, UNCHANGED),
        ((7, 30, 50), (50, 0, 1), 350, None),
        ((50,), (1,), 50, (64,)),
        ((3, 5, 4), (0, 4, 1), 20, None),
        ((1, 16, 8, 8), (16, 1, 0, 0), 16, (1,)),
        ((1, 16, 4, 4), (0, 1, 0, 0), 16, (4,)),
        ((2, 24, 14, 14), (0, 1, 0, 0), 24, (64,)),
        ((7, 32, 2), (0, 2, 1), 64, (64,)),
        ((7, 30, 50), (0, 50, 1), 1500, (64,)),
        ((100, 4, 16), (64, 16, 1), 6400, (64,)),
        ((5, 30, 50), (1500, 50, 1), 7500, (64,)),
        ((5, 16, 2, 4), (0, 8, 4, 1), 128, (64, 8)),
        ((192, 30, 3, 64), (0, 192, 64, 1), 5760, UNCHANGED),
        ((128, 192, 8), (192, 1, 0), 24576, UNCHANGED),
        ((100, 4, 8), (4, 1, 0), 400, (8,)),
        ((4, 4, 16, 2), (0, 16, 1, 0), 64, (32, 16)),
        ((8, 7, 2, 100), (0, 2, 1, 0), 14, (64,)),
        ((10, 100), (0, 2), 200, None),
        ((10, 100), (0, 1), 50, None),
    ],
)
def test_vectors_cut_an_argument(
    extents: tuple[int, ...], strides: tuple[int, ...], size: int, cuts: tuple[int, ...] | None
) -> None:
    assert windows(extents, strides, size, 64) == cuts
    assert shape_of(100, (64,)) == (2, 64)
    assert shape_of(960, (64, 32)) == (15, 2, 32)
