"""The knobs of a pretraining: those of an update are for far fewer steps."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pruner_ms.model.recipe import RECIPES, Recipe
from pruner_ms.pools.pretraining import BATCH, RATE, STEPS, TrainOptions


@pytest.mark.parametrize("changes", [{}, {"steps": 24}, {"epochs": 3}])
def test_a_recipe_that_counts_steps_has_the_rate_of_a_pretraining(changes: dict[str, int]) -> None:
    knobs = TrainOptions(**changes).knobs(Recipe(rate=1.0))  # type: ignore[arg-type]
    assert knobs.rate == RATE and knobs.epochs == changes.get("epochs", 0)
    if not knobs.epochs:
        steps = changes.get("steps", STEPS)
        assert (knobs.steps, knobs.patience, knobs.batch) == (steps, steps, BATCH)


@pytest.mark.parametrize("changes", [{}, {"steps": 24}, {"epochs": 3}])
@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.epochs])
def test_a_recipe_that_counts_passes_keeps_its_own(name: str, changes: dict[str, int]) -> None:
    recipe = RECIPES[name]
    knobs = TrainOptions(**changes).knobs(recipe)  # type: ignore[arg-type]
    assert (knobs.rate, knobs.batch) == (recipe.rate, recipe.batch)
