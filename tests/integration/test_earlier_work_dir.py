"""A work-dir of an earlier state of this package opens: it is read, and tuning goes on from it.

`data/work-dir-0.1.0` was written by `pruner-ms tune` and is never written anew: what a later
version cannot read there, it cannot read of its users either. A change of the schema adds another.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import pruner_ms
from pruner_ms.errors import DatabaseError
from pruner_ms.report.summary import load_summary

DATA = Path(__file__).parent / "data"
TRIALS = 12
"""Measured in the work-dir."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "work-dir-0.1.0", tmp_path / "run"))


def tuned(work_dir: Path, trials: int, builder: Any) -> Any:
    from pruner_ms.testing.fakes import FakeRunner

    return pruner_ms.tune(
        str(DATA / "small.onnx"),
        '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}',
        work_dir=work_dir,
        trials=trials,
        cost_model="none",
        builder=builder,
        runner=FakeRunner(seconds=0.0),
        verify="off",
    )


def test_it_is_read(earlier: Path) -> None:
    summary = load_summary(earlier)
    assert summary["status"] == "complete" and summary["trials"]["total"] == TRIALS
    assert all(task["best_s"] > 0 for task in summary["tasks"])


@pytest.mark.heavy
def test_what_it_measured_is_not_measured_again(earlier: Path) -> None:
    from pruner_ms.integration.relax import REWRITES
    from pruner_ms.testing.fakes import FakeBuilder

    before = {t["name"]: t["best_s"] for t in load_summary(earlier)["tasks"]}
    same = tuned(earlier, TRIALS, builder := FakeBuilder())
    assert builder.built == len(before)  # untuned: that version did not measure them
    without = f"begun without {', '.join(REWRITES)}: it goes on"
    assert any(without in note for note in same.notes)
    assert {t.name: t.best_s for t in same.tasks} == before
    assert sum(t.resumed for t in same.tasks) == TRIALS
    tuned(earlier, TRIALS, builder := FakeBuilder())
    assert builder.built == 0
    more = tuned(earlier, TRIALS + 4, builder := FakeBuilder())
    assert builder.built == 4
    assert sum(t.trials for t in more.tasks) == TRIALS + 4
    assert all(after.best_s <= before[after.name] for after in more.tasks)


def test_it_names_nobodys_machine() -> None:
    files = [p for p in (DATA / "work-dir-0.1.0").rglob("*") if p.is_file()]
    assert {p.name for p in files} >= {"summary.json", "journal.jsonl", "manifest.json"}
    assert sum(p.stat().st_size for p in files) < 200_000
    for path in files:
        assert b"/work" not in path.read_bytes() and b"/home" not in path.read_bytes()


def test_a_later_versions_is_refused_and_left_alone(earlier: Path) -> None:
    manifest = earlier / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema": 99}))
    files = {p: p.read_bytes() for p in earlier.iterdir() if p.is_file()}
    from pruner_ms.testing.fakes import FakeBuilder

    with pytest.raises(DatabaseError, match="schema 99"):
        tuned(earlier, TRIALS + 4, FakeBuilder())
    files_after = {p: p.read_bytes() for p in files if p.exists()}
    assert files_after == files
