"""The screen while a command runs: errors as they are written, and Ctrl-C twice."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

_SHOW_CURSOR = b"\x1b[?25h"

_HANGS = """
import sys, time
from pathlib import Path
from pruner_ms.cli import main
from pruner_ms.integration import pipeline

ready, stopping = map(Path, sys.argv[1:])

def tune(*model, stop, **options):
    ready.touch()
    end = time.monotonic() + 60  # in steps: a signal that another thread took waits for Python
    while time.monotonic() < end:
        time.sleep(0.02)
        if stop.is_set():
            stopping.touch()

pipeline.tune = tune
sys.argv = ["pruner-ms", "tune", "model", "--work-dir", str(ready.parent / "run")]
main()
"""


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.heavy
@pytest.mark.parametrize("terminal", [True, False])
def test_the_second_ctrl_c_has_the_last_word_on_the_screen(tmp_path: Path, terminal: bool) -> None:
    ready, stopping = tmp_path / "ready", tmp_path / "stopping"
    ours, theirs = os.openpty() if terminal else os.pipe()
    command = [sys.executable, "-c", _HANGS, str(ready), str(stopping)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        try:
            for place in (ready, stopping):
                _wait_for(place)
                process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        finally:
            process.kill()
    said = os.read(ours, 65536)
    os.close(ours)
    assert b"stopped; what was measured is saved, the same command resumes" in said
    assert (_SHOW_CURSOR in said) == terminal


@dataclass
class Task:
    """What the lines about a task show."""

    message: str
    name: str = "a[/b]"
    ended: str = "failed"
    trials: int = 4
    best_s: float | None = None
    gain: float | None = None
    in_flight: int = 0
    failures: dict[str, int] = field(default_factory=dict)


@pytest.mark.parametrize("terminal", [True, False])
def test_brackets_in_an_error_are_no_markup(terminal: bool) -> None:
    from pruner_ms.cli.live import LiveProgress

    text = io.StringIO()
    live = LiveProgress(Console(file=text, width=200, force_terminal=terminal))
    figures: dict[str, Any] = {"trials": 4, "failed": 0, "total_s": None, "seconds": 1.0}
    tasks = [Task("cannot open [/tmp/x] [bold]")]
    progress = SimpleNamespace(tasks=tasks, budget=SimpleNamespace(trials=8), eta_s=None, **figures)
    live(progress)  # type: ignore[arg-type]
    live.stop()
    assert "a[/b]" in text.getvalue()
    assert terminal or "cannot open [/tmp/x] [bold]" in text.getvalue()


def test_what_tvm_writes_is_kept_in_a_work_dir_under_the_home_folder(
    pruner_ms: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import pipeline

    logs = tmp_path / "run" / "logs"
    logs.mkdir(parents=True)

    def tune(*model: Any, **options: Any) -> Any:
        os.write(1, b"words of LLVM\n")
        return SimpleNamespace(interrupted=False, error=None, summary={})

    monkeypatch.setattr(pipeline, "tune", tune)
    monkeypatch.setenv("HOME", str(tmp_path))
    said = pruner_ms("tune", "model", "--work-dir", "~/run", "--quiet")
    assert (said.code, said.err) == (0, "")
    assert b"words of LLVM\n" in (logs / "native.log").read_bytes()


@pytest.mark.parametrize(
    ("interrupted", "error", "code"),
    [(False, None, 0), (True, None, 130), (False, "the scheduler fell over", 5)],
)
def test_how_a_run_ended_is_its_exit_code(
    pruner_ms: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupted: bool,
    error: str | None,
    code: int,
) -> None:
    from pruner_ms.integration import pipeline

    def tune(*model: Any, **options: Any) -> Any:
        return SimpleNamespace(interrupted=interrupted, error=error, summary={})

    monkeypatch.setattr(pipeline, "tune", tune)
    said = pruner_ms("tune", "model", "--work-dir", str(tmp_path / "run"), "--quiet")
    assert (said.code, said.err) == (code, "")


def test_a_run_without_the_gain_that_was_required_is_shown_and_ends_with_6(
    pruner_ms: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.errors import NoGainError
    from pruner_ms.integration import pipeline

    asked: list[Any] = []

    def tune(*model: Any, **options: Any) -> Any:
        asked.append(options["require_gain"])
        summary = {"status": "no gain", "network": {"gain": 1.0}}
        raise NoGainError("no gain: nothing beats it", SimpleNamespace(summary=summary))

    monkeypatch.setattr(pipeline, "tune", tune)
    arguments = ["tune", "model", "--work-dir", str(tmp_path / "run"), "--json", "--require-gain"]
    said = pruner_ms(*arguments)
    assert (said.code, said.err, asked) == (6, "error: no gain: nothing beats it\n", [True])
    assert '"status": "no gain"' in said.out
