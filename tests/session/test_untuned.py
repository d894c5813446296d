"""Trial 0 of a session: what it costs, what it is good for, and that it is made once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from pruner_ms.session.budget import Budget
from pruner_ms.session.options import TaskSpec, TuneConfig


@pytest.fixture(scope="session")
def tasks(tvm_paths: Any, matmul: Any) -> list[TaskSpec]:
    other = tvm_paths.te.create_prim_func(tvm_paths.te_workload.matmul(32, 64, 128))
    return [TaskSpec("small", matmul, 1.0), TaskSpec("other", other, 3.0)]


class Measured:
    """Sessions in which untuned functions take what a test says, and schedules 1 to 10 ms."""

    def __init__(self, tasks: list[TaskSpec], target: Any, path: Path) -> None:
        from pruner_ms.session.parts import normalized
        from pruner_ms.tvm_compat.paths import module_key

        self.tasks, self.target, self.path = tasks, target, path
        self.untuned = {module_key(normalized(task.mod)): task.name for task in tasks}
        self.ran: list[str] = []

    def __call__(
        self, trials: int, seconds: dict[str, float], stop: Any = None, **more: Any
    ) -> Any:
        from pruner_ms.session.run import tune_session
        from pruner_ms.testing.fakes import FakeBuilder, FakeRunner, hash_latency
        from pruner_ms.tvm_compat.paths import module_key

        def latency(mod: Any) -> float:
            name = self.untuned.get(module_key(mod))
            return hash_latency(mod) if name is None else seconds[name]

        runner = FakeRunner(latency, seconds=0.0)
        parts = {"strategy": "replay-trace", "cost_model": "random", "builder": FakeBuilder()}
        config = TuneConfig(Budget(trials), **{**parts, "runner": runner, **more})
        watch = None if stop is None else stop.watch
        event = None if stop is None else stop.event
        result = tune_session(self.tasks, self.target, self.path, config, watch, event)
        self.ran = [self.untuned[key] for key in runner.ran if key in self.untuned]
        return result


@pytest.fixture
def measured(tasks: list[TaskSpec], target: Any, tmp_path: Path) -> Measured:
    return Measured(tasks, target, tmp_path)


@pytest.mark.parametrize("strategy", ["replay-trace", "evolutionary", "pruner"])
def test_each_task_has_its_untuned_function_measured_once_beside_the_budget(
    measured: Measured, strategy: str, tvm_paths: Any
) -> None:
    more: dict[str, Any] = {"strategy": strategy}
    if strategy == "pruner":
        more["cost_model"] = "none"
    if strategy == "evolutionary":  # with fewer than its 512 at a time
        more["strategy"] = tvm_paths.ms.search_strategy.EvolutionarySearch(
            population_size=16, init_min_unmeasured=4, genetic_num_iters=1
        )
    first = measured(12, {"small": 1e-6, "other": 0.5}, **more)
    assert (first.trials, len(first.database)) == (12, 14)
    assert sorted(measured.ran) == ["other", "small"]
    assert {t.name: t.untuned_s for t in first.tasks} == {"small": 1e-6, "other": 0.5}
    assert all(t.best_s is not None and t.best_s >= 1e-3 for t in first.tasks)
    journal = (measured.path / "journal.jsonl").read_bytes().splitlines()
    assert len(journal) == 14

    again = measured(16, {}, **more)  # it would fail for want of a latency
    assert (again.trials, again.resumed, measured.ran) == (16, 12, [])
    assert {t.name: t.untuned_s for t in again.tasks} == {"small": 1e-6, "other": 0.5}


def test_stock_compiles_the_function_as_it_is_where_nothing_beats_it(
    measured: Measured, tvm_paths: Any
) -> None:
    from pruner_ms.session.parts import normalized
    from pruner_ms.tvm_compat.paths import module_key

    measured(12, {"small": 1e-6, "other": 0.5})
    stock = tvm_paths.ms.database.JSONDatabase(work_dir=str(measured.path))
    for task in measured.tasks:
        module = stock.query_ir_module(normalized(task.mod), measured.target, "main")
        same = module_key(module) == module_key(normalized(task.mod))
        assert same == (task.name == "small")


def test_records_and_journal_of_untuned_functions_come_back(measured: Measured) -> None:
    """A record that a kill has kept from the database is rebuilt from the journal."""
    measured(12, {"small": 2e-6, "other": 0.5})
    records = measured.path / "database_tuning_record.json"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(lines[:-2]))  # those of the untuned functions are the last
    again = measured(12, {})
    assert (again.trials, len(again.database), measured.ran) == (12, 14, [])
    assert {t.name: t.untuned_s for t in again.tasks} == {"small": 2e-6, "other": 0.5}


def test_a_whole_search_without_them_is_completed(measured: Measured) -> None:
    measured(12, {}, untuned=False)
    again = measured(12, {"small": 1e-6, "other": 1e-6})
    assert (again.trials, again.resumed, len(again.database)) == (12, 12, 14)
    assert sorted(measured.ran) == ["other", "small"]


def test_a_whole_search_needs_no_device(measured: Measured) -> None:
    from pruner_ms.errors import TargetError

    def absent() -> None:
        raise TargetError("no such device here")

    measured(12, {}, untuned=False)
    again = measured(12, {}, ready=absent)
    assert (again.trials, measured.ran) == (12, [])
    with pytest.raises(TargetError):
        measured(13, {}, ready=absent)


def test_one_that_fails_is_no_reason_to_end_and_not_tried_again(measured: Measured) -> None:
    first = measured(12, {"small": float("nan"), "other": 0.5})
    assert {t.name: t.untuned_s for t in first.tasks} == {"small": None, "other": 0.5}
    assert (first.trials, first.failures) == (12, {})
    measured(12, {})
    assert measured.ran == []


def test_after_ctrl_c_those_of_tasks_with_a_trial_are_measured(measured: Measured) -> None:
    class Stop:
        event = threading.Event()

        @staticmethod
        def watch(progress: Any) -> None:
            if progress.trials:
                Stop.event.set()

    result = measured(500, {"small": 1e-6, "other": 1e-6}, Stop, batch=4)
    assert result.interrupted
    tried = [t.name for t in result.tasks if t.trials]
    assert (measured.ran, tried) == (["other"], ["other"])


def test_what_cannot_be_the_best_is_not_run(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.search import untuned

    monkeypatch.setattr(untuned, "_predicted", lambda mod, target, hardware: 30.0)
    result = measured(12, {})
    assert (measured.ran, len(result.database)) == ([], 12)


def test_where_records_serve_other_functions_there_is_none(measured: Measured) -> None:
    result = measured(12, {}, module_equality="anchor-block")
    assert (measured.ran, len(result.database)) == ([], 12)


def test_a_strategy_that_measures_it_itself_has_it_shown_apart(measured: Measured) -> None:
    import pruner_ms

    ours = pruner_ms.PrunerSearch(first_trials=4)
    more = {"strategy": ours, "cost_model": "none", "batch": 4}
    result = measured(12, {"small": 1e-6, "other": 1e-6}, **more)
    assert result.trials == 12
    assert sorted(measured.ran) == ["other", "small"]
    lines = (measured.path / "database_tuning_record.json").read_text().splitlines()
    assert (
        len(lines)
        == 14
        == len({json.dumps(json.loads(line)[:1] + json.loads(line)[1][:1]) for line in lines})
    )
