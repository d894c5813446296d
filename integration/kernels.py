"""A module of kernels as it is built: the tuned ones, and all others that were given."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import IRModule

log = logging.getLogger(__name__)


def complete(given: Any, tuned: Mapping[str, Any], target: Any) -> Any:
    """The functions of a module, each under its name.

    Parameters
    ----------
    given
        IRModule of PrimFuncs.
    tuned
        By name, modules of one function with its best schedule.
    target
        Of what has no schedule: on a GPU, TVM's default one. What that cannot be given is left
        out, and the log names it.
    """
    functions = {}
    for var, func in given.functions.items():
        name = str(var.name_hint)
        mod = tuned[name] if name in tuned else _as_given(name, func, target)
        if mod is not None:
            (one,) = mod.functions.values()
            functions[name] = one.with_attr("global_symbol", name)
    return IRModule(functions)


def _as_given(name: str, func: Any, target: Any) -> Any:
    """A module of a function that was not tuned; None where there can be none."""
    mod = IRModule({name: func.with_attr("global_symbol", name)})
    if func.attrs is not None and relax_paths.SCHEDULED_ATTR in func.attrs:
        return mod
    try:
        with target:
            return relax_paths.sequential(relax_paths.default_schedule(target))(mod)
    except relax_paths.CALL_ERRORS as error:
        log.warning("%s is not in the library: TVM gives it no schedule (%s)", name, error)
        return None
