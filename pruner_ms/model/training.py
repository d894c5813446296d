"""Training of an ensemble on records: a fixed number of small steps per update, at a flat cost.

While there are few records, and again whenever they have grown by `RESTART` since, the networks
start anew (a warm start on a hundred records stays where its first thirty put it); in between they
go on from where they are. The normaliser is set when they start anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.loss import LOSSES, SLOW_WEIGHT
from pruner_ms.model.pacm import Arch, DataflowBranch, Pacm, StatementBranch, to_inputs
from pruner_ms.model.records import Labels, Records
from pruner_ms.types import BoolArray, FloatArray, IntArray

RESTART = 1.5
"""Growth of the records after which the networks start anew."""

NORMALISER_ROWS = 2048
"""Records that statistics are taken over, at most."""

CHUNK = 1024
"""Rows scored at once."""

GROUPS = 4
"""Tasks in one batch of the training."""

PSEUDO = 16.0
"""Records that the other tasks' experience counts for."""


@dataclass(frozen=True)
class Recipe:
    """Knobs of the training.

    Attributes
    ----------
    loss
        Name in `loss.LOSSES`. Regression is the default: on 16 to 48 measured schedules of seven
        CPU tasks its correction of the draft ranked best; a ranking loss has no scale of its own,
        so that `believed` shrinks it to nothing.
    steps, more_steps
        Gradient steps from new weights, and from where the networks are.
    batch
        Records per step.
    rate, decay
        Learning rate and weight decay of AdamW.
    patience
        Steps without a better smoothed loss after which training stops.
    """

    loss: str = "regression"
    steps: int = 80
    more_steps: int = 40
    batch: int = 64
    rate: float = 3e-3
    decay: float = 0.05
    patience: int = 40


@dataclass(eq=False)
class Trained:
    """Networks, and what is known about them.

    Attributes
    ----------
    started_at
        Records when they last started anew; 0: never trained here.
    share
        Per task index, the share of the correction that is believed, in [0, 1]; -1: other tasks.
    """

    net: Pacm
    started_at: int = 0
    share: dict[int, float] = field(default_factory=dict)


def build(arch: Arch, seed: int) -> Pacm:
    """An untrained ensemble; the same seed gives the same weights, whatever else uses torch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Pacm(arch)


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


def train(
    trained: Trained, arch: Arch, records: Records, recipe: Recipe, seed: int, keep: bool = False
) -> float:
    """Learn from all records, in place; the cost hardly depends on how many there are.

    Parameters
    ----------
    trained
        The networks so far.
    records
        At least two.
    seed
        Of initial weights and of the order of the data.
    keep
        Never start anew: the networks were trained elsewhere.

    Returns
    -------
    Smoothed training loss at the end.
    """
    rng = np.random.default_rng([seed, len(records)])
    anew = not keep and len(records) >= RESTART * trained.started_at
    if anew:
        trained.net = build(arch, seed)
        set_normaliser(trained.net, records, rng)
    if anew or not trained.started_at:
        trained.started_at = len(records)
    labels, prior = records.labels(), records.log_priors()
    steps = recipe.steps if anew else recipe.more_steps
    with one_thread():
        loss = _descend(trained.net, records, labels, prior, recipe, steps, rng)
    if np.isfinite(loss):
        trained.share = believed(trained.net, records, labels, prior, rng)
    return loss


def folds(records: int, members: int) -> IntArray:
    """Which member never sees a record, int64 (records,); -1: all see it (one member)."""
    return np.arange(records) % members if members > 1 else np.full(records, -1, np.int64)


def _descend(
    net: Pacm,
    records: Records,
    labels: Labels,
    prior: FloatArray,
    recipe: Recipe,
    steps: int,
    rng: np.random.Generator,
) -> float:
    net.train()
    loss_of = LOSSES[recipe.loss]
    optimiser = torch.optim.AdamW(_parameter_groups(net, recipe.decay), lr=recipe.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=steps)
    fold = folds(len(records), net.members)
    allowed = [np.flatnonzero(fold != member) for member in range(net.members)]
    size = min(recipe.batch, len(records))
    smooth, best, since = 0.0, np.inf, 0
    for step in range(steps):
        rows = np.concatenate([draw(records.task, some, size, rng) for some in allowed])
        cost, fast, before, task = (
            torch.from_numpy(x[rows]).view(len(allowed), -1)
            for x in (labels.cost, labels.throughput, prior, records.task)
        )
        correction = net(to_inputs(records.batch().rows(rows), len(allowed), apart=True))
        total = loss_of(correction - before.float(), cost.float(), fast.float(), task)
        optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        value = float(total.detach()) / net.members
        smooth = value if step == 0 else 0.9 * smooth + 0.1 * value
        since = 0 if smooth < 0.999 * best else since + 1
        best = min(best, smooth)
        if since >= recipe.patience:
            break
    net.eval()
    return smooth


def believed(
    net: Pacm, records: Records, labels: Labels, prior: FloatArray, rng: np.random.Generator
) -> dict[int, float]:
    """Share of the correction to believe, per task index, from records a member never saw.

    The regression of what the draft left over on the unseen member's correction, within tasks; a
    task's own share is shrunk towards that of all tasks together by `PSEUDO` records.
    """
    size = min(len(records), NORMALISER_ROWS)
    rows = np.sort(rng.choice(len(records), size, replace=False)).astype(np.int64)
    said = predict(net, records.batch().rows(rows))
    fold = folds(len(records), net.members)[rows]
    unseen = said[fold, np.arange(size)]
    left = -(labels.cost[rows] - prior[rows])
    weight = SLOW_WEIGHT + labels.throughput[rows]
    task = records.task[rows]
    for index in np.unique(task):
        own = task == index
        for values in (unseen, left):
            values[own] -= np.average(values[own], weights=weight[own])
    shared, spread = (weight * unseen * left), (weight * unseen**2)
    overall = _ratio(shared.sum(), spread.sum())
    extra = PSEUDO * spread.mean()
    share = {-1: overall}
    for index in range(len(records.names)):
        own = task == index
        share[index] = _ratio(shared[own].sum() + overall * extra, spread[own].sum() + extra)
    return share


def _ratio(shared: float, spread: float) -> float:
    return float(np.clip(shared / spread, 0.0, 1.0)) if spread > 0 else 0.0


def draw(task: IntArray, allowed: IntArray, size: int, rng: np.random.Generator) -> IntArray:
    """Indices of one batch among the allowed ones, int64 (size,), from at most `GROUPS` tasks.

    A task is drawn with the square root of its number of records, so that big ones do not drown
    small ones, and gives an equal share of the batch. What is short of `size` comes again.
    """
    index, counts = np.unique(task[allowed], return_counts=True)
    chance = np.sqrt(counts) / np.sqrt(counts).sum()
    chosen = rng.choice(index, min(GROUPS, len(index)), replace=False, p=chance)
    share = max(2, size // len(chosen))
    rows = [allowed[task[allowed] == one] for one in chosen]
    picked = [r if len(r) <= share else rng.choice(r, share, replace=False) for r in rows]
    return np.resize(np.concatenate(picked), size).astype(np.int64)


def set_normaliser(net: Pacm, records: Records, rng: np.random.Generator) -> None:
    """Mean and deviation of every column, over at most `NORMALISER_ROWS` records."""
    size = min(len(records), NORMALISER_ROWS)
    some = records.batch().rows(rng.choice(len(records), size, replace=False).astype(np.int64))
    for module in net.modules():
        if isinstance(module, StatementBranch):
            module.scaler.set(*column_statistics(some.statements, some.statement_mask))
        elif isinstance(module, DataflowBranch):
            module.scaler.set(*column_statistics(some.tokens, some.token_mask))


def column_statistics(values: FloatArray, mask: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Mean and 1 / deviation per column over existing rows, each (width,); 0 if constant."""
    rows = values[mask]
    if not len(rows):
        return np.zeros(values.shape[-1]), np.zeros(values.shape[-1])
    deviation = rows.std(axis=0)
    return rows.mean(axis=0), np.where(deviation > 1e-6, 1.0 / np.maximum(deviation, 1e-6), 0.0)


def predict(net: Pacm, batch: FeatureBatch) -> FloatArray:
    """Corrections of every member, float64 (members, B)."""
    net.eval()
    parts = [np.zeros((net.members, 0))]
    with one_thread(), torch.inference_mode():
        for start in range(0, len(batch), CHUNK):
            part = batch.rows(slice(start, start + CHUNK))
            parts.append(net(to_inputs(part, net.members)).numpy())
    return np.concatenate(parts, axis=1, dtype=np.float64)


def _parameter_groups(net: nn.Module, decay: float) -> list[dict[str, object]]:
    """Weight decay for matrices only: biases and norms stay free."""
    matrices = [p for p in net.parameters() if p.ndim >= 2]
    others = [p for p in net.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
