"""How many steps an update makes: as many as the recipe says, or so many passes."""

from __future__ import annotations

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
from pruner_ms.testing.programs import tiled_gemm

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


def test_an_update_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    descend = training.descend

    def watched(net: Any, data: Any, recipe: Any, steps: int, rng: Any) -> Any:
        asked.append(steps)
        return descend(net, data, recipe, steps, rng)

    monkeypatch.setattr(training, "descend", watched)
    rng = np.random.default_rng(0)
    batch = features_of(tiled_gemm(2 ** rng.integers(0, 10, (40, 3)), size=1024))
    model = Verifier(recipe=replace(SHORT, most_passes=3, more_steps=2))
    for part in (slice(0, 32), slice(32, 40)):
        model.observe("t", batch.rows(part), rng.random(len(batch.rows(part))) + 0.1)
        model.learn(least=1)
    assert asked == [3, 2]
