"""`pruner-ms polish`: neighbours of the best schedules of a work-dir."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pruner_ms.cli.polish import lines
from pruner_ms.errors import OptionError
from pruner_ms.integration.polish import PRESETS, Polished, polish
from pruner_ms.records.trials import run_tasks
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.paths import IRModule, Target, ms, te, te_workload

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """What MetaSchedule's own `tune_tir` leaves."""
    ms.tune_tir(
        IRModule({"main": te.create_prim_func(te_workload.matmul(16, 16, 16))}),
        Target(LLVM),
        str(tmp_path / "run"),
        8,
        num_trials_per_iter=8,
        builder=FakeBuilder(),
        runner=FakeRunner(seconds=0),
        seed=3,
        num_tuning_cores=2,
    )
    return tmp_path / "run"


def test_a_database_of_stock_is_polished_until_no_neighbour_is_faster(tuned: Path) -> None:
    fakes = {"builder": FakeBuilder(), "runner": FakeRunner(seconds=0), "cost_model": "none"}
    (task,) = polish(tuned, trials=400, **fakes)
    (before,) = run_tasks(tuned)
    assert 1 < task.trials <= PRESETS["default"].per_task + 16
    assert task.after <= task.before
    assert len(before.records) == 8 + task.trials
    assert task.after == before.valid[0][0]
    (again,) = polish(tuned, trials=400, seed=1, **fakes)
    assert again.before == task.after


def test_what_cannot_be_polished_is_refused(
    tmp_path: Path, tuned: Path, pruner_ms: Callable[..., Any]
) -> None:
    said = pruner_ms("polish", str(tmp_path / "nowhere"))
    assert (said.code, "nowhere" in said.err) == (1, True)
    said = pruner_ms("polish", str(tuned), "--preset", "rain")
    assert (said.code, "preset 'rain'" in said.err, "droplet" in said.err) == (1, True, True)
    (tuned / "database_tuning_record.json").write_text("")
    with pytest.raises(OptionError, match="no valid record"):
        polish(tuned)


def test_the_command_measures_and_says_what_became_faster(
    tuned: Path, pruner_ms: Callable[..., Any]
) -> None:
    said = pruner_ms("polish", str(tuned), "--trials", "3", "--json")
    assert said.code == 0, said.err
    (task,) = json.loads(said.out)
    assert set(task) == {"name", "before", "after", "trials", "ended"}


def test_lines_name_what_became_faster() -> None:
    tasks = [Polished("a", 2e-6, 1e-6, 5, None), Polished("b", 1e-6, 1e-6, 4, "done")]
    assert lines(tasks) == [
        "a: 2.0 us, now 1.0 us (2.00x) after 5 trials",
        "1 of 2 tasks are faster; 9 trials",
    ]
