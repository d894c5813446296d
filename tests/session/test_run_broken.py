"""Sessions whose strategy, model, scheduler or disk fails: what was measured is kept."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from pruner_ms.errors import EnvironmentFault, WorkDirError
from pruner_ms.session.budget import Budget
from pruner_ms.session.options import TaskSpec, TuneConfig


def config(trials: int, builder: Any = None, runner: Any = None, **more: Any) -> TuneConfig:
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    limits = {k: more.pop(k) for k in ("seconds", "patience", "min_gain") if k in more}
    return TuneConfig(
        Budget(trials, **limits),
        strategy=more.pop("strategy", "replay-trace"),
        cost_model=more.pop("cost_model", "random"),
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


def test_a_strategy_that_fails_ends_its_task_and_keeps_what_is_there(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], tvm_paths: Any
) -> None:
    ms = tvm_paths.ms

    @tvm_paths.derived_object
    class Breaks(ms.search_strategy.PySearchStrategy):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ms.search_strategy.ReplayTrace()
            self.rounds = 0
            self.small = False

        def _initialize_with_tune_context(self, context: Any) -> None:
            self.small = context.task_name == "small"
            self.inner._initialize_with_tune_context(context)

        def pre_tuning(self, *args: Any) -> None:
            self.inner.pre_tuning(*args)

        def post_tuning(self) -> None:
            self.inner.post_tuning()

        def generate_measure_candidates(self) -> Any:
            self.rounds += 1
            if self.small and self.rounds > 2:
                raise RuntimeError("out of ideas")
            return self.inner.generate_measure_candidates()

        def notify_runner_results(self, *args: Any) -> None:
            self.inner.notify_runner_results(*args)

        def clone(self) -> Any:
            return Breaks()

    result = tune(tasks, target, tmp_path, config(64, strategy=Breaks(), batch=4))
    other, small = result.tasks
    assert result.trials == 64 == len(result.database) - len(tasks)  # and the untuned functions
    assert (small.trials, small.ended) == (8, "search failed")
    assert "out of ideas" in result.failures["small"]
    assert other.ended == "budget"


def test_a_cost_model_that_fails_is_left_out(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], tvm_paths: Any
) -> None:
    ms = tvm_paths.ms

    @tvm_paths.derived_object
    class Diverges(ms.cost_model.PyCostModel):
        def load(self, path: str) -> None: ...
        def save(self, path: str) -> None: ...
        def predict(self, context: Any, candidates: Any) -> Any: ...
        def update(self, context: Any, candidates: Any, results: Any) -> None:
            raise ValueError("loss is nan")

    result = tune(tasks, target, tmp_path, config(12, cost_model=Diverges()))
    assert result.trials == 12
    assert result.failures == {}
    assert len(result.notes) == 1
    assert "loss is nan" in result.notes[0]


def test_a_scheduler_that_fails_loses_nothing(
    tmp_path: Path, target: Any, tasks: list[TaskSpec]
) -> None:
    import pruner_ms.session.run as run

    original = run.ms.tune.tune_tasks

    def falls(**kwargs: Any) -> None:
        kwargs["max_trials_global"] = 10
        original(**kwargs)
        raise RuntimeError("the scheduler fell over")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.ms.tune, "tune_tasks", falls)
        result = tune(tasks, target, tmp_path, config(64, batch=5))
    assert result.failures["session"] == result.error == "the scheduler fell over"
    assert "ended early: the scheduler fell over; what was measured is saved" in result.notes[-1]
    assert len(result.database) - len(tasks) == result.trials >= 10
    assert all(task.untuned_s for task in result.tasks)
    again = tune(tasks, target, tmp_path, config(20))
    assert (again.resumed, again.trials) == (result.trials, max(20, result.trials))
    assert again.error is None


def test_a_full_disk_ends_the_session_with_its_own_error(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.records import workdir
    from pruner_ms.session import journal

    def full(workloads: Path, records: Path, before: int, expected: int) -> None:
        raise WorkDirError(f"no space for {records.name}")

    with monkeypatch.context() as patch:
        patch.setattr(workdir, "sync_trials", full)
        with pytest.raises(WorkDirError, match="no space for database_tuning_record"):
            tune(tasks, target, tmp_path, config(20))

    def broken(fd: int) -> None:
        raise OSError(28, "No space left on device")

    before = (tmp_path / "journal.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(journal.os, "fsync", broken)
        patch.setattr("pruner_ms.records.workdir._probe", lambda root: None)
        patch.setattr("pruner_ms.files.os.fsync", broken)
        with pytest.raises(WorkDirError, match="No space left"):
            tune(tasks, target, tmp_path, config(20))
    assert (tmp_path / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize("lost", [b"", b'["123", "torn'])
def test_a_program_that_did_not_reach_its_table_ends_the_session_and_comes_back(
    tmp_path: Path,
    target: Any,
    tasks: list[TaskSpec],
    monkeypatch: pytest.MonkeyPatch,
    lost: bytes,
) -> None:
    from pruner_ms.session import callbacks

    original = callbacks.commit

    def full(*arguments: Any) -> None:
        original(*arguments)
        (tmp_path / "database_workload.json").write_bytes(lost)

    with monkeypatch.context() as patch:
        patch.setattr(callbacks, "commit", full)
        with pytest.raises(WorkDirError, match=r"a program did not reach .*database_workload.json"):
            tune(tasks[:1], target, tmp_path, config(8, batch=4))
    assert (tmp_path / "database_workload.json").read_bytes() == b""
    made = (tmp_path / "journal.jsonl").read_bytes().count(b"\n")
    again = tune(tasks[:1], target, tmp_path, config(8))
    assert (again.resumed, again.trials) == (made, 8) and made > 0


@pytest.mark.parametrize("part", ["builder", "runner"])
@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ("OSError: [Errno 28] No space left on device: 'x.tar'", "TMPDIR"),
        ("OSError: [Errno 122] Disk quota exceeded", "TMPDIR"),
        ("OSError: [Errno 30] Read-only file system: 'x.tar'", "can be written"),
        ("OSError: [Errno 24] Too many open files", "ulimit -n"),
    ],
)
def test_a_fault_of_the_machine_is_no_failure_of_a_candidate(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], part: str, words: str, cure: str
) -> None:
    from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

    said = f"Traceback (most recent call last):\n{words}\n"

    def fail(mod: Any) -> str:
        return said

    made = {
        "builder": FakeBuilder(fail if part == "builder" else 0.0),
        "runner": FakeRunner(seconds=0.0, fail=fail if part == "runner" else 0.0),
    }
    with pytest.raises(EnvironmentFault, match=cure) as caught:
        tune(tasks[:1], target, tmp_path, config(8, **made))
    assert words in str(caught.value) and caught.value.exit_code == 5
    assert (tmp_path / "journal.jsonl").read_bytes() == b""
    again = tune(tasks[:1], target, tmp_path, config(8))
    assert (again.resumed, again.trials, again.tasks[0].failures) == (0, 8, {})


def test_what_boards_had_measured_before_a_fault_is_in_the_journal(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], tvm_paths: Any
) -> None:
    ms = tvm_paths.ms

    def result(number: int) -> Any:
        if number == 0:
            return ms.runner.RunnerResult(None, "OSError: [Errno 28] No space left on device")
        return ms.runner.RunnerResult([1e-3], None)

    class _Boards(ms.runner.PyRunner):
        """The first result, asked for first, is a fault; the second is not there yet."""

        remote = True

        def run(self, runner_inputs: list[Any]) -> list[Any]:
            return [
                ms.runner.RunnerFuture(lambda n=n: n != 1, lambda n=n: result(n))
                for n in range(len(runner_inputs))
            ]

    boards = tvm_paths.derived_object(_Boards)()
    with pytest.raises(EnvironmentFault, match="TMPDIR"):
        tune(tasks[:1], target, tmp_path, config(8, runner=boards, batch=4))
    assert (tmp_path / "journal.jsonl").read_bytes().count(b"\n") == 2
    again = tune(tasks[:1], target, tmp_path, config(8))
    assert (again.resumed, again.trials) == (2, 8)


def test_a_runner_that_was_made_by_name_is_closed_whatever_ends_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from types import SimpleNamespace

    from pruner_ms.session import parts
    from pruner_ms.testing.fakes import FakeBuilder

    closed: list[bool] = []
    made = SimpleNamespace(close=lambda: closed.append(True))
    stock = SimpleNamespace()
    monkeypatch.setattr(parts.ms.runner.Runner, "create", staticmethod(lambda *_, **__: stock))
    monkeypatch.setattr(
        parts, "retrying", lambda x, owns_inner: made if x is stock and owns_inner else x
    )
    named = TuneConfig(builder=FakeBuilder(), runner="rpc", cost_model="none")
    with pytest.raises(EnvironmentFault), parts.parts(named) as (_, runner, _):
        assert runner is made
        raise EnvironmentFault("no server is left")
    assert closed == [True]


def test_the_second_ctrl_c_is_no_error_of_the_scheduler(
    tmp_path: Path, target: Any, tasks: list[TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pruner_ms.session.run as run
    from pruner_ms.session.interrupt import CtrlC, raise_if_pressed_twice

    stop = threading.Event()

    def returns(**kwargs: Any) -> None:
        keys.count = 2

    def raises(**kwargs: Any) -> None:
        keys.count = 2
        raise RuntimeError("what TVM makes of a KeyboardInterrupt")

    for tune_tasks in (returns, raises):
        with monkeypatch.context() as patch, CtrlC(stop.set, second=None) as keys:
            patch.setattr(run.ms.tune, "tune_tasks", tune_tasks)
            with pytest.raises(KeyboardInterrupt):
                tune(tasks, target, tmp_path, config(8), None, stop)
    raise_if_pressed_twice()  # the context is over


def test_the_second_ctrl_c_is_no_error_of_the_cost_model() -> None:
    from types import SimpleNamespace

    from pruner_ms.session import callbacks
    from pruner_ms.session.interrupt import CtrlC

    def fails(*arguments: Any) -> None:
        raise RuntimeError("what TVM makes of a KeyboardInterrupt")

    notes: list[str] = []
    progress, state = SimpleNamespace(note=notes.append), SimpleNamespace(keep=lambda: None)
    learn = callbacks._LearnFromTrials(progress, state)  # type: ignore[arg-type]
    learn.stock = SimpleNamespace(apply=fails)
    with CtrlC(lambda: None, second=None) as keys:
        learn.apply(None, 0, None, None, None)
        assert len(notes) == 1
        keys.count = 2
        with pytest.raises(KeyboardInterrupt):
            learn.apply(None, 0, None, None, None)
    assert len(notes) == 1
