"""What a model does with pretrained weights and with what is measured."""

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
        Whether it learns from what is measured.
    momentum
        Whether a source model beside it follows by momentum.
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
"""What `mode=` takes: from scratch; from a source that follows; frozen; going on from weights."""


def chosen_mode(mode: str | None, weights: object) -> str:
    """The mode; where none is named, "finetune" with weights and "online" without.

    Raises
    ------
    OptionError
        There is no such mode, or it and the weights do not go together.
    """
    if mode is None:
        return "online" if weights is None else "finetune"
    require("mode", mode, MODES)
    if MODES[mode].pretrained and weights is None:
        raise OptionError(
            f"mode={mode!r} starts from pretrained weights and was given none; give "
            "weights='FILE.safetensors' (by name: pruner_ms.defaults(weights=...)), which "
            "`pruner-ms train` makes from pools or databases, or weights='packaged'"
        )
    if not MODES[mode].pretrained and weights is not None:
        raise OptionError(
            f"mode={mode!r} learns from scratch and has no use for weights={str(weights)!r}; "
            f"use one of {', '.join(n for n, m in MODES.items() if m.pretrained)}"
        )
    return mode
