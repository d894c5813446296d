"""Gradient descent on records: batches by task, optimisers, early stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from pruner_ms.features.pack import FeatureBatch
from pruner_ms.model.loss import LOSSES
from pruner_ms.model.network import Network
from pruner_ms.model.recipe import Recipe
from pruner_ms.model.records import Features, Labels
from pruner_ms.types import FloatArray, IntArray

# Optimisers by name, and the one-cycle schedule of their rate.
#
# The default one calls torch's functional AdamW: at its first use a `torch.optim.Optimizer` imports
# torch's compiler, which takes a second.

BETAS, EPS = (0.9, 0.999), 1e-8

FUSED = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4)
"""Whether the fused kernel runs on CPUs, too: a fifth of the time."""

RISE = 0.3
"""Share of the steps in which the rate of a cycle rises."""

FIRST, LAST = 25.0, 1e4
"""Peak rate over the initial rate, and initial over the final one."""

MOMENTA = (0.95, 0.85)
"""Momentum where the rate is lowest, and where it is highest."""


class Pace(NamedTuple):
    """Learning rate and momentum of one step."""

    rate: float
    momentum: float


class Optimiser(Protocol):
    """The part of torch's optimisers that a training uses."""

    param_groups: list[dict[str, Any]]

    def zero_grad(self) -> None:
        """Forget the gradients."""

    def step(self) -> Any:
        """Move the parameters by their gradients."""


class AdamW:
    """Adam with decoupled weight decay [Loshchilov and Hutter, 2019], by `torch.optim.adamw.adamw`.

    Parameters
    ----------
    groups
        As of `torch.optim.AdamW`: each with "params" and "weight_decay".
    rate
        Learning rate.

    Attributes
    ----------
    param_groups
        The groups, with "lr" and "betas", which may be changed between steps.
    """

    def __init__(self, groups: list[dict[str, Any]], rate: float) -> None:
        self.param_groups = [{"lr": rate, "betas": BETAS, **group} for group in groups]
        self._state: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = {}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters by their gradients."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            states = [self._of(p) for p in moved]
            adamw(
                moved,
                [p.grad for p in moved],
                [mean for mean, _, _ in states],
                [square for _, square, _ in states],
                [],
                [count for _, _, count in states],
                fused=FUSED or None,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=EPS,
                maximize=False,
            )

    def _of(self, parameter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if parameter not in self._state:
            zeros = torch.zeros_like(parameter), torch.zeros_like(parameter)
            place = parameter.device if FUSED else None
            count = torch.zeros((), dtype=torch.float32, device=place)
            self._state[parameter] = (*zeros, count)
        return self._state[parameter]


def one_cycle(steps: int, peak: float) -> Iterator[Pace]:
    """Rates that rise to the peak and fall to nearly 0, cosine-shaped, one for each step.

    As `torch.optim.lr_scheduler.OneCycleLR` with its defaults [Smith and Topin, 2018].
    """
    top, end = RISE * steps - 1, steps - 1
    for step in range(steps):
        if step <= top:
            part = step / top
            yield Pace(_between(peak / FIRST, peak, part), _between(*MOMENTA, part))
        else:
            part = (step - top) / (end - top)
            low = peak / FIRST / LAST
            yield Pace(_between(peak, low, part), _between(*MOMENTA[::-1], part))


def cycled(optimiser: Optimiser, pace: Pace) -> None:
    """Set the pace of the next step."""
    for group in optimiser.param_groups:
        group["lr"] = pace.rate
        if "betas" in group:
            group["betas"] = (pace.momentum, group["betas"][1])
        else:
            group["momentum"] = pace.momentum


def _between(start: float, end: float, part: float) -> float:
    return end + (start - end) / 2.0 * (cos(pi * part) + 1)


def _adamw(net: nn.Module, recipe: Recipe) -> Optimiser:
    """Weight decay for matrices only, not for biases and norms."""
    matrices = [p for p in net.parameters() if p.ndim >= 2]
    others = [p for p in net.parameters() if p.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": recipe.decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return AdamW(groups, recipe.rate)


def _adam(net: nn.Module, recipe: Recipe) -> Optimiser:
    return torch.optim.Adam(net.parameters(), lr=recipe.rate, weight_decay=recipe.decay)


def _sgd(net: nn.Module, recipe: Recipe) -> Optimiser:
    return torch.optim.SGD(net.parameters(), lr=recipe.rate, weight_decay=recipe.decay)


OPTIMISERS: Mapping[str, Callable[[nn.Module, Recipe], Optimiser]] = MappingProxyType(
    {"adamw": _adamw, "adam": _adam, "sgd": _sgd}
)
"""By the names of `recipe.OPTIMISERS`."""


GROUPS = 4
"""Most tasks in a batch."""

SMOOTH = 0.9
"""Decay of the exponentially smoothed loss."""


@dataclass(frozen=True, eq=False)
class Data:
    """Training data; n records.

    Attributes
    ----------
    batch, labels
        Features and labels.
    prior
        Log seconds that the output corrects, float64 (n,); zeros: none.
    task
        Index of the task, int64 (n,).
    fold
        Member from which a record is held out, int64 (n,); -1: none.
    """

    batch: FeatureBatch
    labels: Labels
    prior: FloatArray
    task: IntArray
    fold: IntArray

    def __len__(self) -> int:
        return len(self.task)


@dataclass(frozen=True)
class TrainingPlan:
    """Batches and loss of a training.

    Attributes
    ----------
    batches
        Indices of records, an infinite iterator.
    per_pass
        Batches of one pass over all records.
    loss_of
        The loss of one batch, summed over the members.
    """

    batches: Iterator[IntArray]
    per_pass: int
    loss_of: Callable[[IntArray], Tensor]


def member_plan(
    net: Network[FeatureBatch], data: Data, recipe: Recipe, rng: np.random.Generator
) -> TrainingPlan:
    """Different batches for every member, int64 (members, B), without its held-out records."""
    allowed = [np.flatnonzero(data.fold != member) for member in range(net.members)]
    per_pass = max(1, -(-min(map(len, allowed)) // recipe.batch))
    source = in_passes if recipe.epochs else by_task
    batches = source(data.task, allowed, recipe.batch, rng)
    return TrainingPlan(batches, per_pass, _loss_of(net, data, recipe))


def descend(
    net: Network[Features], plan: TrainingPlan, recipe: Recipe, steps: int
) -> Iterator[float]:
    """Train in place; yields the smoothed loss of a member after every step.

    It ends after `steps` steps (with `recipe.epochs`: after so many passes), when the loss has not
    fallen for `recipe.patience` of them, or is not finite. The caller puts the network into
    evaluation mode.
    """
    scale = plan.per_pass if recipe.epochs else 1
    steps = recipe.epochs * scale if recipe.epochs else steps
    step_of = _stepper(net, recipe, steps)
    smooth, best, since = 0.0, np.inf, 0
    for step in range(steps):
        if not net.training:
            net.train()
        total = step_of(lambda: plan.loss_of(next(plan.batches)))
        value = total / net.members
        smooth = value if step == 0 else SMOOTH * smooth + (1 - SMOOTH) * value
        since = 0 if smooth < 0.999 * best else since + 1
        best = min(best, smooth)
        yield smooth
        if since >= recipe.patience * scale or not np.isfinite(smooth):
            return


def _loss_of(
    net: Network[FeatureBatch], data: Data, recipe: Recipe
) -> Callable[[IntArray], Tensor]:
    """Function from the records of one batch, int64 (members, B), to their loss."""
    outputs = net.drawing(data.batch)
    labels = (data.labels.cost, data.labels.throughput, data.prior)
    cost, fast, before = (torch.from_numpy(x).float().to(net.device) for x in labels)
    task = torch.from_numpy(data.task).to(net.device)

    def loss(rows: IntArray) -> Tensor:
        index = torch.from_numpy(rows).to(net.device)
        score = outputs(rows) - before[index]
        return LOSSES[recipe.loss](score, cost[index], fast[index], task[index])

    return loss


def _stepper(net: nn.Module, recipe: Recipe, steps: int) -> Callable[[Callable[[], Tensor]], float]:
    """Function that makes one step: from a function that computes the loss to its value."""
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

    The probability of a task is proportional to the square root of its number of records, so that
    large ones do not dominate. Each drawn task gives an equal share of the batch. Too few records
    are repeated to fill `size`.

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
    """Infinite batches, drawn by `draw`, int64 (members, B)."""
    size = min(batch, *map(len, allowed))
    groups = [groups_of(task, indices) for indices in allowed]
    while True:
        yield np.stack([draw(group, size, rng) for group in groups])


def in_passes(
    _task: IntArray, allowed: Sequence[IntArray], batch: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Infinite batches, int64 (members, B): every record once a pass, in nearly equal parts.

    Equal parts, because a BatchNorm needs more than one or two records.
    """
    length = min(map(len, allowed))
    parts = max(1, -(-length // batch))
    while True:
        shuffled = [np.array_split(rng.permutation(indices)[:length], parts) for indices in allowed]
        for number in range(parts):
            yield np.stack([indices[number] for indices in shuffled]).astype(np.int64)
