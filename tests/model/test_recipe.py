"""How many steps an update makes: as many as the recipe says, or so many passes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from pruner_ms.errors import OptionError
from pruner_ms.features.pack import features_of
from pruner_ms.model import training
from pruner_ms.model.recipe import Recipe
from pruner_ms.model.verifier import Verifier
from tests.support.programs import tiled_gemm

SHORT = Recipe(steps=80, more_steps=20, batch=64, most_passes=24)


@pytest.mark.parametrize(
    ("records", "anew", "steps"),
    [(8, True, 24), (64, True, 24), (65, True, 48), (500, True, 80), (64, False, 20)],
)
def test_few_records_take_few_steps(records: int, anew: bool, steps: int) -> None:
    assert SHORT.steps_of(records, anew) == steps


def test_no_pass_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match="most_passes=0 cannot be used; give 1 on"):
        Recipe(most_passes=0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps that the trainings of a test are asked for."""
    asked_steps: list[int] = []
    descend = training.descend

    def watched(net: Any, plan: Any, recipe: Any, steps: int) -> Any:
        asked_steps.append(steps)
        return descend(net, plan, recipe, steps)

    monkeypatch.setattr(training, "descend", watched)
    return asked_steps


def learn_up_to(*records: int) -> None:
    """Learn whenever so many records are there: 3 steps from new weights, 2 from the old."""
    rng = np.random.default_rng(0)
    batch = features_of(tiled_gemm(2 ** rng.integers(0, 10, (records[-1], 3)), size=1024))
    model = Verifier(recipe=replace(SHORT, most_passes=3, more_steps=2))
    for start, end in itertools.pairwise((0, *records)):
        part = batch.rows(slice(start, end))
        model.observe("t", part, rng.random(len(part)) + 0.1)
        model.learn(least=1)


def test_an_update_makes_them(asked: list[int]) -> None:
    learn_up_to(32, 40)
    assert asked == [3, 2]


def test_it_starts_anew_when_the_records_have_doubled(asked: list[int]) -> None:
    learn_up_to(16, 31, 32, 48, 63)
    assert asked == [3, 2, 3, 2, 2]
