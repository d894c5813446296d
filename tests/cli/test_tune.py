"""The command on a tiny model, with real builders and runners."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.tvm_compat.marks import marks_untuned

QUICK = ["--strategy", "replay-trace", "--cost-model", "random"]
TRIALS = 8


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: Any) -> Path:
    """Work-dir of one run with 8 trials."""
    path = Path(tmp_path_factory.mktemp("run")) / "dir"
    command = [sys.executable, "-m", "pruner_ms", "tune", str(tiny), *QUICK]
    done = subprocess.run(
        [*command, "--trials", str(TRIALS), "--work-dir", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (path.parent / "out.txt").write_text(done.stdout)
    return path


@pytest.mark.heavy
def test_what_the_screen_shows(run: Path) -> None:
    text = (run.parent / "out.txt").read_text()
    order = [
        "loading the model",
        "fused_matmul_relu",
        "2 tasks, 8 trials",
        "tuning ...",
        "verifying ...",
        "whole network:",
        "verified: 4 of 4 comparisons of outputs: equal",
        "8 trials, 0 failed",
        "library: ",
    ]
    places = [text.find(words) for words in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)
    assert "\x1b" not in text
    assert "[INFO]" not in text


def test_what_is_left_in_the_work_dir(run: Path) -> None:
    names = {path.name for path in run.iterdir()}
    assert names >= {
        "database_workload.json",
        "database_tuning_record.json",
        "journal.jsonl",
        "manifest.json",
        "summary.json",
        "model.so",
        "model.json",
        "logs",
    }
    # each of the two tasks has its untuned function beside the trials
    assert len((run / "database_tuning_record.json").read_text().splitlines()) == TRIALS + 2
    log = (run / "logs" / "session.log").read_text()
    assert "verifying" in log
    assert "Traceback" not in log
    assert (run / "logs" / "metaschedule.log").stat().st_size > 0
    summary = json.loads((run / "summary.json").read_text())
    untuned = summary["network"]["delivered"] == "untuned"
    assert summary["status"] == ("no gain" if untuned else "complete")
    assert all(t["untuned_s"] > 0 for t in summary["tasks"])
    kinds = {t["delivered"] for t in summary["tasks"] if untuned or t["untuned_s"] < t["best_s"]}
    assert kinds <= {"untuned"}
    assert summary["network"]["after_s"] <= summary["network"]["before_s"] / 0.97 + 1e-12
    assert summary["trials"] == {"total": TRIALS, "resumed": 0, "failed": 0, "budget": TRIALS}
    assert {t["name"] for t in summary["tasks"]} == {"fused_matmul_relu", "softmax"}
    assert all(0 < t["best_s"] <= t["first_s"] for t in summary["tasks"])
    assert summary["network"]["before_s"] > 0
    assert summary["verification"]["passed"] is True
    assert summary["versions"]["apache-tvm"]
    assert summary["target"]["kind"] == "llvm"
    assert summary["options"]["strategy"] == "replay-trace"
    best = {t["name"]: t["best_s"] for t in summary["tasks"]}
    ends = {p["task"]: p["best_s"] for p in summary["curve"]}
    assert ends == best


@pytest.mark.heavy
def test_the_library_runs_without_us_and_is_right(run: Path, tiny: Path) -> None:
    import onnxruntime

    from pruner_ms.integration.export import run_exported

    x = np.random.default_rng(1).standard_normal((24, 32)).astype(np.float32)
    (got,) = run_exported(run / "model.so", [x])
    (expected,) = onnxruntime.InferenceSession(str(tiny)).run(None, {"x": x})
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.heavy
def test_the_same_command_again_measures_nothing(
    run: Path, tiny: Path, pruner_ms: Callable[..., Any]
) -> None:
    journal = (run / "journal.jsonl").read_bytes()
    arguments = ["--trials", str(TRIALS), "--work-dir", str(run), "--json", "--verify", "off"]
    said = pruner_ms("tune", str(tiny), *QUICK, *arguments)
    assert (said.code, said.err) == (0, "")
    summary = json.loads(said.out)
    assert summary.pop("engines") is None  # they are not part of what a run was
    assert summary["trials"]["resumed"] == summary["trials"]["total"] == TRIALS
    assert summary["verification"] is None
    assert (run / "journal.jsonl").read_bytes() == journal
    assert json.loads((run / "summary.json").read_text()) == summary


def test_report(run: Path, pruner_ms: Callable[..., Any]) -> None:
    said = pruner_ms("report", str(run))
    assert (said.code, said.err) == (0, "")
    assert "fused_matmul_relu" in said.out
    assert "whole network:" in said.out
    said = pruner_ms("report", str(run / "summary.json"), "--json")
    assert json.loads(said.out) == json.loads((run / "summary.json").read_text())


@pytest.mark.heavy
def test_export_copies_what_runs_without_us(
    run: Path, tmp_path: Path, pruner_ms: Callable[..., Any]
) -> None:
    from pruner_ms.integration.export import read_metadata, run_exported

    out = tmp_path / "deep" / "net.so"
    said = pruner_ms("export", str(run), "-o", str(out))
    assert (said.code, said.err) == (0, "")
    assert "run in a process of its own: 24x48" in said.out
    said = pruner_ms("export", str(run), "-o", str(out), "--no-check", "--json")
    told = json.loads(said.out)
    assert (told["library"], told["checked"]) == (str(out), "not run")
    assert told["size"] == out.stat().st_size
    facts, source = read_metadata(out), read_metadata(run / "model.so")
    assert facts == {**source, "library": "net.so"}
    assert facts["target"]["kind"] == "llvm"
    assert facts["versions"]["apache-tvm"]
    assert facts["model_hash"]
    assert facts["latency_after"] > 0
    x = np.random.default_rng(1).standard_normal((24, 32)).astype(np.float32)
    (one,), (other,) = run_exported(out, [x]), run_exported(run / "model.so", [x])
    assert (one == other).all()
    assert sorted(path.name for path in out.parent.iterdir()) == ["net.json", "net.so"]


def test_export_says_what_is_missing(
    run: Path, tmp_path: Path, pruner_ms: Callable[..., Any]
) -> None:
    def refused(*arguments: object) -> str:
        said = pruner_ms("export", *map(str, arguments))
        assert said.code == 1
        assert said.err.startswith("error: ")
        return str(said.err)

    out = tmp_path / "net.so"
    assert "holds no model.so; repeat the `pruner-ms tune`" in refused(tmp_path, "-o", out)
    assert "does not end in .so" in refused(run, "-o", tmp_path / "net.tar")
    assert "the run's own library" in refused(run, "-o", run / "model.so")
    broken = tmp_path / "broken"
    broken.mkdir()
    library = (run / "model.so").read_bytes()
    (broken / "model.so").write_bytes(library[: len(library) // 2])
    (broken / "model.json").write_bytes((run / "model.json").read_bytes())
    assert "is not the library that model.json describes" in refused(broken, "-o", out)
    assert not out.exists()
    (tmp_path / "net.json").write_text("{}")
    assert "would be replaced" in refused(run, "-o", out)
    assert (tmp_path / "net.json").read_text() == "{}"


def test_another_target_in_the_same_work_dir_is_refused(
    run: Path, tiny: Path, pruner_ms: Callable[..., Any]
) -> None:
    other = '{"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1}'
    said = pruner_ms("tune", str(tiny), *QUICK, "--work-dir", str(run), "--target", other)
    assert said.code == 1
    assert f"{TRIALS + 2} records for the target" in said.err
    assert "give another --work-dir" in said.err


@pytest.mark.heavy
def test_quiet_says_nothing(run: Path, tiny: Path, pruner_ms: Callable[..., Any]) -> None:
    arguments = ["--trials", str(TRIALS), "--work-dir", str(run), "--quiet", "--verify", "off"]
    said = pruner_ms("tune", str(tiny), *QUICK, *arguments)
    assert (said.code, said.out, said.err) == (0, "", "")


@pytest.mark.heavy
def test_ctrl_c_from_a_terminal_saves_reports_and_spares_the_workers(
    tiny: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "run" / "journal.jsonl"
    command = [sys.executable, "-m", "pruner_ms", "tune", str(tiny), *QUICK, "--trials", "4000"]
    with subprocess.Popen(
        [*command, "--work-dir", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") >= 3:
                break
            time.sleep(0.05)
        # a terminal sends the signal to the whole group, workers included
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "")
    assert "stopping after this batch" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert summary["trials"]["failed"] == 0
    assert 3 <= summary["trials"]["total"] < 100
    records = (tmp_path / "run" / "database_tuning_record.json").read_bytes()
    untuned = sum(marks_untuned(json.loads(line)[1][0]) for line in records.splitlines())
    assert untuned in (1, 2), "those of the tasks that had a trial"
    assert records.count(b"\n") == summary["trials"]["total"] + untuned
    assert Path(summary["library"]).is_file()
