"""Gradient steps on records: batches by task, the optimiser, an end when nothing is gained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.loss import LOSSES
from pruner_ms.model.network import Network, to_inputs
from pruner_ms.model.optimisers import OPTIMISERS, cycled, one_cycle
from pruner_ms.model.recipe import Recipe
from pruner_ms.model.records import Labels
from pruner_ms.types import FloatArray, IntArray

GROUPS = 4
"""Tasks in one batch of the training."""

SMOOTH = 0.9
"""Share of the past in the smoothed loss."""


@dataclass(frozen=True, eq=False)
class Data:
    """What is learned from; n records.

    Attributes
    ----------
    batch, labels
        Features and labels.
    prior
        Log seconds that the output corrects, float64 (n,); zeros: none.
    task
        Index of the task, int64 (n,).
    fold
        Member that never sees a record, int64 (n,); -1: all see it.
    """

    batch: FeatureBatch
    labels: Labels
    prior: FloatArray
    task: IntArray
    fold: IntArray

    def __len__(self) -> int:
        return len(self.task)


def descend(
    net: Network, data: Data, recipe: Recipe, steps: int, rng: np.random.Generator
) -> Iterator[float]:
    """Train in place: the smoothed loss of a member after every step.

    It ends after `steps` steps (with `recipe.epochs`: after so many passes), or when the loss has
    not fallen for `recipe.patience` of them. The caller puts the network into evaluation mode.
    """
    allowed = [np.flatnonzero(data.fold != member) for member in range(net.members)]
    per_pass = max(1, -(-min(map(len, allowed)) // recipe.batch))
    scale = per_pass if recipe.epochs else 1
    steps = recipe.epochs * per_pass if recipe.epochs else steps
    source = in_passes if recipe.epochs else by_task
    step_of = _stepper(net, recipe, steps)
    batches = source(data.task, allowed, recipe.batch, rng)
    loss_of = _loss_of(net, data, recipe)
    smooth, best, since = 0.0, np.inf, 0
    for step in range(steps):
        if not net.training:
            net.train()
        total = step_of(lambda: loss_of(next(batches)))
        value = total / net.members
        smooth = value if step == 0 else SMOOTH * smooth + (1 - SMOOTH) * value
        since = 0 if smooth < 0.999 * best else since + 1
        best = min(best, smooth)
        yield smooth
        if since >= recipe.patience * scale:
            return


def _loss_of(net: Network, data: Data, recipe: Recipe) -> Callable[[IntArray], Tensor]:
    """What gives the loss of records of one batch, int64 (members, B).

    What is the same at every step is made here.
    """
    with torch.no_grad():
        inputs = net.prepare(to_inputs(data.batch, 1, net.device))
    labels = (data.labels.cost, data.labels.throughput, data.prior)
    cost, fast, before = (torch.from_numpy(x).float().to(net.device) for x in labels)
    task = torch.from_numpy(data.task).to(net.device)

    def loss(rows: IntArray) -> Tensor:
        index = torch.from_numpy(rows).to(net.device)
        score: Tensor = net(inputs.drawn(rows)) - before[index]
        return LOSSES[recipe.loss](score, cost[index], fast[index], task[index])

    return loss


def _stepper(net: Network, recipe: Recipe, steps: int) -> Callable[[Callable[[], Tensor]], float]:
    """What makes one step: it takes a function that gives the loss, and gives its value."""
    optimiser = OPTIMISERS[recipe.optimiser](net, recipe)
    cycle = one_cycle(steps, recipe.rate) if recipe.schedule == "one-cycle" else None

    def step(loss: Callable[[], Tensor]) -> float:
        if cycle is not None:
            cycled(optimiser, next(cycle))
        total = loss()
        optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        if np.isfinite(recipe.clip):
            nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
        optimiser.step()
        return float(total.detach())

    return step


def groups_of(task: IntArray, allowed: IntArray) -> list[IntArray]:
    """The allowed records of each task that has some, by ascending task."""
    order = allowed[np.argsort(task[allowed], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(task[order])) + 1) if len(order) else []


def draw(groups: Sequence[IntArray], size: int, rng: np.random.Generator) -> IntArray:
    """Indices of one batch, int64 (size,), from at most `GROUPS` tasks.

    A task is drawn with the square root of its number of records, so that big ones do not drown
    small ones, and gives an equal share of the batch. What is short of `size` comes again.

    Parameters
    ----------
    groups
        `groups_of`: the records of each task.
    """
    chosen = [0] if len(groups) == 1 else _tasks(groups, rng)
    share = max(2, size // len(chosen))
    rows = [groups[one] for one in chosen]
    picked = [r if len(r) <= share else rng.choice(r, share, replace=False) for r in rows]
    return np.resize(np.concatenate(picked), size).astype(np.int64)


def _tasks(groups: Sequence[IntArray], rng: np.random.Generator) -> IntArray:
    chance = np.sqrt([len(group) for group in groups])
    count = min(GROUPS, len(groups))
    return rng.choice(len(groups), count, replace=False, p=chance / chance.sum())


def by_task(
    task: IntArray, allowed: Sequence[IntArray], batch: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Batches without end, drawn by `draw`, int64 (members, B)."""
    size = min(batch, *map(len, allowed))
    groups = [groups_of(task, some) for some in allowed]
    while True:
        yield np.stack([draw(group, size, rng) for group in groups])


def in_passes(
    _task: IntArray, allowed: Sequence[IntArray], batch: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Batches without end, int64 (members, B): every record once a pass, in nearly equal parts.

    Equal parts, because statistics over a batch of one or two would spoil a BatchNorm.
    """
    length = min(map(len, allowed))
    parts = max(1, -(-length // batch))
    while True:
        shuffled = [np.array_split(rng.permutation(some)[:length], parts) for some in allowed]
        for number in range(parts):
            yield np.stack([some[number] for some in shuffled]).astype(np.int64)
