"""Modes of learning: from scratch, from pretrained weights, frozen, with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pruner_ms.errors import OptionError, require


@dataclass(frozen=True)
class Mode:
    """One way of learning.

    Attributes
    ----------
    pretrained
        Whether it starts from weights of a file.
    learns
        Whether it learns from measurements.
    momentum
        Whether a source model follows it by momentum.
    """

    pretrained: bool
    learns: bool
    momentum: bool = False


MODES: Mapping[str, Mode] = MappingProxyType(
    {
        "online": Mode(pretrained=False, learns=True),
        "moa": Mode(pretrained=True, learns=True, momentum=True),
        "offline": Mode(pretrained=True, learns=False),
        "finetune": Mode(pretrained=True, learns=True),
    }
)
"""Values of `mode=`."""

PLAIN: Mapping[str, Mode] = MappingProxyType({n: m for n, m in MODES.items() if not m.momentum})
"""Values of `mode=` for models without a source model."""


def chosen_mode(mode: str | None, weights: object, modes: Mapping[str, Mode] = MODES) -> str:
    """The mode; where none is named, "finetune" with weights and "online" without.

    Parameters
    ----------
    mode
        Name in `modes`, or None.
    weights
        None: none.
    modes
        Those of the model.

    Raises
    ------
    OptionError
        There is no such mode, or it and the weights do not go together.
    """
    if mode is None:
        return "online" if weights is None else "finetune"
    require("mode", mode, modes)
    if modes[mode].pretrained and weights is None:
        trained = ", which `pruner-ms train` makes from pools or databases, or weights='packaged'"
        raise OptionError(
            f"mode={mode!r} starts from pretrained weights and was given none; give "
            "weights='FILE.safetensors' (by name: pruner_ms.defaults(weights=...))"
            f"{trained if modes is MODES else ''}"
        )
    if not modes[mode].pretrained and weights is not None:
        raise OptionError(
            f"mode={mode!r} learns from scratch and has no use for weights={str(weights)!r}; "
            f"use one of {', '.join(n for n, m in modes.items() if m.pretrained)}"
        )
    return mode
