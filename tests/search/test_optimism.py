"""The search gives what is unlike everything measured the benefit of the doubt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.draft.explore.novelty import optimistic
from pruner_ms.search import core, task
from pruner_ms.search.drafting import Drafting
from pruner_ms.search.strategy import PrunerSearch
from tests.search.test_strategy import QUICK, matmul, tune

BATCH = 8


@pytest.fixture()
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was put in order, and which order came of it."""
    calls: list[dict[str, Any]] = []

    def spy(scores: Any, left: Any, optimism: float, count: int) -> Any:
        order = optimistic(scores, left, optimism, count)
        calls.append({"scores": scores, "left": left, "optimism": optimism, "order": order})
        return order

    monkeypatch.setattr(task, "optimistic", spy)
    return calls


def search(**knobs: Any) -> PrunerSearch:
    return PrunerSearch(**QUICK, explore_share=0.0, **knobs)


@pytest.mark.parametrize("cost_model", ["none", "pacm"])
def test_what_is_measured_is_no_longer_unlike(
    tmp_path: Path, asked: list[dict[str, Any]], cost_model: str
) -> None:
    tune(tmp_path, strategy=search(optimism=0.7), cost_model=cost_model)
    first, second = (np.diag(call["left"]) for call in asked)
    assert first == pytest.approx(1.0)
    assert len(second) == len(asked[1]["scores"]) and second.min() < 0.5 < second.max()
    assert {call["optimism"] for call in asked} == {0.7}


def test_it_falls_with_the_trials_told(
    tmp_path: Path, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "OPTIMISM_FOR", BATCH / 4)
    tune(tmp_path, strategy=search(optimism=0.7), cost_model="none")
    assert [call["optimism"] for call in asked] == pytest.approx([0.7, 0.35])


def test_the_batch_is_the_order_that_came_of_it(
    tmp_path: Path, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[tuple[list[bytes], list[bytes]]] = []
    stock = task.TaskRun._fill

    def fill(self: Any, candidates: Any, *others: Any) -> Any:
        picked = stock(self, candidates, *others)
        filled.append(([c.key for c in candidates], [c.key for c in picked]))
        return picked

    monkeypatch.setattr(task.TaskRun, "_fill", fill)
    tune(tmp_path, strategy=search(optimism=0.5), cost_model="none", trials=BATCH)
    ((keys, picked),) = filled
    wanted = [keys[i] for i in asked[0]["order"]]
    # some are rejected when they are replayed; what is left keeps its order
    assert picked == [key for key in wanted if key in picked][:BATCH]
    plain = np.argsort(-asked[0]["scores"], kind="stable")[:BATCH]
    assert {keys[i] for i in plain} != set(picked)


@pytest.mark.parametrize(("knobs", "cost_model"), [({"optimism": 0.0}, "none"), ({}, "random")])
def test_scores_alone_decide_without_it_and_for_models_of_others(
    tmp_path: Path, asked: list[dict[str, Any]], knobs: dict[str, Any], cost_model: str
) -> None:
    tune(tmp_path, strategy=search(**knobs), cost_model=cost_model)
    assert asked == []


def test_schedules_that_were_read_are_compared_with_those_in_closed_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[set[bool], tuple[int, ...]]] = []
    stock = Drafting.unexplained

    def unexplained(self: Drafting, programs: Any) -> Any:
        left, candidates = stock(self, programs), programs.candidates
        seen.append(({c.program is None for c in candidates}, left.shape))
        assert len(candidates) == len(left) and np.isfinite(left).all()
        return left

    monkeypatch.setattr(Drafting, "unexplained", unexplained)
    read = task.decision_space

    def one_opened(*args: Any) -> Any:
        space = read(*args)
        space[0].compiled, space[0].reason = None, "taken away by a test"
        return space

    monkeypatch.setattr(task, "decision_space", one_opened)
    tune(tmp_path, strategy=search(), cost_model="none", mod=matmul(32), trials=BATCH)
    ((kinds, shape),) = seen
    assert kinds == {True, False} and shape[0] == shape[1] > BATCH
