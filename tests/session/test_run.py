"""Whole sessions with fake builders and runners: budgets, resume, failures, stops."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from pruner_ms.errors import OptionError, WorkDirError
from pruner_ms.session.budget import Budget
from pruner_ms.session.options import TaskSpec, TuneConfig


def config(trials: int, builder: Any = None, runner: Any = None, **more: Any) -> TuneConfig:
    """Fakes, and trials alone: `test_untuned.py` has the untuned functions."""
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    limits = {k: more.pop(k) for k in ("seconds", "patience", "min_gain") if k in more}
    return TuneConfig(
        Budget(trials, **limits),
        strategy=more.pop("strategy", "replay-trace"),
        cost_model=more.pop("cost_model", "random"),
        untuned=more.pop("untuned", False),
        builder=builder or FakeBuilder(),
        runner=runner or FakeRunner(seconds=0.0),
        **more,
    )


@pytest.fixture(scope="session")
def tasks(tvm_paths: Any, matmul: Any) -> list[TaskSpec]:
    other = tvm_paths.te.create_prim_func(tvm_paths.te_workload.matmul(32, 64, 128))
    return [TaskSpec("small", matmul, 1.0), TaskSpec("other", other, 3.0)]


def tune(*args: Any, **kwargs: Any) -> Any:
    from pruner_ms.session.run import tune_session

    return tune_session(*args, **kwargs)


def test_the_budget_is_met_exactly_and_resumed(
    tmp_path: Path, target: Any, tasks: list[TaskSpec]
) -> None:
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    runner, builder = FakeRunner(seconds=0.0, fail=0.1), FakeBuilder(0.1)
    first = tune(tasks, target, tmp_path, config(37, builder, runner))
    assert (first.trials, first.resumed, len(first.database), builder.built) == (37, 0, 37, 37)
    assert [t.name for t in first.tasks] == ["other", "small"]
    failed = sum(sum(t.failures.values()) for t in first.tasks)
    assert len(runner.ran) == 37 - sum(t.failures["build"] for t in first.tasks)
    assert 0 < failed < 20
    assert not first.interrupted
    assert all(t.ended == "budget" for t in first.tasks)
    totals = [p.total_s for p in first.curve if p.total_s is not None]
    assert totals == sorted(totals, reverse=True)

    same = FakeRunner(seconds=0.0)
    again = tune(tasks, target, tmp_path, config(37, runner=same))
    assert (again.trials, again.resumed, same.ran, again.curve) == (37, 37, [], [])
    assert [t.best_s for t in again.tasks] == [t.best_s for t in first.tasks]

    more = tune(tasks, target, tmp_path, config(50, runner=same))
    assert (more.trials, more.resumed, len(more.database), len(same.ran)) == (50, 37, 50, 13)
    assert not set(same.ran) & set(runner.ran)


def test_a_database_of_plain_metaschedule_counts_and_is_not_measured_again(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], tvm_paths: Any
) -> None:
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    tvm_paths.ms.tune_tir(
        tasks[0].mod,
        target,
        str(tmp_path),
        12,
        builder=FakeBuilder(),
        runner=FakeRunner(seconds=0.0),
        strategy="replay-trace",
        cost_model="random",
        num_trials_per_iter=6,
        seed=1,
    )
    runner = FakeRunner(seconds=0.0)
    result = tune(tasks[:1], target, tmp_path, config(20, runner=runner))
    assert (result.trials, result.resumed, len(runner.ran)) == (20, 12, 8)


def test_trials_that_only_the_journal_has_come_back(
    tmp_path: Path, target: Any, tasks: list[TaskSpec]
) -> None:
    from pruner_ms.testing.fakes import FakeRunner

    tune(tasks, target, tmp_path, config(24))
    records = tmp_path / "database_tuning_record.json"
    complete = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(complete[:10]) + complete[10][:100])
    runner = FakeRunner(seconds=0.0)
    result = tune(tasks, target, tmp_path, config(24, runner=runner))
    assert (result.trials, result.resumed, runner.ran, len(result.database)) == (24, 24, [], 24)
    assert "1 of database_tuning_record.json (line 11" in result.notes[0]

    def contents(lines: list[bytes]) -> list[str]:
        return sorted(json.dumps([json.loads(x)[0], json.loads(x)[1][0]]) for x in lines)

    assert contents(records.read_bytes().splitlines()) == contents(complete)


def test_one_trial_for_many_tasks_takes_the_heaviest(
    tmp_path: Path, target: Any, tasks: list[TaskSpec]
) -> None:
    result = tune(tasks, target, tmp_path, config(1))
    assert [(t.name, t.trials) for t in result.tasks] == [("other", 1), ("small", 0)]


def test_equal_tasks_are_one(tmp_path: Path, target: Any, tasks: list[TaskSpec]) -> None:
    double = [tasks[0], TaskSpec("twin", tasks[0].mod, 2.0)]
    result = tune(double, target, tmp_path, config(4))
    assert [(t.name, t.weight, t.trials) for t in result.tasks] == [("small", 3.0, 4)]


def test_a_task_without_a_valid_schedule_does_not_stop_the_others(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], tvm_paths: Any
) -> None:
    from pruner_ms.testing.fakes import FakeBuilder

    def fail(mod: Any) -> str | None:
        return "no" if "128" in mod.script() else None

    # the gradient scheduler comes back to the hopeless task when the other one is done
    limits = config(500, FakeBuilder(fail), patience=40)
    result = tune(tasks, target, tmp_path, limits)
    other, small = result.tasks
    assert (other.best_s, other.ended) == (None, "no valid schedule")
    assert 32 <= other.trials < 48
    assert small.best_s is not None
    assert small.ended == "patience"
    assert result.failures == {"other": f"no valid schedule in {other.trials} trials"}


def test_a_task_without_a_design_space_does_not_stop_the_others(
    tmp_path: Path, target: Any, tasks: list[TaskSpec]
) -> None:
    def space(sch: Any) -> None:
        # the extent of the matrix product's first loop tells the two tasks apart
        block = sch.get_sblock("C")
        if int(sch.get(sch.get_loops(block)[0]).extent) == 32:
            raise ValueError("this one cannot be scheduled")
        loop = sch.get_loops(block)[0]
        sch.split(loop, sch.sample_perfect_tile(loop, 2))

    result = tune(tasks, target, tmp_path, config(4, space=space))
    assert "this one cannot be scheduled" in result.failures["other"]
    assert (result.tasks[0].name, result.tasks[0].ended) == ("other", "no design space")
    assert result.tasks[1].best_s is not None
    # 64 in two with an inner part of 16 at most: five ways, so the session ends short
    full = tune(tasks, target, tmp_path, config(50, space=space))
    assert full.trials == 5
    assert full.tasks[1].ended == "space exhausted"


def test_patience_and_time(tmp_path: Path, target: Any, tasks: list[TaskSpec]) -> None:
    from pruner_ms.testing.fakes import FakeRunner

    flat = FakeRunner(latency=lambda mod: 1e-3, seconds=0.0)
    result = tune(tasks[:1], target, tmp_path / "a", config(500, runner=flat, patience=20))
    assert result.tasks[0].ended == "patience"
    assert 21 <= result.trials <= 21 + 16
    slow = FakeRunner(seconds=0.05)
    result = tune(tasks, target, tmp_path / "b", config(5000, runner=slow, seconds=1.0, batch=4))
    assert {t.ended for t in result.tasks} == {"time"}
    assert 4 <= result.trials <= 40
    assert not result.interrupted


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_latencies_that_are_no_numbers_never_enter(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], value: float
) -> None:
    from pruner_ms.testing.fakes import FakeRunner, hash_latency, unit_hash

    def latency(mod: Any) -> float:
        return value if unit_hash(mod) < 0.3 else hash_latency(mod)

    runner = FakeRunner(latency, seconds=0.0)
    result = tune(tasks[:1], target, tmp_path, config(24, runner=runner))
    assert 0 < result.tasks[0].failures["nonfinite"] < 24
    assert result.tasks[0].best_s is not None
    assert 1e-3 <= result.tasks[0].best_s <= 1e-2
    again = tune(tasks[:1], target, tmp_path, config(24))
    assert (again.notes, again.trials, again.resumed) == ([], 24, 24)


def test_a_machine_on_which_everything_failed_gets_another_chance(
    tmp_path: Path, target: Any, tasks: list[TaskSpec]
) -> None:
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    first = tune(tasks, target, tmp_path, config(20, FakeBuilder(1.0)))
    assert set(first.failures) == {"small", "other"}
    runner = FakeRunner(seconds=0.0)
    second = tune(tasks, target, tmp_path, config(20, runner=runner))
    assert (second.resumed, second.trials, len(runner.ran)) == (0, 20, 20)
    assert second.failures == {}
    assert "all 20 earlier trials failed" in second.notes[0]


def test_a_task_that_failed_whole_is_tried_again_beside_one_that_did_not(
    tmp_path: Path, target: Any, tasks: list[TaskSpec]
) -> None:
    from pruner_ms.testing.fakes import FakeBuilder

    def fail(mod: Any) -> str | None:
        return "no device" if "128" in mod.script() else None

    first = tune(tasks, target, tmp_path, config(32, FakeBuilder(fail), batch=8))
    other, small = first.tasks
    assert other.best_s is None and other.trials >= 8 and small.best_s is not None
    again = tune(tasks, target, tmp_path, config(64))
    assert [t.resumed for t in again.tasks] == [0, small.trials]
    assert again.tasks[0].best_s is not None
    assert f"all {other.trials} earlier trials of other failed" in again.notes[0]


def test_stop_from_outside_finishes_the_batch(
    tmp_path: Path, target: Any, tasks: list[TaskSpec]
) -> None:
    stop = threading.Event()

    def watch(progress: Any) -> None:
        if progress.trials >= 10:
            stop.set()

    result = tune(tasks, target, tmp_path, config(500, batch=4), watch, stop)
    assert result.interrupted
    assert 10 <= result.trials <= 14
    assert result.trials == len(result.database)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("strategy", "evolutionery"),
        ("cost_model", "gpt"),
        ("builder", "remote"),
        ("runner", "lokal"),
        ("task_scheduler", "greedy"),
        ("seed", -1),
        ("batch", 0),
    ],
)
def test_names_and_numbers_are_checked_before_anything_happens(
    tmp_path: Path, option: str, value: object
) -> None:
    path = tmp_path / "never"
    settings = {"strategy": "replay-trace", "builder": "local", "runner": "local", option: value}
    with pytest.raises(OptionError, match=str(value)):
        tune([TaskSpec("x", None)], None, path, TuneConfig(Budget(1), **settings))
    with pytest.raises(OptionError, match="nothing to tune"):
        tune([], None, path, TuneConfig(Budget(1)))
    assert not path.exists()


def test_two_sessions_do_not_share_a_directory(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], tuned: Path
) -> None:
    from pruner_ms.records.workdir import WorkDir

    shutil.copytree(tuned, tmp_path / "w")
    with WorkDir(tmp_path / "w"), pytest.raises(WorkDirError, match="in use by process"):
        tune(tasks, target, tmp_path / "w", config(4))


@pytest.mark.heavy
def test_the_cost_model_is_kept_and_resumed(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from pruner_ms.model import verifier
    from pruner_ms.session.model_state import FILE

    fits: list[int] = []
    real = verifier.train

    def counted(trained: Any, records: Any, *rest: Any) -> float:
        fits.append(len(records))
        return real(trained, records, *rest)

    monkeypatch.setattr(verifier, "train", counted)
    ours: dict[str, Any] = {"strategy": "pruner", "cost_model": "pacm"}
    tune(tasks, target, tmp_path, config(32, **ours))
    assert fits and (tmp_path / FILE).is_file()
    learned, content = len(fits), (tmp_path / FILE).read_bytes()

    again = tune(tasks, target, tmp_path, config(40, **ours))
    assert again.trials == 40 and not any("anew" in note for note in again.notes)
    # only the eight new trials are learned: nothing of what the file had
    assert all(count > 32 for count in fits[learned:]) and len(fits) <= learned + 1

    (tmp_path / FILE).write_bytes(content[: len(content) // 2])
    third_run = tune(tasks, target, tmp_path, config(48, **ours))
    assert third_run.trials == 48
    assert [FILE in note for note in third_run.notes if "starts anew" in note] == [True]
