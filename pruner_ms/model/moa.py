"""MoA: momentum adaptation of a pretrained model to the tasks at hand [Pruner 4.3].

There is a source model phi and a target model theta. Every fit starts from phi and learns from all
records; then phi moves towards the result:  phi <- m phi + (1 - m) theta.

differs: the momentum covers the whole state, parameters, normaliser and running statistics (the
released code averages parameters alone, and computes a new normaliser that does not match its
weights). A target keeps the normaliser of its source while it learns.

Notation
--------
m      momentum, in [0, 1]: 1 never moves the source, 0 makes it the last target
every  updates per fit
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from pruner_ms.errors import OptionError, require
from pruner_ms.model.weights import Tensors, check_fit

State = dict[str, Tensor]


@dataclass(frozen=True)
class Momentum:
    """Constants of the adaptation; see the notation above."""

    m: float
    every: int

    def __post_init__(self) -> None:
        if not 0 <= self.m <= 1:
            raise OptionError(f"momentum m={self.m} cannot be used; give a number in [0, 1]")
        if self.every < 1:
            raise OptionError(f"every={self.every} cannot be used; give 1 or more updates per fit")


MOMENTA: Mapping[str, Momentum] = MappingProxyType(
    {
        # with the published constants the source hardly moves in a search (docs/constants.md)
        "default": Momentum(m=0.9, every=1),
        "published": Momentum(m=0.99, every=4),
    }
)
"""Constants by name."""


def momentum_named(name: str) -> Momentum:
    """The constants of that name.

    Raises
    ------
    OptionError
        There are none of that name.
    """
    require("momentum", name, MOMENTA)
    return MOMENTA[name]


class Source:
    """The source model phi: a state that targets start from and that follows them.

    Parameters
    ----------
    net
        The pretrained network; its state is copied.
    momentum
        Constants.
    """

    def __init__(self, net: nn.Module, momentum: Momentum) -> None:
        self.state = state_of(net)
        self.momentum = momentum

    def start(self, net: nn.Module) -> None:
        """Make a network the source: theta <- phi."""
        net.load_state_dict(self.state)

    def follow(self, net: nn.Module) -> None:
        """Move towards a trained target: phi <- m phi + (1 - m) theta."""
        self.state = blended(self.state, state_of(net), self.momentum.m)


def state_of(net: nn.Module) -> State:
    """A copy of parameters and buffers."""
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def fill(net: nn.Module, tensors: Tensors, path: str | os.PathLike[str]) -> None:
    """Replace the state of a network by tensors of a file.

    Raises
    ------
    WeightsError
        It does not fit; `path` is for the message.
    """
    check_fit(path, tensors, {name: tuple(x.shape) for name, x in net.state_dict().items()})
    net.load_state_dict({name: torch.from_numpy(x.copy()) for name, x in tensors.items()})


def tensors_of(state: State) -> Tensors:
    """A state as arrays, float32."""
    return {name: x.detach().cpu().float().numpy().copy() for name, x in state.items()}


def blended(source: State, target: State, m: float) -> State:
    """m * source + (1 - m) * target, of every tensor of the state; counters are the target's."""
    return {
        name: torch.lerp(target[name], value, m) if value.is_floating_point() else target[name]
        for name, value in source.items()
    }
