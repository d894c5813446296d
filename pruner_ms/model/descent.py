"""Gradient steps on records: batches by task, the optimiser, an end when nothing is gained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread inside the block, and as before at its end.

    The networks are small: with more threads, idle ones spin, and where other processes (compilers,
    measurements) want the cores, an update of a second was seen to take a minute.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
    smooth, best, since = 0.0, np.inf, 0
    for step in range(steps):
        net.train()
        total = step_of(lambda: _loss(net, data, recipe, next(batches)))
        value = total / net.members
        smooth = value if step == 0 else SMOOTH * smooth + (1 - SMOOTH) * value
        since = 0 if smooth < 0.999 * best else since + 1
        best = min(best, smooth)
        yield smooth
        if since >= recipe.patience * scale:
            return


def _loss(net: Network, data: Data, recipe: Recipe, rows: IntArray) -> Tensor:
    """Loss of the records of one batch, (members * B,), the members' parts one after another."""
    cost, fast, before, task = (
        torch.from_numpy(x[rows]).view(net.members, -1).to(net.device)
        for x in (data.labels.cost, data.labels.throughput, data.prior, data.task)
    )
    inputs = to_inputs(data.batch.rows(rows), net.members, apart=True, device=net.device)
    score: Tensor = net(inputs) - before.float()
    return LOSSES[recipe.loss](score, cost.float(), fast.float(), task)


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
    chance = np.sqrt([len(group) for group in groups])
    chosen = rng.choice(
        len(groups), min(GROUPS, len(groups)), replace=False, p=chance / chance.sum()
    )
    share = max(2, size // len(chosen))
    rows = [groups[one] for one in chosen]
    picked = [r if len(r) <= share else rng.choice(r, share, replace=False) for r in rows]
    return np.resize(np.concatenate(picked), size).astype(np.int64)


def by_task(
    task: IntArray, allowed: Sequence[IntArray], batch: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Batches without end, drawn by `draw`, each member's part after the other's."""
    size = min(batch, len(task))
    groups = [groups_of(task, some) for some in allowed]
    while True:
        yield np.concatenate([draw(group, size, rng) for group in groups])


def in_passes(
    _task: IntArray, allowed: Sequence[IntArray], batch: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Batches without end: every record once a pass, in parts of nearly equal size.

    Equal parts, because statistics over a batch of one or two would spoil a BatchNorm.
    """
    length = min(map(len, allowed))
    parts = max(1, -(-length // batch))
    while True:
        shuffled = [np.array_split(rng.permutation(some)[:length], parts) for some in allowed]
        for number in range(parts):
            yield np.concatenate([some[number] for some in shuffled]).astype(np.int64)
