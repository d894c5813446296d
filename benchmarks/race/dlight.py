"""DLight's line: a schedule by TVM's own rules, without a trial."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

DLIGHT = "dlight"

RULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "llvm": ("GEMV", "Reduction"),
        "cuda": ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Transpose", "Fallback"),
    }
)
"""Names of the rules by kind of target, in the order in which TVM's default pipelines try them."""


def scheduled(mod: Any, target: Any) -> Any | None:
    """The module as DLight schedules it; None where no rule fits or this TVM has no DLight.

    Parameters
    ----------
    mod
        Module of one PrimFunc without a schedule; it stays as it is.
    target
        A TVM `Target`.
    """
    from pruner_ms.tvm_compat.relax_paths import SCHEDULED_ATTR

    try:
        from tvm.s_tir import dlight
    except ImportError:
        return None
    kind = str(target.kind.name)
    home = getattr(dlight, "cpu" if kind == "llvm" else "gpu", None)
    rules = [getattr(home, name)() for name in RULES.get(kind, ()) if hasattr(home, name)]
    with target:
        scheduled_mod = dlight.ApplyDefaultSchedule(*rules)(mod)
    (func,) = scheduled_mod.functions.values()
    return scheduled_mod if func.attrs is not None and SCHEDULED_ATTR in func.attrs else None
