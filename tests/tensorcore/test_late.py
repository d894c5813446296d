"""Designs that copy B late in a step: who is offered them, and that their kernels are right."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from pruner_ms.symbolic.buildable import buildable
from pruner_ms.tensorcore import ahead, mma_design
from pruner_ms.tensorcore.layouts import BY_COLUMNS, BY_ROWS, Layout
from pruner_ms.testing.designs import accepted, design_of, is_late, orders_of, shortest_first
from pruner_ms.testing.device import kernels, run
from pruner_ms.testing.kernel_memory import Hazard
from pruner_ms.testing.operators import context_of
from pruner_ms.testing.oracle import task_of
from pruner_ms.testing.products import laid_out
from pruner_ms.tvm_compat.paths import VERSION, te_workload

SIDE, SUMS = 64, 256
SWAPPED_TURNED = Layout(turned_a=True, swapped=True)


def late(sketches):
    return [s for s in sketches if is_late(s.trace)]


@pytest.mark.parametrize(("size", "offered"), [(2048, True), (1024, False)])
def test_only_products_that_fill_the_device_are_offered_late_copies(size, offered):
    halves = {"in_dtype": "float16", "out_dtype": "float32"}
    task = task_of(
        *context_of(lambda: te_workload.matmul(size, size, size, **halves), "tensorcore")
    )
    found = [design_of(sketch.trace) for sketch in late(task.space)]
    names = [f"mma_sync_m16n8k{k}_f16f16f32" for k in (8, 16)]
    assert sorted(found) == (sorted((name, ahead.LATE) for name in names) if offered else [])
    # beside the others
    assert len([1 for s in task.space if design_of(s.trace)[0] in names]) == (6 if offered else 4)


def small_kernels(monkeypatch, layout, dtype, order=ahead.LATE_ORDER):
    """Kernels of the late designs of a small product, whose pipelines are filled for a while."""
    monkeypatch.setattr(mma_design, "LARGE", 1)
    monkeypatch.setattr(ahead, "LATE_ORDER", order)
    space = "tensorcore-tf32" if dtype == "float32" else "tensorcore"
    task = task_of(*context_of(lambda: laid_out(layout, SIDE, SIDE, SUMS, dtype), space))
    for sketch in task.space:
        if order not in orders_of(sketch.trace):
            continue
        rows = sketch.sample(2048, np.random.default_rng(0))
        program = sketch.program(rows)
        update = next(s for s in program.statements if s.reduction)
        steps = next(loop.extent for loop in update.loops if loop.reduction)
        usable = program.gpu.valid & buildable(program) & (program.gpu.threads >= 64)
        usable &= steps >= program.gpu.stages + 2
        for mod in accepted(task, sketch, rows[shortest_first(program, usable)[: usable.sum()]]):
            yield from kernels(mod, task.target)


def wrong(func, layout, dtype):
    """Elements of a kernel's result that are wrong."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((SIDE, SUMS), (SUMS, SIDE)))
    first, second = (
        np.ascontiguousarray(x.T) if turned else x
        for x, turned in ((a, layout.turned_a), (b, layout.turned_b))
    )
    c = np.full((SIDE, SIDE), 99, "float32")
    run(func, {"A": first, "B": second, "C": c})
    return int((c != a.astype(np.float64) @ b.astype(np.float64)).sum())


emulated = pytest.mark.skipif(
    VERSION.startswith(("0.17", "0.25")), reason="lowered kernels look different there"
)


@emulated
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    "layout",
    [BY_ROWS, BY_COLUMNS, SWAPPED_TURNED],
    ids=["rows", "columns", "swapped, A by columns"],
)
def test_their_kernels_are_right_and_do_not_rely_on_luck(monkeypatch, layout, dtype):
    found = list(islice(small_kernels(monkeypatch, layout, dtype), 4))
    assert len(found) >= 2
    assert [wrong(func, layout, dtype) for func in found] == [0] * len(found)


@emulated
def test_with_both_copies_late_tvm_waits_for_too_few(monkeypatch):
    """Why A is copied first: once TVM counts right, both can be."""
    found = small_kernels(monkeypatch, BY_ROWS, "float16", order=[2, 3, 1, 0, 4])
    with pytest.raises(Hazard, match="while a copy into it is under way"):
        for func in islice(found, 12):
            wrong(func, BY_ROWS, "float16")
