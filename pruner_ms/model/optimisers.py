"""Optimisers by name, and the one-cycle schedule of their rate.

The default one calls torch's AdamW as the function that it is: at its first use a
`torch.optim.Optimizer` imports torch's compiler, which takes a second, and a search that is ahead
after twenty feels it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import cos, pi
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from pruner_ms.model.recipe import Recipe

BETAS, EPS = (0.9, 0.999), 1e-8

FUSED = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4)
"""Whether one kernel moves all parameters on a CPU, too: a fifth of the time."""

RISE = 0.3
"""Share of the steps in which the rate of a cycle rises."""

FIRST, LAST = 25.0, 1e4
"""The peak rate over the first one, and that over the last one."""

MOMENTA = (0.95, 0.85)
"""Momentum where the rate is lowest, and where it is highest."""


class Pace(NamedTuple):
    """Learning rate and momentum of one step."""

    rate: float
    momentum: float


class Optimiser(Protocol):
    """What a training needs of one."""

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
    """Rates that rise to the peak and fall to nearly nothing, cosine-shaped, one for each step.

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
    """Weight decay for matrices only: biases and norms stay free."""
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
