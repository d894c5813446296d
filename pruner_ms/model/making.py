"""Construction of a verifier from option names."""

from __future__ import annotations

import os
from dataclasses import replace

from pruner_ms.errors import WeightsError, require
from pruner_ms.model.loss import LOSSES
from pruner_ms.model.moa import momentum_named
from pruner_ms.model.networks import NETWORKS
from pruner_ms.model.recipe import Recipe, recipe_named
from pruner_ms.model.verifier import Verifier
from pruner_ms.model.weights import load_weights


def named_recipe(recipe: str, loss: str | None) -> Recipe:
    """A named recipe, with another loss if one is named.

    Raises
    ------
    OptionError
        There is no such recipe or loss.
    """
    named = recipe_named(recipe)
    if loss is None:
        return named
    require("loss", loss, LOSSES)
    return replace(named, loss=loss)


def make_verifier(
    weights: str | os.PathLike[str] | None = None,
    arch: str | None = None,
    recipe: str | None = None,
    loss: str | None = None,
    seed: int = 0,
    mode: str = "online",
    moa: str = "default",
) -> Verifier:
    """A verifier with its weights; the names are those of `cost_model.PaCMModel`.

    Raises
    ------
    OptionError
        A name is not known.
    WeightsError
        The weights cannot be used.
    """
    momentum = momentum_named(moa)
    if weights is None:
        knobs = named_recipe(recipe or "default", loss)
        return Verifier(arch or "compact", knobs, seed, mode, momentum)
    loaded = load_weights(weights)
    if loaded.arch not in NETWORKS:
        raise WeightsError(
            f"{weights} holds weights of {loaded.arch!r}, which is no network of this cost model; "
            f"it knows {', '.join(NETWORKS)}"
        )
    trained_by = "default" if loaded.card.get("corrects", True) else "published"
    verifier = Verifier(
        arch or loaded.arch, named_recipe(recipe or trained_by, loss), seed, mode, momentum
    )
    verifier.take(loaded, weights)
    return verifier
