"""Defaults of MetaSchedule's tuning functions, for code that names nothing.

The keyword defaults are changed on the function objects, so that every alias and every
`from ... import tune_tir` sees them, and what a caller writes wins.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from pruner_ms.errors import OptionError
from pruner_ms.registry.calls import SCALE, check_scale
from pruner_ms.registry.patches import Patches
from pruner_ms.registry.table import FACTORIES

FUNCTIONS = (
    ("tune", "tune_tasks"),
    ("tir_integration", "tune_tir"),
    ("relax_integration", "tune_relax"),
    ("relax_integration", "extracted_tasks_to_tune_contexts"),
    ("relay_integration", "tune_relay"),
    ("relay_integration", "extracted_tasks_to_tune_contexts"),
)
"""Submodule and function; those that a TVM lacks are passed over."""


def functions(ms: ModuleType) -> list[Callable[..., Any]]:
    """The tuning functions that this MetaSchedule has."""
    candidates = (
        getattr(sys.modules.get(f"{ms.__name__}.{module}"), name, None)
        for module, name in FUNCTIONS
    )
    return [f for f in candidates if f is not None]


def apply_defaults(ms: ModuleType, patches: Patches, settings: Mapping[str, Any]) -> None:
    """Set the defaults of every tuning function; the stock ones where `settings` has none.

    Parameters
    ----------
    ms
        The `meta_schedule` package.
    patches
        Holds this module's patches and no others: they are undone first.
    settings
        Keyword to value, `strategy`, `cost_model`, `builder`, `runner`; others are ignored.
    """
    patches.undo()
    for function in functions(ms):
        keyword = dict(function.__kwdefaults__ or {})
        ours = {k: v for k, v in settings.items() if k in keyword}
        if ours:
            patches.replace(function, "__kwdefaults__", keyword | ours)
        with_default = [
            p
            for p in inspect.signature(function).parameters.values()
            if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is not p.empty
        ]
        if any(p.name in settings for p in with_default):
            values = tuple(settings.get(p.name, p.default) for p in with_default)
            patches.replace(function, "__defaults__", values)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse a combination that can only be a mistake.

    Raises
    ------
    OptionError
        `weights` beside a cost model that is not one of our names; a `trials_scale` that is no
        positive number.
    """
    if settings.get(SCALE) is not None:
        check_scale(settings[SCALE])
    model = settings.get("cost_model")
    ours = FACTORIES["CostModel"].names
    if settings.get("weights") is None or model is None:
        return
    if not isinstance(model, str):
        raise OptionError(
            f"weights={settings['weights']!r} comes too late for a cost model that is made "
            "already; pass it to its constructor"
        )
    if model not in ours:
        raise OptionError(
            f"weights={settings['weights']!r} has no use with cost_model={model!r}; "
            f"use it with {', '.join(repr(name) for name in ours)}"
        )
