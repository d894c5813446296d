"""`explain` on a real, tiny run: closed form and replay, tables, JSON, and what is wrong input."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from pruner_ms.draft.cpu.latency import CPU_TERMS
from pruner_ms.draft.paper.penalties import PENALTIES
from pruner_ms.draft.paper.symbols import MEANINGS
from pruner_ms.errors import DatabaseError, OptionError
from pruner_ms.records.trials import run_tasks, task_of
from pruner_ms.report.explain import explain
from pruner_ms.report.explain_table import explained
from pruner_ms.session.budget import Budget
from pruner_ms.session.options import TaskSpec, TuneConfig
from pruner_ms.session.run import tune_session
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import IRModule, Target, te, te_workload

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}


def module(func: Any) -> Any:
    return IRModule({"main": func})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, tuned with fakes; a third has no trial."""
    import_intrinsics()
    place = tmp_path_factory.mktemp("run")
    tasks = [
        TaskSpec("dense", module(te.create_prim_func(te_workload.matmul(64, 64, 64)))),
        TaskSpec("softmax", module(te.create_prim_func(te_workload.softmax_mn(64, 64)))),
    ]
    config = TuneConfig(
        budget=Budget(trials=24),
        strategy="replay-trace",
        cost_model="random",
        builder=FakeBuilder(),
        runner=FakeRunner(),
        batch=8,
        num_threads=1,
    )
    tune_session(tasks, Target(LLVM), place, config)
    return Path(place)


def test_the_tasks_of_a_run_have_their_names_and_trials(run: Path) -> None:
    tasks = run_tasks(run)
    assert sorted(t.name for t in tasks) == ["dense", "softmax"]
    assert [t.index for t in tasks] == [0, 1]
    assert sum(len(t.records) for t in tasks) == 24
    for task in tasks:
        seconds = [s for s, _ in task.valid]
        assert seconds == sorted(seconds) and len(seconds) > 0


def test_every_figure_of_best_and_median_is_given(run: Path) -> None:
    explanation = explain(run, "dense")
    best, median, untuned = explanation["schedules"]
    assert untuned["origin"] == "read off the schedule" and untuned["measured_s"] > 0
    assert (best["which"], median["which"]) == ("best", "median")
    assert best["measured_s"] <= median["measured_s"]
    for schedule in (best, median):
        assert set(schedule["terms"]) == {t.name for t in CPU_TERMS}
        assert set(schedule["draft_s"]) == {"ours", "paper", "released"}
        assert schedule["origin"].startswith("design space")
        update = schedule["statements"][-1]
        assert set(update["symbols"]) == set(MEANINGS)
        assert set(update["penalties"]) == {p.name for p in PENALTIES}
    total = [s for s in best["statements"] if s["symbols"]["S8"] >= 2 * 64**3]
    assert total, "the product's operations are counted"
    assert all(f["meaning"] for group in explanation["legend"].values() for f in group.values())
    json.dumps(explanation, allow_nan=False)


def test_a_design_space_that_is_not_closed_is_read_off_its_schedule(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.symbolic.space import Sketch

    closed = explain(run, "dense")
    monkeypatch.setattr(Sketch, "closed", property(lambda self: False))
    read = explain(run, "dense")
    assert read["schedules"][0]["origin"] == "read off the schedule"
    for a, b in zip(closed["schedules"], read["schedules"], strict=True):
        assert np.isclose(a["draft_s"]["ours"], b["draft_s"]["ours"], rtol=0.05)


def test_the_command_prints_tables_or_json(run: Path, pruner_ms: Callable[..., Any]) -> None:
    said = pruner_ms("explain", str(run), "--task", "0")
    assert said.code == 0, said.err
    for words in ("measured", "draft, ours", "compute", "P_l2,c", "S8", "statement"):
        assert words in said.out
    said = pruner_ms("explain", str(run), "--task", "softmax", "--json")
    assert json.loads(said.out)["task"]["name"] == "softmax"
    said = pruner_ms("explain", str(run), "--task", "0", "--hardware", "cpu-neon")
    assert "cpu-neon" in said.out


def test_wrong_input_gets_a_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="holds no database"):
        explain(tmp_path, "0")
    with pytest.raises(OptionError, match=r"no task '7'; the run has 0 \("):
        explain(run, "7")
    for name in ("database_workload.json", "manifest.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    lines = (run / "database_tuning_record.json").read_bytes().splitlines(keepends=True)
    only = [line for line in lines if line.startswith(b"[0,")]
    (tmp_path / "database_tuning_record.json").write_bytes(b"{torn\n" + b"".join(only))
    tasks = run_tasks(tmp_path)
    empty = next(t for t in tasks if not t.records)
    with pytest.raises(OptionError, match="no trial yet"):
        task_of(tasks, empty.name)


def test_a_run_without_a_manifest_still_has_tasks(run: Path, tmp_path: Path) -> None:
    for name in ("database_workload.json", "database_tuning_record.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    assert [t.name for t in run_tasks(tmp_path)] == ["task 0", "task 1"]
    assert explain(tmp_path, "0")["trials"]["valid"] > 0


def copied(run: Path, to: Path, spoiled: list[Any]) -> None:
    """A run whose records among `spoiled` name an instruction that TVM does not know."""
    for name in ("database_workload.json", "manifest.json"):
        (to / name).write_bytes((run / name).read_bytes())
    lines = [json.loads(x) for x in (run / "database_tuning_record.json").read_text().splitlines()]
    for _, record in lines:
        if record in spoiled:
            record[0][0][0][0] = "NoSuchInstruction"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (to / "database_tuning_record.json").write_text(text)


def test_a_record_that_does_not_replay_is_passed_over(run: Path, tmp_path: Path) -> None:
    dense = task_of(run_tasks(run), "dense")
    (_, fastest), (second, _) = dense.valid[:2]
    copied(run, tmp_path, [fastest])
    explanation = explain(tmp_path, "dense")
    assert explanation["trials"]["passed_over"] == 1
    assert explanation["trials"]["valid"] == len(dense.valid)
    assert explanation["schedules"][0]["measured_s"] == second
    console = Console(file=io.StringIO(), width=200)
    console.print(explained(explanation))
    assert "(1 of them do not replay)" in console.file.getvalue()


def test_records_of_which_none_replays_get_a_sentence(run: Path, tmp_path: Path) -> None:
    dense = task_of(run_tasks(run), "dense")
    copied(run, tmp_path, [record for _, record in dense.valid])
    with pytest.raises(OptionError, match=rf"none of the {len(dense.valid)} valid trials of task"):
        explain(tmp_path, "dense")


_WRITES = """
import sys
import pruner_ms
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.space import TensorCoreOnlySpace
from tests.support.operators import TARGETS
from pruner_ms.tvm_compat.paths import IRModule, Target, TuneContext, ms, te

target = Target({**TARGETS["cuda"], "arch": "sm_80"})
a, b = (te.placeholder((64, 64), dtype="float16", name=name) for name in "AB")
k = te.reduce_axis((0, 64), name="k")
c = te.compute((64, 64), lambda i, j: te.sum(
    a[i, k].astype("float32") * b[j, k].astype("float32"), axis=k), name="C")
mod = IRModule({"main": te.create_prim_func([a, b, c])})
row = INSTRUCTIONS["mma_m16n8k16_f16f16f32"]
context = TuneContext(mod, target=target, space_generator=TensorCoreOnlySpace([row]),
                      search_strategy="replay-trace", num_threads=1, rand_state=1)
context.pre_tuning(2, 2, None)
(candidate, *_) = context.generate_measure_candidates()
database = ms.database.JSONDatabase(work_dir=sys.argv[1])
workload = database.commit_workload(context.mod)
database.commit_tuning_record(
    ms.database.TuningRecord(candidate.sch.trace, workload, [1.0], target))
"""

_READS = """
import sys
from pathlib import Path
from pruner_ms.records.trials import run_tasks

(task,) = run_tasks(Path(sys.argv[1]))
assert len(task.usable()) == len(task.valid) == 1
"""


@pytest.mark.heavy
def test_traces_that_name_intrinsics_of_ours_are_read(tmp_path: Path) -> None:
    for code in (_WRITES, _READS):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
