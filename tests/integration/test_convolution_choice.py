"""Which algorithm computes a convolution, where the estimates are close."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pruner_ms
from pruner_ms.integration import convolution_choice
from pruner_ms.integration.convolution_choice import (
    DECISION,
    Alternative,
    Decision,
    alternative,
    decided,
    doubts,
    first_budget,
    rest,
    saved,
    sentence,
)
from pruner_ms.integration.graph.winograd import Convolution, best_size, other_sizes
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import load, variant
from pruner_ms.session.budget import Budget
from pruner_ms.tvm_compat import relax_paths
from tests.support.seeds import SEED

R = relax_paths.RELAX
CONV = Convolution(1, 8, 8, 32, 32, 1, 1)
"""Estimated to be fastest by its definition, and nearly as fast by F(2, 3)."""
OTHER = replace(CONV, filters=64)


def network() -> Any:
    """Two convolutions, the second of which has two algorithms of close estimates."""
    random, builder = np.random.default_rng(SEED), R.BlockBuilder()
    x = R.Var("x", relax_paths.tensor_type((1, 3, 8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: Any = x
            for channels, filters in ((3, 32), (32, 32)):
                weights = random.standard_normal((filters, channels, 3, 3)).astype("float32")
                y = builder.emit(R.op.nn.conv2d(y, R.const(weights), padding=[1, 1, 1, 1]))
                y = builder.emit(R.op.nn.relu(y))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return builder.get()


@pytest.fixture(scope="module")
def program(target: Any) -> Any:
    return load(network(), target, TuneOptions(), None)


def test_the_difference_between_two_networks_is_in_tasks(program: Any, target: Any) -> None:
    assert doubts(program) == [CONV]
    assert (best_size(CONV), other_sizes(CONV)) == (None, [2])
    other = variant(program, target, TuneOptions(), {CONV: 2})
    one = alternative(program, other, CONV, 2)
    names = {task.hash: task.name for task in one.tasks}
    calls = {names[key]: n for key, n in one.calls.items()}
    assert calls == {
        "fused_conv2d1_relu": -1,
        "winograd_pack2": 1,
        "matmul": 1,
        "fused_winograd_back2_relu": 1,
    }
    back = alternative(other, program, CONV, None)
    assert back.calls == {key: -n for key, n in one.calls.items()}


def test_networks_without_winograd_and_light_convolutions_leave_no_doubt(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doubts(load(network(), target, TuneOptions(winograd="off"), None)) == []
    monkeypatch.setattr(convolution_choice, "_LEAST_SHARE", 0.99)
    assert doubts(load(network(), target, TuneOptions(), None)) == []


ONE = Alternative(CONV, 2, {"conv": -2, "pack": 2, "product": 2}, ())
TWO = Alternative(OTHER, 4, {"wide": -1, "product": 1}, ())


@pytest.mark.parametrize(
    ("seconds", "share"),
    [
        ({"conv": 10.0, "pack": 1.0, "product": 4.0}, 0.5),
        ({"conv": 4.0, "pack": 1.0, "product": 4.0}, -0.25),
        ({"conv": 10.0, "pack": 1.0}, None),
        ({"conv": 10.0, "pack": np.nan, "product": 4.0}, None),
    ],
)
def test_what_an_alternative_saves(seconds: dict[str, float], share: float | None) -> None:
    assert saved(ONE, seconds) == share


def test_the_faster_one_is_taken_for_each_convolution() -> None:
    seconds = {"conv": 10.0, "pack": 1.0, "product": 4.0, "wide": 4.05}
    assert decided([ONE, TWO], seconds) == {CONV: 2}  # one per cent is noise
    assert decided([ONE, TWO], {**seconds, "wide": 5.0}) == {CONV: 2, OTHER: 4}
    assert decided([ONE, TWO], {}) == {}


def test_a_decision_costs_a_share_of_the_budget() -> None:
    assert first_budget(Budget(1000, 300.0), 5) == Budget(30, 30.0)
    assert first_budget(Budget(210), 5) == Budget(20)
    assert first_budget(Budget(190), 5) is None
    assert first_budget(Budget(1000), 0) is None
    assert rest(Budget(100, 60.0, 9), 16, 20.0) == Budget(84, 40.0, 9)
    assert rest(Budget(10), 16, 20.0) == Budget(1)
    assert rest(Budget(10, 5.0), 0, 20.0).seconds == 1.0


def test_a_decision_is_read_as_it_was_written() -> None:
    decision = Decision({CONV: None, OTHER: 4}, 12)
    assert Decision.of(json.loads(json.dumps(decision.values()))) == decision
    rows = decision.values()["sizes"]
    for damaged in (None, 3, {}, {"sizes": rows}, {"sizes": [{**rows[0], "size": 3}], "trials": 1}):
        assert Decision.of(damaged) is None
    assert sentence(OTHER, 4).startswith("3x3 filters, 8x8, 32 to 64: measured, F(4, 3) is faster")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of short runs that decide."""
    monkeypatch.setattr(convolution_choice, "FEWEST_TRIALS", 1)
    monkeypatch.setattr(convolution_choice, "SHARE", 0.5)
    return {"strategy": "replay-trace", "cost_model": "random", "trials": 16}


@pytest.mark.heavy
@pytest.mark.parametrize("wins", [True, False])
def test_a_run_goes_on_with_what_it_decided(
    wins: bool, quick: dict[str, Any], target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome(several: Any, _seconds: Any) -> dict[Convolution, int | None]:
        return {one.conv: one.size for one in several if wins}

    monkeypatch.setattr(convolution_choice, "decided", outcome)
    first = pruner_ms.tune(network(), target, work_dir=tmp_path, **quick)
    assert all(check.ok for check in first.checks)
    said = [note for note in first.notes if note.startswith("3x3 filters, 8x8, 32 to 32")]
    assert len(said) == wins
    names = {task.name.rstrip("0123456789") for task in first.tasks}
    assert ("matmul" in names) == wins
    held = json.loads((tmp_path / "manifest.json").read_text())[DECISION]
    assert held["trials"] > 0 and len(held["sizes"]) == wins
    measured = sum(task.trials for task in first.tasks)
    assert measured + held["trials"] == 16
    again = pruner_ms.tune(network(), target, work_dir=tmp_path, **quick)
    assert {task.name for task in again.tasks} == {task.name for task in first.tasks}
    assert sum(task.trials - task.resumed for task in again.tasks) == 0
    assert not any("was begun without" in note for note in again.notes)


@pytest.mark.heavy
def test_what_goes_wrong_with_a_decision_does_not_end_a_run(
    quick: dict[str, Any], target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no memory")

    monkeypatch.setattr(convolution_choice, "tune_session", fail)
    result = pruner_ms.tune(network(), target, work_dir=tmp_path, **{**quick, "trials": 8})
    assert result.library is not None
    assert any("no memory" in note for note in result.notes)
