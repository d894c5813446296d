"""Training on what has been measured so far, what is believed of it, and predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic

import numpy as np
import torch
from torch import nn

from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.descent import Course, Data, descend, member_course
from pruner_ms.model.loss import SLOW_WEIGHT
from pruner_ms.model.network import Network
from pruner_ms.model.randomness import undisturbed
from pruner_ms.model.recipe import Recipe
from pruner_ms.model.records import Records, Seen
from pruner_ms.types import FloatArray, IntArray

NORMALISER_ROWS = 2048
"""Records that statistics are taken over, at most."""

CHUNK = 1024
"""Rows scored at once."""

PSEUDO = 16.0
"""Records that the other tasks' experience counts for."""

FIRST_SHARE, FIRST_WEIGHT = 0.5, 256.0
"""Share of a correction that is believed before there is evidence, and the records that this counts
for: what a few records say of a share is noise, and a half ranks better than nearly none."""

LATER_WEIGHT = 2048.0
"""The same for the share that a pretraining found, on many more tasks."""

OTHERS = ""
"""Stands for all tasks without a share of their own."""


@dataclass(eq=False)
class Trained(Generic[Seen]):
    """A network, and what is known about it.

    Attributes
    ----------
    net
        In evaluation mode.
    started_at
        Records when it last started anew; 0: never trained here.
    share
        Per task, the share of the correction that is believed, in [0, 1]; `OTHERS`: other tasks.
    source_share
        What a pretraining found for tasks that it had not learned.
    """

    net: Network[Seen]
    started_at: int = 0
    share: dict[str, float] = field(default_factory=dict)
    source_share: float = 1.0

    def believed(self, task: str) -> float:
        """Share of the correction that is believed for a task."""
        return self.share.get(task, self.share.get(OTHERS, 1.0))


@dataclass(frozen=True)
class First:
    """Share that is believed before there is evidence, and the records that this counts for."""

    share: float = FIRST_SHARE
    weight: float = FIRST_WEIGHT


def train(
    trained: Trained[FeatureBatch],
    records: Records[str, FeatureBatch],
    recipe: Recipe,
    steps: int,
    rng: np.random.Generator,
    first: First,
) -> float:
    """Learn from all records, in place; the cost hardly depends on how many there are.

    Parameters
    ----------
    trained
        The network so far.
    records
        At least two.
    steps
        Gradient steps; a recipe that counts passes makes those.
    rng
        Order of the data.
    first
        What is believed before there is evidence.

    Returns
    -------
    Smoothed training loss at the end.
    """
    net = trained.net
    data = data_of(records, recipe, folds(len(records), net.members))
    loss = descended(net, member_course(net, data, recipe, rng), recipe, steps)
    if np.isfinite(loss):
        trained.share = believed(net, data, list(records.names), recipe, rng, first)
    return loss


def descended(net: Network[Seen], course: Course, recipe: Recipe, steps: int) -> float:
    """Train to the end, in place, then to be asked; the smoothed loss there."""
    loss = 0.0
    for value in descend(net, course, recipe, steps):
        loss = value
    net.eval()
    return loss


def data_of(records: Records[str, FeatureBatch], recipe: Recipe, fold: IntArray) -> Data:
    """Records with their labels, and the draft's estimate where the recipe corrects it."""
    prior = records.log_priors() if recipe.corrects else np.zeros(len(records))
    return Data(records.batch(), records.labels(), prior, records.task, fold)


def folds(records: int, members: int) -> IntArray:
    """Which member never sees a record, int64 (records,); -1: all see it (one member)."""
    return np.arange(records) % members if members > 1 else np.full(records, -1, np.int64)


def believed(
    net: Network[FeatureBatch],
    data: Data,
    names: list[str],
    recipe: Recipe,
    rng: np.random.Generator,
    first: First,
) -> dict[str, float]:
    """Share of the correction to believe, per task, from records a member never saw.

    The regression of what the draft left over on the unseen member's correction, within tasks,
    shrunk towards what was believed at first; a task's own share is shrunk towards that of all
    tasks together by `PSEUDO` records. Empty, all is believed, for a network that corrects nothing,
    or whose only member has seen every record.
    """
    if not recipe.corrects or net.members == 1:
        return {}
    rows = _unseen_rows(data.fold, net.members, rng)
    said = predict(net, data.batch.rows(rows))
    left = -(data.labels.cost[rows] - data.prior[rows])
    weight = SLOW_WEIGHT + data.labels.throughput[rows]
    task = data.task[rows]
    for index in np.unique(task):
        own = task == index
        for values in (*said, left):
            values[own] -= np.average(values[own], weights=weight[own])
    unseen = said[data.fold[rows], np.arange(len(rows))]
    # the mean of the members is steadier than the one that never saw a record
    apart = said.var(axis=0, ddof=1) * (1 - 1 / net.members)
    shared, spread = (weight * unseen * left), (weight * (unseen**2 - apart))
    before, extra = first.weight * spread.mean(), PSEUDO * spread.mean()
    overall = _ratio(shared.sum() + first.share * before, spread.sum() + before)
    share = {OTHERS: overall}
    for index, name in enumerate(names):
        own = task == index
        share[name] = _ratio(shared[own].sum() + overall * extra, spread[own].sum() + extra)
    return share


def _unseen_rows(fold: IntArray, members: int, rng: np.random.Generator) -> IntArray:
    """As many records for every member, among those that it never saw, one after another."""
    parts = [np.flatnonzero(fold == member) for member in range(members)]
    size = min(NORMALISER_ROWS // members, *map(len, parts))
    return np.concatenate([rng.choice(p, size, replace=False) for p in parts]).astype(np.int64)


def _ratio(shared: float, spread: float) -> float:
    """A share; all where the members are further apart than what they say."""
    return float(np.clip(shared / spread, 0.0, 1.0)) if spread > 0 else float(shared > 0)


def set_normaliser(net: Network[Seen], batch: Seen, rng: np.random.Generator) -> None:
    """Take the statistics of the columns, over at most `NORMALISER_ROWS` records."""
    size = min(len(batch), NORMALISER_ROWS)
    drawn = rng.choice(len(batch), size, replace=False).astype(np.int64)
    with undisturbed():
        net.normalise(batch.rows(drawn))


def finite(net: nn.Module) -> bool:
    """Whether all parameters and statistics are finite numbers."""
    return all(bool(torch.isfinite(x).all()) for x in net.state_dict().values())


def predict(net: Network[Seen], batch: Seen) -> FloatArray:
    """What every member or head says, float64 (members or heads, B)."""
    net.eval()
    if not len(batch):
        return np.zeros((net.members, 0))
    with undisturbed(), torch.inference_mode():
        parts = [
            net.outputs(batch.rows(slice(start, start + CHUNK))).cpu().numpy()
            for start in range(0, len(batch), CHUNK)
        ]
    return np.concatenate(parts, axis=1, dtype=np.float64)
