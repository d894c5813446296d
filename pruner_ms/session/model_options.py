"""The user's options of the cost model's weights and mode, checked before anything is loaded."""

from __future__ import annotations

import os
from typing import Any

from pruner_ms.errors import OptionError
from pruner_ms.model.backend import require_torch
from pruner_ms.model.modes import chosen_mode
from pruner_ms.model.packaged import MODELS, NONE, PACKAGED, check_packaged, weights_named
from pruner_ms.model.weights import load_weights
from pruner_ms.registry.defaults import check_settings
from pruner_ms.registry.table import FACTORIES


def model_options(
    cost_model: Any, weights: str | os.PathLike[str] | None, mode: str | None
) -> dict[str, Any]:
    """Keyword arguments for a cost model that is given by name.

    Parameters
    ----------
    cost_model
        A name, or an object.
    weights
        A file, "packaged" or "none"; None: not given, so that `pruner_ms.defaults` applies.
    mode
        Name in `model.modes.MODES`; None: by the weights.

    Raises
    ------
    OptionError
        They do not go together.
    WeightsError
        The file does not exist, or cannot be used.
    EnvironmentFault
        torch is not installed.
    """
    if weights is None and mode is None:
        return {}
    source = weights_named(weights)
    check_settings({"cost_model": cost_model, "weights": source})
    if mode is not None:
        _check_mode(cost_model, mode)
    if cost_model not in FACTORIES["CostModel"].names:
        return {}
    check_packaged(cost_model, source)
    require_torch(f"cost_model={cost_model!r}")
    chosen_mode("moa" if cost_model == "moa-pacm" else mode, _given(cost_model, weights))
    if source not in (None, PACKAGED) and cost_model in MODELS:
        load_weights(str(source))
    options: dict[str, Any] = {} if weights is None else {"weights": source}
    return options if mode is None or cost_model == "moa-pacm" else {**options, "mode": mode}


def _given(cost_model: str, weights: str | os.PathLike[str] | None) -> object:
    """The weights that the model will use, None for none."""
    if weights is None and cost_model == "moa-pacm":
        return PACKAGED
    return None if weights == NONE else weights


def _check_mode(cost_model: Any, mode: str) -> None:
    """Raise an OptionError for a mode that a cost model does not have."""
    names = FACTORIES["CostModel"].names
    if not isinstance(cost_model, str) or cost_model not in names:
        raise OptionError(
            f"model_mode={mode!r} has no use with cost_model={cost_model!r}; "
            f"use it with {', '.join(repr(name) for name in names)}"
        )
    if cost_model == "moa-pacm" and mode != "moa":
        raise OptionError(
            f"model_mode={mode!r} and cost_model='moa-pacm' say different things; "
            "use cost_model='pacm'"
        )
