"""Training on the records so far, shrinkage of the learned correction, and prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic

import numpy as np
import torch
from torch import nn

from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.loss import SLOW_WEIGHT
from pruner_ms.model.network import Network
from pruner_ms.model.optimization import Data, TrainingPlan, descend, member_plan
from pruner_ms.model.randomness import undisturbed
from pruner_ms.model.recipe import Recipe
from pruner_ms.model.records import Features, Records
from pruner_ms.types import FloatArray, IntArray

NORMALISER_ROWS = 2048
"""Most records for the normaliser's statistics."""

CHUNK = 1024
"""Rows scored at once."""

PSEUDO = 16.0
"""Weight of the other tasks' share, in records."""

FIRST_SHARE, FIRST_WEIGHT = 0.5, 256.0
"""Prior of the share of a correction that is applied, and its weight in records
(docs/constants.md)."""

LATER_WEIGHT = 2048.0
"""Weight of the share of a pretraining, on many more tasks."""

OTHERS = ""
"""Key of the share for tasks without one of their own."""


@dataclass(eq=False)
class Trained(Generic[Features]):
    """A network, and the shares of its correction.

    Attributes
    ----------
    net
        In evaluation mode.
    started_at
        Records when it last started anew; 0: never trained here.
    share
        Per task, the share of the correction that is applied, in [0, 1]; `OTHERS`: other tasks.
    source_share
        The share that a pretraining estimated for unseen tasks.
    """

    net: Network[Features]
    started_at: int = 0
    share: dict[str, float] = field(default_factory=dict)
    source_share: float = 1.0

    def share_of(self, task: str) -> float:
        """Share of the correction that is applied for a task."""
        return self.share.get(task, self.share.get(OTHERS, 1.0))


@dataclass(frozen=True)
class PriorShare:
    """Prior of the share of a correction, and its weight in records."""

    share: float = FIRST_SHARE
    weight: float = FIRST_WEIGHT


def train(
    trained: Trained[FeatureBatch],
    records: Records[str, FeatureBatch],
    recipe: Recipe,
    steps: int,
    rng: np.random.Generator,
    first: PriorShare,
) -> float:
    """Learn from all records, in place; the cost hardly depends on their number.

    Parameters
    ----------
    trained
        The network so far.
    records
        At least two.
    steps
        Gradient steps; a recipe with `epochs` makes those instead.
    rng
        Order of the data.
    first
        Prior of the share.

    Returns
    -------
    Smoothed training loss at the end.
    """
    net = trained.net
    data = data_of(records, recipe, folds(len(records), net.members))
    loss = train_fully(net, member_plan(net, data, recipe, rng), recipe, steps)
    if np.isfinite(loss):
        trained.share = correction_shares(net, data, list(records.names), recipe, rng, first)
    return loss


def train_fully(net: Network[Features], plan: TrainingPlan, recipe: Recipe, steps: int) -> float:
    """Train to the end, in place, and switch to evaluation mode; the final smoothed loss."""
    loss = 0.0
    for value in descend(net, plan, recipe, steps):
        loss = value
    net.eval()
    return loss


def data_of(records: Records[str, FeatureBatch], recipe: Recipe, fold: IntArray) -> Data:
    """Records with their labels, and the draft's estimate where the recipe corrects it."""
    prior = records.log_priors() if recipe.corrects else np.zeros(len(records))
    return Data(records.batch(), records.labels(), prior, records.task, fold)


def folds(records: int, members: int) -> IntArray:
    """Member from which a record is held out, int64 (records,); -1: none (one member)."""
    return np.arange(records) % members if members > 1 else np.full(records, -1, np.int64)


def correction_shares(
    net: Network[FeatureBatch],
    data: Data,
    names: list[str],
    recipe: Recipe,
    rng: np.random.Generator,
    first: PriorShare,
) -> dict[str, float]:
    """Share of the correction to apply, per task, from each member's held-out records.

    A share is the slope of a regression, within tasks, of the draft's residuals on the correction
    by the member that has not seen them. It is shrunk towards the prior; a task's own share is
    shrunk towards that of all tasks together by `PSEUDO` records. Empty (all is applied) for a
    network that corrects nothing, or whose only member has seen every record.
    """
    if not recipe.corrects or net.members == 1:
        return {}
    rows = _unseen_rows(data.fold, net.members, rng)
    predicted = predict(net, data.batch.rows(rows))
    left = -(data.labels.cost[rows] - data.prior[rows])
    weight = SLOW_WEIGHT + data.labels.throughput[rows]
    task = data.task[rows]
    for index in np.unique(task):
        of_task = task == index
        for values in (*predicted, left):
            values[of_task] -= np.average(values[of_task], weights=weight[of_task])
    unseen = predicted[data.fold[rows], np.arange(len(rows))]
    # the mean of the members has less variance than the one that has not seen a record
    variance = predicted.var(axis=0, ddof=1) * (1 - 1 / net.members)
    shared, spread = (weight * unseen * left), (weight * (unseen**2 - variance))
    before, extra = first.weight * spread.mean(), PSEUDO * spread.mean()
    overall = _ratio(shared.sum() + first.share * before, spread.sum() + before)
    share = {OTHERS: overall}
    for index, name in enumerate(names):
        of_task = task == index
        share[name] = _ratio(shared[of_task].sum() + overall * extra, spread[of_task].sum() + extra)
    return share


def _unseen_rows(fold: IntArray, members: int, rng: np.random.Generator) -> IntArray:
    """The same number of held-out records for every member, concatenated."""
    parts = [np.flatnonzero(fold == member) for member in range(members)]
    size = min(NORMALISER_ROWS // members, *map(len, parts))
    return np.concatenate([rng.choice(p, size, replace=False) for p in parts]).astype(np.int64)


def _ratio(shared: float, spread: float) -> float:
    """A share in [0, 1]; 0 or 1 where the members' variance exceeds their predictions."""
    return float(np.clip(shared / spread, 0.0, 1.0)) if spread > 0 else float(shared > 0)


def set_normaliser(net: Network[Features], batch: Features, rng: np.random.Generator) -> None:
    """Set the normaliser by the statistics of at most `NORMALISER_ROWS` records."""
    size = min(len(batch), NORMALISER_ROWS)
    drawn = rng.choice(len(batch), size, replace=False).astype(np.int64)
    with undisturbed():
        net.normalise(batch.rows(drawn))


def finite(net: nn.Module) -> bool:
    """Whether all parameters and statistics are finite numbers."""
    return all(bool(torch.isfinite(x).all()) for x in net.state_dict().values())


def predict(net: Network[Features], batch: Features) -> FloatArray:
    """Predictions of every member or head, float64 (members or heads, B)."""
    net.eval()
    if not len(batch):
        return np.zeros((net.members, 0))
    with undisturbed(), torch.inference_mode():
        parts = [
            net.outputs(batch.rows(slice(start, start + CHUNK))).cpu().numpy()
            for start in range(0, len(batch), CHUNK)
        ]
    return np.concatenate(parts, axis=1, dtype=np.float64)
