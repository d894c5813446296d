"""Results that only reshape what a kernel computes become views of it, not copies.

TVM copies them, so that no function returns its own argument. But nobody else holds what a kernel
has computed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pruner_ms.tvm_compat import relax_paths

relax = relax_paths.RELAX


def results_as_views(mod: Any) -> Any:
    """A module whose reshaped results take no time.

    Parameters
    ----------
    mod
        Relax module of calls of PrimFuncs, before its passes that make views of reshapes.
    """
    values = relax_paths.bound_values(mod["main"])
    readers = relax_paths.readers_of(values)

    def reshaped(var: Any) -> Any | None:
        """What a variable is another shape of; None: it is computed."""
        value = values.get(var)
        arguments = relax_paths.tir_arguments(value) if relax_paths.is_tir_call(value) else []
        if len(arguments) != 1 or not relax_paths.only_reshapes(mod[relax_paths.callee(value)]):
            return None
        return arguments[0]

    def is_copy(var: Any) -> bool:
        given = None if isinstance(var, relax.DataflowVar) else reshaped(var)
        own = isinstance(given, relax.DataflowVar) and readers[given] == 1
        return own and relax_paths.is_tir_call(values[given]) and reshaped(given) is None

    def view(var: Any, mutator: Any) -> Any:
        return mutator.builder_.emit(mutator.visit_expr(values[var]))

    copies = {var: partial(view, var) for var in values if is_copy(var)}
    return relax_paths.rebound(mod, copies, tidy=False)
