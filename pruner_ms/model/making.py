"""A verifier made of names: what cost models, commands and rankers are given by users."""

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


def knobs_of(recipe: str, loss: str | None) -> Recipe:
    """A named recipe, with another loss if one is named.

    Raises
    ------
    OptionError
        There is no such recipe or loss.
    """
    found = recipe_named(recipe)
    if loss is None:
        return found
    require("loss", loss, LOSSES)
    return replace(found, loss=loss)


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
        knobs = knobs_of(recipe or "default", loss)
        return Verifier(arch or "compact", knobs, seed, mode, momentum)
    found = load_weights(weights)
    if found.arch not in NETWORKS:
        raise WeightsError(
            f"{weights} holds weights of {found.arch!r}, which is no network of this cost model; "
            f"it knows {', '.join(NETWORKS)}"
        )
    own = "default" if found.card.get("corrects", True) else "published"
    verifier = Verifier(arch or found.arch, knobs_of(recipe or own, loss), seed, mode, momentum)
    verifier.take(found, weights)
    return verifier
