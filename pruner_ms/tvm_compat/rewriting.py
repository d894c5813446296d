"""Functions of a module that are changed in their JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pruner_ms.tvm_compat.paths import IRModule, load_own_json, save_json


def with_functions(mod: Any, functions: Mapping[Any, Any]) -> Any:
    """A module in which some functions are other ones."""
    changed = IRModule(dict(mod.functions), attrs=mod.attrs)
    for var, func in functions.items():
        changed[var] = func
    return changed


def rewritten(mod: Any, change: Callable[[str], str]) -> Any:
    """A module with its PrimFuncs changed; the module itself where none does change.

    Parameters
    ----------
    change
        Gives a function's JSON (`tvm.ir.save_json`) as it is to be.
    """
    changed = {}
    for var, func in mod.functions.items():
        if not hasattr(func, "buffer_map") and type(func).__name__ != "PrimFunc":
            continue
        text = save_json(func)
        new = change(text)
        if new != text:
            changed[var] = load_own_json(new)
    return with_functions(mod, changed) if changed else mod
