"""`doctor`: good, broken and absent environments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pruner_ms.cli import checks
from pruner_ms.cli.doctor import examine, lines

GOOD = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
EXTRAS = {"psutil": "7", "cloudpickle": "3", "tornado": "6"}
PASSED = {"ok": True, "stage": "tuned", "trials": 4, "seconds": 9.0, "best_s": 1e-5, "error": None}


def reader(**installed: str) -> Callable[[str], str | None]:
    return {**EXTRAS, **{k.replace("_", "-"): v for k, v in installed.items()}}.get


@pytest.mark.heavy
def test_this_environment_can_tune(pruner_ms: Callable[..., Any], tmp_path: Path) -> None:
    said = pruner_ms("doctor", "--json", "--work-dir", str(tmp_path))
    facts = json.loads(said.out)
    assert facts["problems"] == []
    assert (said.code, facts["can_tune"]) == (0, True)
    assert facts["self_test"]["trials"] == 4
    assert facts["self_test"]["best_s"] > 0
    assert facts["self_test"]["target"]["kind"] == "llvm"
    assert facts["cpu"]["cores"] >= 1
    assert facts["cpu"]["vector_bits"] >= 128
    assert facts["write"]["free_gb"] > 0
    assert list(tmp_path.iterdir()) == []
    text = "\n".join(lines(facts))
    assert "passed: 4 trials" in text
    assert "PROBLEM" not in text


def test_a_bad_pair_is_named_with_its_cure_and_never_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("TVM was started")

    monkeypatch.setattr(checks, "_output", lambda *command: None)
    monkeypatch.setattr(checks, "run", never)
    read = reader(apache_tvm="0.27.0.post1", apache_tvm_ffi="0.1.15.post2")
    facts = examine(tmp_path, read)
    assert not facts["can_tune"]
    assert len(facts["problems"]) == 1
    assert "pip install 'apache-tvm-ffi==0.1.14.post1'" in facts["problems"][0]
    assert facts["self_test"]["stage"] == "not run"
    assert any(line.startswith("PROBLEM: ") for line in lines(facts))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os.kill(os.getpid(), 11)", ["SIGSEGV", "after the stage start"]),
        ('print(\'{"stage": "import"}\', flush=True); raise SystemExit(9)', ["status 9"]),
        ("import nothing_of_that_name", ["nothing_of_that_name"]),
        ("import time; time.sleep(60)", ["no answer within 1 s"]),
    ],
)
def test_a_self_test_that_dies_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, words: list[str]
) -> None:
    monkeypatch.setattr(checks, "_SELF_TEST", ("-c", code))
    read = reader(apache_tvm="0.27.0.post1", apache_tvm_ffi="0.1.14.post1")
    facts = examine(tmp_path, read, seconds=1.0 if "sleep" in code else 30.0)
    assert not facts["can_tune"]
    assert len(facts["problems"]) == 1
    assert [w for w in words if w not in facts["problems"][0]] == []


def test_missing_helpers_and_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "self_test", lambda judged, seconds: dict(PASSED))
    versions = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1", "psutil": "7"}
    facts = examine(Path("/proc"), versions.get)
    assert len(facts["problems"]) == 2
    assert "pip install cloudpickle tornado" in facts["problems"][0]
    assert "/proc" in facts["write"]["place"]


def test_it_starts_without_any_tvm(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("tvm", "apache_tvm", "__editable__", "pruner_ms")):
            (packages / path.name).symlink_to(path)
    root = Path(checks.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-S", "-m", "pruner_ms", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{packages}"},
    )
    assert done.returncode == 5, done.stderr
    facts = json.loads(done.stdout)
    assert facts["pair"]["verdict"] == "none"
    assert facts["versions"]["apache-tvm"] is None
    assert "there is no TVM" in facts["problems"][0]
    assert "pip install 'pruner-ms[tvm]'" in facts["problems"][0]
    done = subprocess.run(
        [sys.executable, "-S", "-m", "pruner_ms", "tune", "squeezenet"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{packages}"},
    )
    assert done.returncode == 5
    assert done.stderr.startswith("error: there is no TVM in this environment; pip install")


def test_a_work_dir_that_tune_would_make_is_no_problem(tmp_path: Path) -> None:
    assert checks.writing(tmp_path / "runs" / "new")["ok"]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for place in (Path("/proc/new"), tmp_path / "file", tmp_path / "file" / "new"):
        report = checks.writing(place)
        assert (report["ok"], report["place"]) == (False, str(place))
