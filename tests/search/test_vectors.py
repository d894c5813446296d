"""Vectors of kernels for CPUs, cut to what LLVM keeps in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pruner_ms.search.replay import Replayer
from pruner_ms.search.task import TaskFacts, decision_space
from pruner_ms.search.vectors import NarrowVectors, lanes, vectors_of, with_narrow_vectors
from pruner_ms.tvm_compat.paths import (
    IRModule,
    Schedule,
    Target,
    TuneContext,
    as_tensor,
    build,
    module_key,
    ms,
    prim_func,
    te,
    topi,
)
from pruner_ms.tvm_compat.relax_paths import buffers_of
from pruner_ms.tvm_compat.schedules import get_block

LLVM = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})


@pytest.mark.parametrize(
    ("extent", "size", "several"),
    [
        (24, 4, 8),
        (48, 4, 16),
        (64, 4, 16),
        (60, 4, 4),
        (64, 1, None),
        (48, 1, 16),
        (24, 8, 8),
        (64, 2, 32),
        # a register holds it, or LLVM pads it
        (16, 4, None),
        (8, 4, None),
        (7, 4, None),
        (50, 4, None),
        (6, 8, 2),
    ],
)
def test_what_a_vector_is_cut_into(extent: int, size: int, several: int | None) -> None:
    assert lanes(extent, size) == several


def dense(rows: int, columns: int, summed: int, dtype: str = "float32") -> IRModule:
    a = te.placeholder((rows, summed), dtype, name="a")
    b = te.placeholder((summed, columns), dtype, name="b")
    return IRModule({"main": te.create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))])})


def results(mod: Any) -> Any:
    rng = np.random.default_rng(0)
    shapes = [list(map(int, one.shape)) for one in buffers_of(prim_func(mod)) or ()]
    arrays = [as_tensor(rng.random(shape).astype("float32")) for shape in shapes]
    build(mod, target=LLVM)(*arrays)
    return arrays[-1].numpy()


def test_a_trace_holds_the_cuts() -> None:
    """Of a schedule by hand, of whose vectors one is narrow already."""
    mod = dense(8, 48, 16)
    schedule = Schedule(mod)
    product, relu = get_block(schedule, "T_matmul"), get_block(schedule, "compute")
    row, column, k = schedule.get_loops(product)
    outer, inner = schedule.split(column, [None, 16])
    schedule.reorder(row, outer, k, inner)
    schedule.vectorize(inner)
    schedule.vectorize(schedule.get_loops(relu)[-1])
    assert sorted(vectors_of(schedule.mod)) == [16, 48]
    assert NarrowVectors().apply(schedule)
    assert vectors_of(schedule.mod) == [16, 16]
    again = Schedule(mod)
    schedule.trace.apply_to_schedule(again, remove_postproc=False)
    assert module_key(again.mod) == module_key(schedule.mod)


def test_what_is_measured_has_narrow_vectors_only() -> None:
    """The rows of such traces are those that they were made of, and the results are the same."""
    context = TuneContext(
        dense(12, 48, 32), target=LLVM, space_generator="post-order-apply", num_threads=1
    )
    space = decision_space(context.generate_design_space(), context.mod, LLVM)
    stock = tuple(context.space_generator.postprocs)
    ours = TaskFacts.of(context).postprocs
    assert [type(one) for one in ours if one not in stock] == [NarrowVectors]
    rng = np.random.default_rng(0)
    cut = 0
    for sketch in space:
        rows = sketch.sample(24, rng)
        traces = [(sketch.trace_of(row), 1) for row in rows]
        wide, narrow = (Replayer(context.mod, p, 1).replay(traces) for p in (stock, ours))
        for row, before, after in zip(rows, wide, narrow, strict=True):
            if before is None or after is None or before.key == after.key:
                assert (before is None) == (after is None)
                continue
            cut += 1
            assert all(lanes(several, 4) is None for several in vectors_of(after.schedule.mod))
            repeated = sketch.row_of(after.schedule.trace)
            assert repeated is not None and list(repeated) == list(row)
            if cut <= 4:
                same = results(before.schedule.mod), results(after.schedule.mod)
                np.testing.assert_allclose(*same, rtol=1e-5)
    assert cut >= 8


def test_other_targets_and_spaces_keep_their_postprocessors() -> None:
    cuda, cpu = (ms.postproc.Postproc.create(kind) for kind in ("cuda", "llvm"))
    assert with_narrow_vectors(cuda, Target("nvidia/nvidia-a100")) == tuple(cuda)
    assert with_narrow_vectors(cpu[:1], LLVM) == tuple(cpu[:1])
    assert with_narrow_vectors((), LLVM) == ()
