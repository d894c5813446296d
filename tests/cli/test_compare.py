"""`pruner-ms compare`, and what `tune` says of other engines."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.errors import OptionError
from pruner_ms.integration.engines import (
    OURS,
    Timing,
    compare_run,
    difference,
    installed,
    readers,
    refusal,
    verdict,
)

QUICK = ["--strategy", "replay-trace", "--cost-model", "random", "--trials", "4"]


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: Any) -> Path:
    """Work-dir of a run with four trials."""
    import pruner_ms

    path = Path(tmp_path_factory.mktemp("run")) / "dir"
    options: dict[str, Any] = {"strategy": "replay-trace", "cost_model": "random", "trials": 4}
    pruner_ms.tune(str(tiny), work_dir=path, **options)
    return path


def summary_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "summary.json").read_text()))


@pytest.mark.heavy
def test_the_command_times_both(run: Path, pruner_ms: Callable[..., Any]) -> None:
    said = pruner_ms("compare", str(run), "--engines", "onnxruntime", "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert told == json.loads((run / "engines.json").read_text())
    theirs, ours = told["engines"]
    assert (theirs["engine"], ours["engine"]) == ("onnxruntime", OURS)
    for one in (theirs, ours):
        low, median, high = one["seconds"]
        assert 0 < one["fastest"] <= low <= median <= high < 1 and not one["why"]
    assert theirs["difference"] == 0.0 and 0 < ours["difference"] < 1e-5
    assert "times as fast as" in told["verdict"]
    text = pruner_ms("compare", str(run), "--engines", "onnxruntime").out
    assert "onnxruntime" in text and "outputs differ by" in text and "times as fast as" in text


def test_tune_compares_where_it_is_asked(
    run: Path, tiny: Path, tmp_path: Path, pruner_ms: Callable[..., Any]
) -> None:
    """The work-dir holds all trials, so that nothing is measured again."""
    place = tmp_path / "again"
    shutil.copytree(run, place)
    (place / "engines.json").unlink(missing_ok=True)
    command = ["tune", str(tiny), *QUICK, "--work-dir", str(place)]
    said = pruner_ms(*command, "--compare", "onnxruntime", "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert [one["engine"] for one in told["engines"]["engines"]] == ["onnxruntime", OURS]
    assert (place / "engines.json").exists()
    said = pruner_ms(*command, "--compare", "none", "--json")
    assert json.loads(said.out)["engines"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune", "x.onnx", "--compare", "tensorrt"], "there is no engine 'tensorrt'; compare"),
        (["tune", "x.onnx", "--compare", ","], "--compare ',' names nothing; write it like onnx"),
        (["compare", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_compared_is_said_first(
    arguments: list[str], words: str, pruner_ms: Callable[..., Any]
) -> None:
    said = pruner_ms(*arguments)
    assert said.code == 1 and said.err.startswith("error: ") and words in said.err


def test_an_engine_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from pruner_ms.integration import engines

    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == "openvino" else name)
    assert installed() == ["onnxruntime", "torch", "inductor"]
    with pytest.raises(OptionError, match="openvino is not installed; pip install openvino"):
        installed(["openvino"])
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == "torch" else name)
    assert installed() == ["onnxruntime", "openvino"]
    with pytest.raises(OptionError, match="torch is not installed; pip install torch"):
        installed(["inductor"])


def copied(run: Path, place: Path) -> Path:
    """A work-dir somewhere else, as one that was moved."""
    shutil.copytree(run, place / "copy")
    return place / "copy"


def test_one_engine_that_fails_leaves_the_others(run: Path, tmp_path: Path) -> None:
    broken = copied(run, tmp_path)
    (broken / "model.so").write_bytes(b"no library")
    facts = json.loads((broken / "model.json").read_text())
    facts["sha256"] = hashlib.sha256(b"no library").hexdigest()
    (broken / "model.json").write_text(json.dumps(facts))
    theirs, ours = compare_run(broken, summary_of(broken), ["onnxruntime"])
    assert theirs.median is not None and ours.median is None
    assert ours.why and ours.difference is None
    assert verdict([theirs, ours], {}) == f"the library does not run: {ours.why}"


def test_an_engine_whose_process_ends_says_its_last_words(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import engines

    monkeypatch.setattr(engines, "installed", lambda names: ["another"])
    another, ours = compare_run(run, summary_of(run))  # its own process knows no such engine
    assert "KeyError: 'another'" in another.why
    assert ours.median is not None and ours.difference is None


def test_an_engine_that_is_killed_or_does_not_answer_is_given_up(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import engines

    job = engines.jobs_of(run, summary_of(run), ["onnxruntime"], tmp_path)["onnxruntime"]
    player = engines.Player("onnxruntime", job, tmp_path)
    player._process.kill()
    assert player.turn() is None and "its process ended (SIGKILL)" in player.why
    player.close()
    monkeypatch.setattr(engines, "_PATIENCE_SECONDS", 0.01)
    player = engines.Player("onnxruntime", job, tmp_path)
    assert player.turn() is None and player.why == "it did not answer within 0 s"
    player.close()


def test_outputs_that_are_no_numbers_have_no_difference(tmp_path: Path) -> None:
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    np.savez(one, np.array([1.0, np.inf]))
    np.savez(other, np.array([1.0, 2.0]), np.array([1.0]))
    assert difference(one, one) is None and difference(one, other) is None
    assert difference(other, other) == 0.0


def test_a_comparison_that_fails_does_not_end_a_run(
    run: Path, tiny: Path, tmp_path: Path, pruner_ms: Callable[..., Any], monkeypatch: Any
) -> None:
    from pruner_ms.cli import compare

    def fail(*_: Any) -> None:
        raise ValueError("no [/room] left")

    monkeypatch.setattr(compare, "measure", fail)
    command = ["tune", str(tiny), *QUICK, "--work-dir", str(copied(run, tmp_path))]
    said = pruner_ms(*command, "--compare", "onnxruntime", "--json")
    assert said.code == 0 and json.loads(said.out)["engines"] is None
    assert "no comparison: no [/room] left" in said.err


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"target": {"kind": "cuda"}}, "on CPUs only"),
        ({"model": None}, "they cannot read this model"),
        ({"model": ["/nowhere.onnx", "0"]}, "/nowhere.onnx is not there any more"),
        ({}, None),
    ],
)
def test_what_is_not_compared(run: Path, changed: dict[str, Any], words: str | None) -> None:
    why = refusal(run, {**summary_of(run), **changed})
    assert why is None if words is None else words in str(why)


def test_a_run_without_a_library_or_of_before_is_not_compared(run: Path, tmp_path: Path) -> None:
    earlier = summary_of(run)
    del earlier["model"]
    assert "run the same tune command again" in str(refusal(run, earlier))
    assert "has no library" in str(refusal(tmp_path, summary_of(run)))


@pytest.mark.parametrize("fact", [{"measured_on": "a board"}, {"unsafe": "it divides by zero"}])
def test_what_is_not_run_here_is_not_compared(
    run: Path, tmp_path: Path, fact: dict[str, str]
) -> None:
    other = copied(run, tmp_path)
    described = json.loads((other / "model.json").read_text())
    (other / "model.json").write_text(json.dumps({**described, **fact}))
    (why,) = fact.values()
    assert refusal(other, summary_of(other)) == f"the library is not run here: {why}"


@pytest.mark.heavy
def test_a_torch_module_is_timed_in_torch(tmp_path: Path, pruner_ms: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    from pruner_ms.integration.torch import tune

    module = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU())
    options: dict[str, Any] = {"strategy": "replay-trace", "cost_model": "random", "trials": 2}
    tune(module, [torch.ones(4, 16)], work_dir=tmp_path, **options)
    said = pruner_ms("compare", str(tmp_path), "--engines", "torch", "--json")
    assert said.code == 0, said.err
    theirs, ours = json.loads(said.out)["engines"]
    assert theirs["engine"] == "torch" and theirs["fastest"] > 0
    assert 0 <= ours["difference"] < 1e-5
    said = pruner_ms("compare", str(tmp_path), "--engines", "onnxruntime")
    assert said.code == 1 and "onnxruntime runs ONNX models, and this run's model" in said.err


def test_an_onnx_model_is_not_asked_of_torch(run: Path) -> None:
    assert readers(summary_of(run), ["openvino", "torch", "inductor"]) == ["openvino"]
    with pytest.raises(OptionError, match="inductor runs torch modules, and this run's model"):
        compare_run(run, summary_of(run), ["inductor"])


def test_the_compiler_of_torch_runs_a_module(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from pruner_ms.integration.engines import ENGINES, Job

    module, file = torch.nn.Linear(4, 2).eval(), tmp_path / "model.pt2"
    x = np.ones((3, 4), np.float32)
    torch.export.save(torch.export.export(module, (torch.from_numpy(x),)), file)
    before = torch.get_num_threads()
    (result,) = ENGINES["inductor"](Job("inductor", str(file), "", "", ("x",), before), {"x": x})()
    np.testing.assert_allclose(result, module(torch.from_numpy(x)).detach(), rtol=1e-5)


def timing(engine: str, seconds: float) -> Timing:
    return Timing(engine, (seconds, seconds, seconds), seconds, 0.0)


def test_the_verdict_names_who_is_fastest_and_what_costs_most() -> None:
    tasks = [
        {"name": "a", "weight": 1, "best_s": 1.0},
        {"name": "b", "weight": 3, "best_s": 2.0},
        {"name": "c", "weight": 1, "best_s": None, "untuned_s": 3.0},
        {"name": "d", "weight": 1, "best_s": None},
    ]
    engines = [timing("onnxruntime", 4.0), timing("openvino", 3.0), timing(OURS, 2.0)]
    assert verdict(engines, {}) == "the library is 1.50 times as fast as openvino"
    engines[2] = timing(OURS, 6.0)
    assert verdict(engines, {"tasks": tasks}) == (
        "openvino is 2.00 times as fast as the library; most time goes to b (60 %), c (30 %), "
        "a (10 %)"
    )
    assert verdict([Timing("openvino", why="no"), timing(OURS, 1.0)], {}) == (
        "no other engine runs this model"
    )
