"""The draft stage between rounds: what builds slowly, what fails, what turns out otherwise."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.draft import score
from pruner_ms.draft.score import Draft
from pruner_ms.errors import UnsupportedTrace
from pruner_ms.hardware import GENERIC
from pruner_ms.search import funnels
from pruner_ms.search.drafting import Drafting
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.search.task import TaskRun
from pruner_ms.symbolic.interpret import Compiled
from pruner_ms.symbolic.oracle import lowered
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import DecisionSpace, Sketch
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.paths import IRModule, Target, derived_object, ms, te, te_workload

QUICK = {"population": 256, "steps": 2, "spec_size": 32}


def tune(work_dir: Path, trials: int = 16, **options: Any) -> Any:
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(64, 64, 64))})
    given: dict[str, Any] = {"builder": FakeBuilder(), "runner": FakeRunner(seconds=0)}
    return ms.tune_tir(
        mod,
        Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}),
        str(work_dir),
        trials,
        strategy=PrunerSearch(**QUICK, untuned=options.pop("untuned", True)),
        num_trials_per_iter=8,
        seed=3,
        **(given | {"cost_model": "none"} | options),
    )


def drafting(monkeypatch: pytest.MonkeyPatch, seconds: Sequence[float]) -> Drafting:
    rows = np.ones(len(seconds))
    draft = Draft(rows, rows > 0, np.array(seconds), {})
    stage = Drafting(DecisionSpace(()), GENERIC[0], None, "ours", compile_limit=2.0)
    monkeypatch.setattr(stage, "raw", lambda _program: draft)
    return stage


def test_what_builds_too_long_is_not_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = drafting(monkeypatch, [0.1, 1.9, 2.1])
    assert stage.score(None).valid.tolist() == [True, True, False]  # type: ignore[arg-type]
    stage.slowness = 2.0
    slow = stage.score(None)  # type: ignore[arg-type]
    assert slow.valid.tolist() == [True, False, False]
    assert np.isfinite(slow.latency).tolist() == [True, False, False]


def test_where_all_builds_are_slow_the_quickest_are_drafted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = drafting(monkeypatch, [0.6, 1.1, 1.3])
    stage.slowness = 5.0  # the limit is 0.4 predicted seconds
    assert stage.score(None).valid.tolist() == [True, True, False]  # type: ignore[arg-type]


def test_what_is_kept_is_interpreted_and_scored_once_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost model, its prior and the choice of unlike schedules ask for the same drafts."""
    asked: list[tuple[int, bytes]] = []
    stock = Sketch.program

    def program(self: Sketch, rows: Any, narrow: bool = False) -> Any:
        if not narrow and len(rows) > 8:  # not the explorer's, nor those of a measured batch
            asked.append((self.index, rows.tobytes()))
        return stock(self, rows, narrow)

    scored: list[weakref.ref[SketchProgram]] = []
    plain = score.draft

    def draft(program: SketchProgram, *args: Any) -> Draft:
        scored.append(weakref.ref(program))
        return plain(program, *args)

    monkeypatch.setattr(Sketch, "program", program)
    monkeypatch.setattr(score, "draft", draft)
    tune(tmp_path, trials=32, cost_model="pacm")
    assert len(asked) > 2 and len(set(asked)) == len(asked)
    gc.collect()
    assert len(scored) > len(asked) and not any(one() for one in scored)


def test_failures_are_no_longer_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[float] = []
    own = Drafting.learn

    def learn(self: Drafting, program: Any, latencies: Sequence[float]) -> None:
        learned.extend(latencies)
        own(self, program, latencies)

    monkeypatch.setattr(Drafting, "learn", learn)
    funnels.reset()
    tune(tmp_path, builder=FakeBuilder(fail=0.5), untuned=False)
    failed = sum(funnel.failed for funnel in funnels.snapshot().values())
    assert len(learned) == 16
    assert 0 < np.isnan(learned).sum() == failed < 16


def test_a_space_that_turns_out_to_have_no_closed_form_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Compiled.program

    def program(self: Compiled, rows: Any, narrow: bool = False) -> Any:
        if len(rows) > 16:
            raise UnsupportedTrace("these rows are odd")
        return own(self, rows, narrow)

    monkeypatch.setattr(Compiled, "program", program)
    assert len(tune(tmp_path)) == 16


def test_a_schedule_that_cannot_be_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(*_: Any) -> Any:
        raise UnsupportedTrace("no closed form")

    reads: list[Any] = []
    own = lowered.advance

    def advance(*arguments: Any) -> Any:
        reads.append(arguments)
        if len(reads) % 3 == 0:
            raise ValueError("a pass of TVM's fails")
        return own(*arguments)

    monkeypatch.setattr(Compiled, "program", program)
    monkeypatch.setattr(lowered, "advance", advance)
    assert len(tune(tmp_path)) == 16
    assert len(reads) > 16


@derived_object
class Asked(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """Another's model, which like stock's cannot be asked about nothing."""

    def load(self, path: str) -> None:
        """Nothing."""

    def save(self, path: str) -> None:
        """Nothing."""

    def update(self, context: Any, candidates: list[Any], results: list[Any]) -> None:
        """Nothing."""

    def predict(self, context: Any, candidates: list[Any]) -> Any:
        """Numbers that differ."""
        return np.concatenate([[float(n)] for n in range(len(candidates))])


@pytest.mark.parametrize("cost_model", ["none", "asked"])
def test_where_all_drafts_are_refused_there_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost_model: str
) -> None:
    refused: list[Any] = []
    own = TaskRun._next

    def following(self: TaskRun, stream: Any) -> Any:
        candidate = own(self, stream)
        if len(refused) < QUICK["spec_size"]:
            refused.append(candidate)
            return None
        return candidate

    monkeypatch.setattr(TaskRun, "_next", following)
    model = Asked() if cost_model == "asked" else cost_model
    assert len(tune(tmp_path, cost_model=model)) == 16
    assert len(refused) == QUICK["spec_size"]
