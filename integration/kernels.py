"""A module of kernels as it is built: the tuned ones, and all others that were given."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pruner_ms.errors import last_line
from pruner_ms.integration.relax import build_scheduled
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import IRModule

log = logging.getLogger(__name__)


def compiled(
    given: Any, tuned: Mapping[str, Any], target: Any, note: Callable[[str], object]
) -> Any:
    """The functions of a module, each under its name, in one library.

    Parameters
    ----------
    given
        IRModule of PrimFuncs.
    tuned
        By name, modules of one function with its best schedule.
    target
        Of what has no schedule: on a GPU, TVM's default one.
    note
        Told of what is left out, since TVM does not compile it without a schedule.

    Raises
    ------
    Exception
        Of any class: TVM does not compile a tuned function, or none at all.
    """
    functions: dict[Any, Any] = {}
    for var, func in given.functions.items():
        name = str(var.name_hint)
        try:
            mod = tuned[name] if name in tuned else _as_given(name, func, target)
            (one,) = mod.functions.values()
            # under its own variable: others may call it
            functions[var] = one.with_attr("global_symbol", name)
        except Exception as error:  # TVM raises whatever it raises for what it cannot schedule
            note(_left_out(name, error))
    try:
        return build_scheduled(IRModule(functions), target)
    except Exception:  # of any class; one function is enough to cause it: find out which
        if len(functions) < 2:
            raise
        log.info("the kernels are compiled one by one", exc_info=True)
    for var, func in list(functions.items()):
        name = str(var.name_hint)
        try:
            build_scheduled(IRModule({var: func}), target)
        except Exception as error:
            if name in tuned or len(functions) == 1:
                raise
            note(_left_out(name, error))
            del functions[var]
    return build_scheduled(IRModule(functions), target)


def _left_out(name: str, error: Exception) -> str:
    log.warning("%s is left out", name, exc_info=error)
    return f"{name} is not in the library: TVM does not compile it ({last_line(error)})"


def _as_given(name: str, func: Any, target: Any) -> Any:
    """A module of a function that was not tuned."""
    mod = IRModule({name: func.with_attr("global_symbol", name)})
    if func.attrs is not None and relax_paths.SCHEDULED_ATTR in func.attrs:
        return mod
    with target:
        return relax_paths.sequential(relax_paths.default_schedule(target))(mod)
