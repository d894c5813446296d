"""A cost model by name has no file of its own: the work-dir's database is what it learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from pruner_ms.model.verifier import Verifier
from pruner_ms.search import task
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import IRModule, Target, ms, te, te_workload
from pruner_ms.tvm_compat.untuned import is_untuned

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}


def tune(work_dir: Path, trials: int, model: str) -> Any:
    import_intrinsics()
    return ms.tune_tir(
        IRModule({"main": te.create_prim_func(te_workload.matmul(64, 64, 64))}),
        Target(LLVM),
        str(work_dir),
        trials,
        num_trials_per_iter=8,
        strategy=PrunerSearch(population=256, steps=2, spec_size=64),
        cost_model=model,
        builder=FakeBuilder(),
        runner=FakeRunner(seconds=0),
        seed=3,
        num_tuning_cores=2,
    )


def no_closed_form(space: Any) -> Any:
    sketches = tuple(replace(s, compiled=None, reason="said so") for s in space.sketches)
    return replace(space, sketches=sketches)


@pytest.mark.heavy
@pytest.mark.parametrize("closed", [True, False])
def test_it_is_rebuilt_from_the_database_of_the_work_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    database = tune(tmp_path, 24, "random")
    schedules = [r for r in database.get_all_tuning_records() if not is_untuned(r.trace)]
    measured = sorted(float(r.run_secs[0]) for r in schedules)
    assert len(measured) == 23
    if not closed:
        real = task.decision_space
        monkeypatch.setattr(task, "decision_space", lambda *a: no_closed_form(real(*a)))
    seen: list[Any] = []
    ready = Verifier.ready

    def noted(self: Verifier, task: str | None = None) -> bool:
        if not seen:
            seen.append((ready(self, task), np.sort(self.records.latency)))
        return ready(self, task)

    monkeypatch.setattr(Verifier, "ready", noted)
    tune(tmp_path, 8, "pacm")
    able, learned = seen[0]
    assert able, "it ranks the first round"
    np.testing.assert_allclose(learned, measured)
