"""Checkpoints: the state of a verifier between the runs of a session.

A checkpoint is a weights file with the state of the network, that of the momentum's source, and the
bookkeeping. Records are not in it: the search passes those of the database again, and they are not
trained on a second time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pruner_ms.errors import WeightsError
from pruner_ms.model.moa import fill, tensors_of
from pruner_ms.model.verifier import Verifier
from pruner_ms.model.weights import Tensors, Weights, check_fit, load_weights, save_weights

NET, SOURCE = "net.", "source."
_SUFFIX = " checkpoint"


def save_checkpoint(verifier: Verifier, path: str | os.PathLike[str]) -> None:
    """Write a verifier's state; an interrupted call leaves the old file.

    Raises
    ------
    WeightsError
        It cannot be written.
    """
    tensors = _prefixed(NET, verifier.tensors())
    if verifier.source is not None:
        tensors |= _prefixed(SOURCE, tensors_of(verifier.source.state))
    card: dict[str, object] = {
        **_identity(verifier),
        "started_at": verifier.trained.started_at,
        "share": verifier.trained.share,
        "learned": verifier.learned,
    }
    save_weights(path, Weights(verifier.arch + _SUFFIX, tensors, card))


def resume(verifier: Verifier, path: str | os.PathLike[str]) -> str | None:
    """Load a checkpoint into a verifier that has learned nothing yet.

    Returns
    -------
    None if it was loaded or there is none; else one sentence why the model starts anew.
    """
    try:
        if not Path(path).exists():
            return None
        _take(verifier, load_weights(path), path)
    except (WeightsError, OSError) as error:
        return f"the cost model starts anew: {error}"
    return None


def _take(verifier: Verifier, weights: Weights, path: str | os.PathLike[str]) -> None:
    wanted = _identity(verifier)
    if weights.arch != verifier.arch + _SUFFIX:
        raise WeightsError(f"{path} is of {weights.arch!r}, not of {verifier.arch + _SUFFIX!r}")
    for name, value in wanted.items():
        if weights.card.get(name) != value:
            raise WeightsError(f"{path} was made with another {name.replace('_', ' ')}")
    started, learned, share = _bookkeeping(weights.card, path)
    net = {n.removeprefix(NET): x for n, x in weights.tensors.items() if n.startswith(NET)}
    source = {n.removeprefix(SOURCE): x for n, x in weights.tensors.items() if n.startswith(SOURCE)}
    state = verifier.trained.net.state_dict()
    shapes = {name: tuple(x.shape) for name, x in state.items()}
    if verifier.source is not None:
        check_fit(path, source, shapes)
    fill(verifier.trained.net, net, path)
    if verifier.source is not None:
        device_state = verifier.source.state
        verifier.source.state = {
            name: torch.from_numpy(x.copy()).to(device_state[name]) for name, x in source.items()
        }
    verifier.trained.started_at, verifier.trained.share = started, share
    verifier.learned = learned


def _identity(verifier: Verifier) -> dict[str, object]:
    """Settings that must be equal for a checkpoint to be used, as JSON values."""
    card = json.dumps(dict(verifier.card), sort_keys=True, default=str)
    return {
        "mode": [verifier.mode.pretrained, verifier.mode.learns, verifier.mode.momentum],
        "recipe": verifier.recipe.facts(),
        "weights": hashlib.sha256(card.encode()).hexdigest() if verifier.pretrained else None,
    }


def _bookkeeping(
    card: Mapping[str, Any], path: str | os.PathLike[str]
) -> tuple[int, int, dict[str, float]]:
    """Records at the last restart, records learned in all, and the shares of the correction."""
    counts = [card.get(name) for name in ("started_at", "learned")]
    share = card.get("share")
    good = isinstance(share, dict) and all(_is_share(value) for value in share.values())
    if not good or not all(isinstance(n, int) and n >= 0 for n in counts):
        raise WeightsError(f"{path} is damaged: its card has no sensible counts and shares")
    return int(counts[0] or 0), int(counts[1] or 0), {k: float(v) for k, v in (share or {}).items()}


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _prefixed(prefix: str, tensors: Tensors) -> Tensors:
    return {prefix + name: x for name, x in tensors.items()}
