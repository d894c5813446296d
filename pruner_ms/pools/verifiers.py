"""Rankers of a pool: our networks, from scratch, pretrained, adapted, and ablations.

They learn as in the search, with the uncalibrated draft as prior; a model that ranks badly is not
set aside. Importing this module imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pruner_ms.errors import OptionError
from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.records import Measured
from pruner_ms.pools.case import Case, Ranked
from pruner_ms.pools.describe import Described
from pruner_ms.pools.pretraining import LEAST_RAN, TrainOptions

if TYPE_CHECKING:
    from pruner_ms.model.recipe import Recipe
    from pruner_ms.model.verifier import Verifier
    from pruner_ms.model.weights import Weights

View = Callable[[FeatureBatch], FeatureBatch]


def all_features(batch: FeatureBatch) -> FeatureBatch:
    """All features."""
    return batch


def statements_only(batch: FeatureBatch) -> FeatureBatch:
    """Without the data flow: no tokens, and that branch of the network is constant."""
    return replace(batch, token_mask=np.zeros_like(batch.token_mask))


def tokens_only(batch: FeatureBatch) -> FeatureBatch:
    """Without the statements: no features, and that branch of the network is constant."""
    return replace(batch, statement_mask=np.zeros_like(batch.statement_mask))


def without_order(batch: FeatureBatch) -> FeatureBatch:
    """Tokens without their positions."""
    return replace(batch, token_order=np.zeros_like(batch.token_order))


def without_shares(batch: FeatureBatch) -> FeatureBatch:
    """Without the shares of the draft's terms."""
    return replace(batch, shares=np.zeros_like(batch.shares))


@dataclass(frozen=True)
class Design:
    """A way to rank by one of our networks.

    Attributes
    ----------
    arch
        Name in `model.networks.NETWORKS`.
    recipe, later
        Names in `model.recipe.RECIPES`: of the first training, and after a pretraining.
    mode
        Name in `model.modes.MODES` after a pretraining.
    m
        Momentum of the mode "moa"; None: the default.
    every
        Updates per fit of the mode "moa".
    transfer
        Whether other platforms' pools are learned, too.
    corrects
        Whether the draft's estimate is corrected; False: the network ranks alone.
    calibrates
        Whether the pool's own calibration of the draft is part of the correction.
    view
        Selection of features.
    """

    arch: str = "compact"
    recipe: str = "default"
    later: str = "default"
    mode: str = "finetune"
    m: float | None = None
    every: int = 1
    transfer: bool = False
    corrects: bool = True
    calibrates: bool = True
    view: View = all_features

    def knobs(self, name: str) -> Recipe:
        """A recipe by name."""
        from pruner_ms.model.recipe import recipe_named

        recipe = recipe_named(name)
        calibrates = recipe.calibrates and self.calibrates
        return replace(recipe, corrects=recipe.corrects and self.corrects, calibrates=calibrates)


def ranked(design: Design, case: Case) -> Ranked:
    """Costs by a network, after a pretraining if there are earlier pools."""
    pool, task = case.pool, case.pool.task
    features, feature_seconds = pool.features()
    scored, draft_seconds = pool.draft("ours")
    seen, prior = design.view(features), scored.latency
    verifier = made(design, case)
    for part in case.parts():
        verifier.observe(task, seen.rows(part), pool.latency[part], prior[part])
        verifier.learn(least=1)
    # a search lets the draft rank if it is better; here the model itself is evaluated
    verifier.tracks.clear()
    rows = case.rows
    cost, seconds = case.timed(lambda: -verifier.score(task, seen.rows(rows), prior[rows]))
    # the interpretation is part of both
    return cost, feature_seconds + draft_seconds - pool.interpret_seconds + seconds


def made(design: Design, case: Case) -> Verifier:
    """A verifier pretrained on the earlier pools; a new one without any."""
    from pruner_ms.model.moa import MOMENTA, Momentum  # torch: only when a model is made
    from pruner_ms.model.verifier import Verifier

    sources = case.past.pools(design.transfer)
    if not sources:
        return Verifier(design.arch, design.knobs(design.recipe), case.seed)
    default = MOMENTA["default"]
    momentum = Momentum(default.m if design.m is None else design.m, design.every)
    later = design.knobs(design.later)
    verifier = Verifier(design.arch, later, case.seed, design.mode, momentum)
    key = (design.arch, design.recipe, design.corrects, design.view, case.seed)
    weights = case.past.once(key, design.transfer, lambda: pretrained(design, sources, case.seed))
    verifier.take(weights, "the pretrained weights")
    return verifier


def pretrained(design: Design, sources: Sequence[Described], seed: int) -> Weights:
    """Weights that were trained on earlier pools as `pruner-ms train` does, none held out.

    Raises
    ------
    OptionError
        Too few of their records ran, or the training diverged.
    """
    from pruner_ms.model.pretrain import pretrain
    from pruner_ms.model.training import OTHERS
    from pruner_ms.model.verifier import Verifier
    from pruner_ms.model.weights import Weights

    ran = sum(int(np.isfinite(pool.latency).sum()) for pool in sources)
    if ran < LEAST_RAN:
        raise OptionError(
            f"{ran} records of earlier pools that ran are too few to pretrain on; name more pools, "
            f"of {LEAST_RAN} records or more"
        )
    tasks = []
    for number, pool in enumerate(sources):
        features, prior = pool.features_and_prior()
        # two machines may have the same target
        key = f"{number} {pool.task}"
        tasks.append(Measured(key, design.view(features), pool.latency, prior))
    knobs = TrainOptions().knobs(design.knobs(design.recipe))
    verifier = Verifier(design.arch, knobs, seed)
    outcome = pretrain(verifier, tasks, knobs.steps, None, lambda _progress: None)
    if not np.isfinite(outcome.loss):
        raise OptionError("the pretraining diverged; name other pools or another seed")
    believed = verifier.trained.share_of(OTHERS)
    card = {"believed": believed, "corrects": knobs.corrects}
    return Weights(design.arch, verifier.tensors(), card)
