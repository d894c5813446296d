"""Names of the platforms that a model has heads for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from torch import nn

from pruner_ms.errors import OptionError, WeightsError
from pruner_ms.model.networks import Net

MOST_HEADS = 64
PREFIX = "decoders."
"""Prefix of the names of the heads' tensors; the index of the head follows."""


def checked_heads(heads: Sequence[str], target: str | None) -> list[str]:
    """The requested heads, the target's included; "default" without any.

    Raises
    ------
    OptionError
        They are not different, non-empty names, or too many.
    """
    names = [heads] if isinstance(heads, str) else list(heads)
    if target is not None and target not in names:
        names.append(target)
    names = names or ["default"]
    if not _good(names):
        raise OptionError(
            f"heads={names!r} cannot be used; give at most {MOST_HEADS} different names"
        )
    return names


def heads_of(path: str | os.PathLike[str], card: Mapping[str, object]) -> list[str]:
    """The heads that a weights file names in its card.

    Raises
    ------
    WeightsError
        It does not name them.
    """
    names = card.get("heads")
    if not isinstance(names, list) or not _good(names):
        raise WeightsError(f"{path} is damaged: its card says heads={str(names)[:80]}, not names")
    return names


def copy_head(net: nn.Module, source: int, to: int) -> None:
    """Give a head the weights of another one."""
    decoders = net.get_submodule(PREFIX[:-1])
    state = decoders.get_submodule(str(source)).state_dict()
    decoders.get_submodule(str(to)).load_state_dict(state)


def grown(net: nn.Module, larger: Net) -> Net:
    """A larger network with the weights of a smaller one of its kind; its other weights stay."""
    larger.load_state_dict(net.state_dict(), strict=False)
    return larger


def _good(names: Sequence[object]) -> bool:
    strings = all(isinstance(name, str) and name for name in names)
    return strings and 1 <= len(names) <= MOST_HEADS and len(set(names)) == len(names)
