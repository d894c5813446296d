"""Kernels with and without requests for their weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import prefetch
from pruner_ms.tvm_compat.paths import IRModule, Schedule, Target, te, tir
from pruner_ms.tvm_compat.schedules import get_block

TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})

pytestmark = pytest.mark.skipif(
    not tir.__name__.endswith("tirx"), reason="TVM before 0.25 lacks an operator for it"
)


def record(repeats: bool) -> Any:
    """A product with a packed weight, and a schedule that goes through it once or several times."""
    a, b = te.placeholder((12, 128), name="a"), te.placeholder((4, 128, 16), name="b")
    k = te.reduce_axis((0, 128), name="k")
    c = te.compute((12, 64), lambda i, j: te.sum(a[i, k] * b[j // 16, k, j % 16], axis=k), name="c")
    mod = IRModule({"main": te.create_prim_func([a, b, c])})
    schedule = Schedule(mod)
    block = get_block(schedule, "c")
    rows, columns, summed = schedule.get_loops(block)
    column, inside = schedule.split(columns, [None, 16])
    schedule.reorder(*([column, rows] if repeats else [rows, column]), summed, inside)
    schedule.decompose_reduction(block, column)
    return SimpleNamespace(workload=SimpleNamespace(mod=mod), trace=schedule.trace)


def test_a_kernel_is_timed_both_ways(monkeypatch: pytest.MonkeyPatch, rng: Any) -> None:
    monkeypatch.setattr(prefetch, "TURNS", 2)
    monkeypatch.setattr(prefetch, "_ROTATED", 1e5)
    row = prefetch.compared(record(repeats=True), TARGET, rng)
    assert row is not None and row["shapes"] == [(12, 128), (4, 128, 16), (12, 64)]
    low, middle, high = row["ratio_quartiles"]
    assert 0 < low <= middle <= high
    assert np.isclose(row["without_s"] / row["with_s"], middle, rtol=1.0) and row["with_s"] < 1e-2


def test_a_kernel_that_asks_for_nothing_is_left_out(rng: Any) -> None:
    assert prefetch.compared(record(repeats=False), TARGET, rng) is None
