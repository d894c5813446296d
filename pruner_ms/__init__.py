"""Draft-then-verify tuning for TVM MetaSchedule.

Importing this package adds the names `"pruner"`, `"pacm"`, `"persistent"`, `"pattern-aware"` to
MetaSchedule. It imports neither TVM nor torch; what needs them is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pruner_ms import errors
from pruner_ms.registry import defaults, register, unregister

if TYPE_CHECKING:
    from pruner_ms import integration, tensorcore
    from pruner_ms.config import SearchConfig
    from pruner_ms.integration.pipeline import tune
    from pruner_ms.integration.relax import apply_database, lower
    from pruner_ms.model.cost_model import PaCMModel
    from pruner_ms.search.strategy import PrunerSearch
    from pruner_ms.trials.builder import PersistentBuilder
    from pruner_ms.trials.runner import PersistentRunner
    from pruner_ms.tvm_compat.vector_math import vector_math

    __version__: str

_LAZY = {
    "PaCMModel": "pruner_ms.model.cost_model",
    "PersistentBuilder": "pruner_ms.trials.builder",
    "PersistentRunner": "pruner_ms.trials.runner",
    "PrunerSearch": "pruner_ms.search.strategy",
    "SearchConfig": "pruner_ms.config",
    "apply_database": "pruner_ms.integration.relax",
    "lower": "pruner_ms.integration.relax",
    "tune": "pruner_ms.cli.interactive",
    "vector_math": "pruner_ms.tvm_compat.vector_math",
}
_ROOMS = ("integration", "tensorcore")
"""Packages that are reached as attributes."""

__all__ = [
    "PaCMModel",
    "PersistentBuilder",
    "PersistentRunner",
    "PrunerSearch",
    "SearchConfig",
    "__version__",
    "apply_database",
    "defaults",
    "errors",
    "integration",
    "lower",
    "register",
    "tensorcore",
    "tune",
    "unregister",
    "vector_math",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    elif name in _ROOMS:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pruner-ms")
    except PackageNotFoundError:  # a source tree on PYTHONPATH
        return "0+unknown"


register()
