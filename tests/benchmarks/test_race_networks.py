"""Networks in the race: rounds of tasks, states at several moments, all of it measured again."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tvm")
pytest.importorskip("torch")

import torch

from benchmarks.race import network_again, networks, page, vendor
from benchmarks.race.again import FEW, Missing
from benchmarks.race.kinds import Best, Line, Trial, read_line, write_line
from benchmarks.race.network_again import CHECKPOINTS, Network, NetworkAgain, checkpoints, prefix
from benchmarks.race.network_worker import RECORDS, NetworkReport, tune
from benchmarks.race.report import Outcome
from benchmarks.race.task import Task
from benchmarks.race.tuners import Tuner
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import load
from pruner_ms.integration.torch import network_of
from pruner_ms.tvm_compat.paths import Target

from .made_up_race import Told

CONFIG = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1}'


def test_of_moments_that_are_one_the_last_is_kept() -> None:
    assert checkpoints([]) == []
    assert checkpoints([19.0, 19.1, 19.2, 25.0]) == [2, 3]
    assert checkpoints([0.0, 5.0]) == [0, 1]


def test_kept_moments_are_even_in_log_seconds() -> None:
    seconds = np.geomspace(10, 1000, 200)
    moments = checkpoints(list(seconds))
    assert moments[0] == 0 and moments[-1] == 199 and len(moments) == CHECKPOINTS
    steps = [float(np.log(seconds[b] / seconds[a])) for a, b in pairwise(moments)]
    assert max(steps) < 1.15 * min(steps)
    assert checkpoints(list(seconds), most=3) == [0, 100, 199]


def test_a_state_has_the_first_records_of_the_database(tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_text("one\ntwo\nthree\n")
    (tmp_path / network_again.WORKLOADS).write_text("a workload\n")
    state = prefix(tmp_path, 2, tmp_path / "state")
    assert (state / RECORDS).read_text() == "one\ntwo\n"
    assert (state / network_again.WORKLOADS).read_text() == "a workload\n"


def outcomes(*latencies: float | None) -> list[Outcome]:
    return [Outcome(one, None if one else "failed", lambda _path: []) for one in latencies]


def test_a_round_says_its_task_and_whether_the_network_changed(tmp_path: Path) -> None:
    told = Told()
    report = NetworkReport(told, tmp_path, 2)  # type: ignore[arg-type]
    (tmp_path / RECORDS).write_text("1\n2\n")
    report.results(outcomes(None, 2.0), whole_round=True, task="conv")
    report.results(outcomes(3.0), whole_round=True, task="dense")
    report.results(outcomes(2.5, None), whole_round=True, task="conv")
    (tmp_path / RECORDS).write_text("1\n2\n3\n4\n5\n6\n")
    report.results(outcomes(1.5), whole_round=True, task="conv")
    trials = [m for m in told.said if m["k"] == "trial"]
    assert [m["x"] for m in trials] == ["conv", "conv", "dense", "conv", "conv", "conv"]
    assert [m["i"] for m in trials] == [*range(6)]
    assert [m["r"] for m in trials] == [0, 0, 1, 2, 2, 3]
    bests = [(m["i"], m["records"]) for m in told.said if m["k"] == "best"]
    assert bests == [(1, 2), (2, 2), (5, 6)], "a slower candidate changes no network"
    assert told.waits == 4


def test_a_trial_has_its_task_in_the_file_and_others_none() -> None:
    of_network = Trial("b", "t", 0, 0, 1.0, 0.5, None, "conv")
    assert read_line(write_line(of_network)) == of_network
    of_operator = Trial("b", "t", 0, 0, 1.0, 0.5, None)
    assert "x" not in json.loads(write_line(of_operator))
    assert read_line(write_line(of_operator)) == of_operator


def test_a_repeat_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(vendor, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def network(seconds: float) -> tuple[Network, list[int]]:
        calls = [0]

        def main() -> None:
            now[0] += seconds
            calls[0] += 1

        return Network(main, ()), calls

    short, calls = network(0.03)
    assert short.once() == pytest.approx(0.03) and calls == [12], "four to warm up, then eight"
    assert short.once() == pytest.approx(0.03) and calls == [24]
    long, calls = network(5.0)
    assert long.once() == pytest.approx(5.0) and calls == [2]
    assert long.once() == pytest.approx(5.0) and calls == [4]


def test_the_page_says_how_long_repeats_are() -> None:
    text = " ".join(page._NETWORKS.split())
    counted, warm = 1e3 * vendor.NETWORK_SECONDS, 1e3 * vendor.WARM_SECONDS
    assert f"both run for {counted:.0f} ms at least, after {warm:.0f} ms that do not" in text


def test_the_block_of_bert_is_what_torch_computes() -> None:
    model, (x,) = networks.bert_block()
    got = model(x)
    assert got.shape == x.shape
    rows = got.reshape(-1, x.shape[-1])
    assert torch.allclose(rows.mean(-1), torch.zeros(len(rows)), atol=1e-5), "normalised rows"
    assert networks.is_network("bert_block") and not networks.is_network("gmm_512")


@pytest.mark.heavy
def test_a_small_network_from_the_tuner_to_its_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(json.loads(CONFIG))
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 48), torch.nn.ReLU(), torch.nn.Linear(48, 16), torch.nn.Softmax(-1)
    )
    relax = network_of(model.eval(), (torch.rand(8, 32),)).mod
    program = load(relax, target, TuneOptions(seed=0), None)
    assert len(program.tasks) >= 2
    folder = tmp_path / "pruner-full"
    folder.mkdir()
    told, tuner = Told(), Tuner("pruner", "pacm", persistent=True)
    job = {
        "target_json": json.loads(CONFIG),
        "weights": None,
        "folder": str(folder),
        "seed": 0,
        "trials": 2 * len(program.tasks),
        "batch": 2,
    }
    report = NetworkReport(told, folder, 2)  # type: ignore[arg-type]
    tune(job, tuner, program, report)
    report.end(None)
    trials = [m for m in told.said if m["k"] == "trial"]
    assert {m["x"] for m in trials} == {task.name for task in program.tasks}
    assert all(m["l"] for m in trials), [m["e"] for m in trials]

    monkeypatch.setattr(network_again, "program_of", lambda _name, _target: program)
    task = Task("bert_block", "llvm", 0, job["trials"], CONFIG, ("pruner-full",), batch=2)
    again = NetworkAgain(task, tmp_path, {"pruner-full": told.said})
    again_lines = again.lines(Missing("not asked"), lambda _text: None)
    assert again.correct == {"pruner-full": True} and again.flop and again.flop > 2 * 8 * 32 * 48
    bests = [line for line in again_lines if isinstance(line, Best)]
    assert bests[-1].number == max(m["i"] for m in told.said if m["k"] == "best")
    assert all(len(line.again) == 10 for line in bests)
    lines = {line.tuner: line for line in again_lines if isinstance(line, Line)}
    assert len(lines["untuned"].again) == FEW
    assert lines["torch"].again == () and lines["torch"].why == "not asked"
