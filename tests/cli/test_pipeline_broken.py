"""`pruner_ms.tune` where something around the tuning fails: paths, the screen, TVM, the board."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import pruner_ms
from pruner_ms.errors import EnvironmentFault, ModelFileError, TargetError
from pruner_ms.integration.events import Events

from .small_run import options


def test_a_bad_model_removes_no_run_that_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run = tmp_path / "runs" / "bert"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_text("measured\n")
    for model in ("missing.onnx", "also missing.onnx"):
        with pytest.raises(ModelFileError):
            pruner_ms.tune(model, work_dir="~/runs/bert", **options())
    assert (run / "journal.jsonl").read_text() == "measured\n"
    with pytest.raises(ModelFileError):
        pruner_ms.tune("missing.onnx", work_dir="~/runs/new", **options())
    assert not (tmp_path / "runs" / "new").exists()


def test_a_tuning_that_tvm_ends_is_not_called_complete(
    matmul: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pruner_ms.session.run as session

    original = session.ms.tune.tune_tasks

    def falls(**kwargs: Any) -> None:
        original(**kwargs)
        raise RuntimeError("the scheduler fell over")

    with monkeypatch.context() as patch:
        patch.setattr(session.ms.tune, "tune_tasks", falls)
        result = pruner_ms.tune(matmul, work_dir=tmp_path, **options())
    assert result.error == "the scheduler fell over"
    assert json.loads((tmp_path / "summary.json").read_text())["status"] == "ended early"
    assert result.best and result.library is not None
    again = pruner_ms.tune(matmul, work_dir=tmp_path, **options())
    assert (again.error, again.summary["status"]) == (None, "complete")


@pytest.mark.parametrize("what", ["stage", "tasks", "progress", "note", "tuned"])
def test_events_that_fail_end_no_run(matmul: Any, tmp_path: Path, what: str) -> None:
    told: list[str] = []

    def fails(*about: Any) -> None:
        told.append(what)
        raise SystemExit(1)  # as rich does when a pipe breaks

    events = Events()
    setattr(events, what, fails)
    given = options(shard="1/1") if what == "note" else options()
    result = pruner_ms.tune(matmul, work_dir=tmp_path, events=events, **given)
    assert told == [what]
    assert result.summary["status"] == "complete" and result.tasks[0].trials == 6


def test_a_remote_runner_that_is_an_object_runs_nothing_here(
    matmul: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import verify
    from pruner_ms.integration.options import TuneOptions
    from pruner_ms.testing.fakes import FakeRunner
    from pruner_ms.tvm_compat.paths import derived_object, ms

    fake = FakeRunner(seconds=0.0)

    class _Board(ms.runner.PyRunner):
        remote = True

        def run(self, runner_inputs: list[Any]) -> list[Any]:
            return list(fake.run(runner_inputs))

    def crash(*arguments: object) -> None:
        raise AssertionError("another machine's instructions were run here")

    monkeypatch.setattr(verify, "_run", crash)
    given = options(runner=derived_object(_Board)())
    result = pruner_ms.tune(matmul, work_dir=tmp_path, **given)
    assert (result.checks, result.network) == ([], None)
    assert any("measured on the remote device (_Board)" in note for note in result.notes)
    assert json.loads((tmp_path / "model.json").read_text())["measured_on"] == "_Board"
    assert TuneOptions(runner="rpc").measured_on() == "rpc"
    assert TuneOptions(runner="local").measured_on() is TuneOptions().measured_on() is None


def test_a_run_that_wrote_no_library_is_not_called_complete(
    matmul: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import export
    from pruner_ms.report.tables import unfinished_line

    def fails(*arguments: Any) -> None:
        raise RuntimeError("there is no linker\nand more about it")

    with monkeypatch.context() as patch:
        patch.setattr(export, "export", fails)
        with pytest.raises(RuntimeError, match="no linker"):
            pruner_ms.tune(matmul, work_dir=tmp_path, **options())
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("not finished", "there is no linker")
    assert summary["library"] is None and "there is no linker" in unfinished_line(summary)
    again = pruner_ms.tune(matmul, work_dir=tmp_path, **options()).summary
    assert (again["status"], again["error"], unfinished_line(again)) == ("complete", None, "")


@pytest.mark.parametrize("runner", [None, "local", "persistent"])
def test_a_target_that_is_not_here_is_refused_before_anything_is_built(
    matmul: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str | None
) -> None:
    from pruner_ms.integration import local_device
    from pruner_ms.testing.fakes import FakeBuilder

    monkeypatch.setattr(local_device, "device_present", lambda target: False)
    given = options(builder=FakeBuilder(), runner=runner)
    with pytest.raises(TargetError, match=r"target llvm .*--rpc.*--dry-run"):
        pruner_ms.tune(matmul, work_dir=tmp_path / "run", **given)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError):
        pruner_ms.tune(matmul, **given)
    assert given["builder"].built == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert len(pruner_ms.tune(matmul, dry_run=True, **given).tasks) == 1


def test_a_target_that_is_not_here_is_no_matter_where_nothing_is_measured_here(
    matmul: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import local_device

    monkeypatch.setattr(local_device, "device_present", lambda target: False)
    pruner_ms.tune(matmul, work_dir=tmp_path, **options())  # the runner is the user's
    again = pruner_ms.tune(matmul, work_dir=tmp_path, **options(runner=None))
    assert again.library is not None and again.tasks[0].resumed == again.tasks[0].trials == 6
    with pytest.raises(TargetError, match="--rpc"):
        pruner_ms.tune(matmul, work_dir=tmp_path, **options(runner=None, trials=12))


def test_the_remote_runner_is_made_where_ctrl_c_is_blocked_and_closed_at_the_end(
    matmul: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import pipeline
    from pruner_ms.testing.fakes import FakeRunner
    from pruner_ms.tvm_compat.paths import derived_object, ms

    full = FakeRunner(seconds=0.0, fail=lambda mod: "OSError: No space left on device")
    blocked: list[bool] = []
    closed: list[bool] = []

    class _Board(ms.runner.PyRunner):
        remote = True

        def __init__(self) -> None:
            super().__init__()
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            blocked.append(signal.SIGINT in mask)

        def run(self, runner_inputs: list[Any]) -> list[Any]:
            return list(full.run(runner_inputs))

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(pipeline, "RemoteRunner", lambda address: derived_object(_Board)())
    given = options(rpc="127.0.0.1:9190/board", runner=None)
    with pytest.raises(EnvironmentFault, match="TMPDIR"):
        pruner_ms.tune(matmul, work_dir=tmp_path, **given)
    assert blocked == closed == [True]
