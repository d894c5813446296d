"""Constant operands in the layout in which their kernel goes through them.

A PrimFunc with the attribute `layout_free_buffers` may have those arguments in any layout: TVM's
postprocessor RewriteLayout chooses it by the schedule, builders measure the kernel without the
copy, and before a network is compiled its constants are copied once, by numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.symbolic.tir_walk import walk
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.exprs import number
from pruner_ms.tvm_compat.paths import LAYOUT_FREE, block_of
from pruner_ms.tvm_compat.rewriting import with_functions


def marked(mod: Any) -> Any:
    """A lowered module whose PrimFuncs say which of their arguments are constants in every call.

    Vectors and scalars are left out: they have one layout only.

    Parameters
    ----------
    mod
        Relax module of calls of PrimFuncs.
    """
    places: dict[Any, set[int]] = {}
    for call in relax_paths.tir_calls(mod["main"]):
        free = {i for i, arg in enumerate(relax_paths.tir_arguments(call)) if _is_matrix(arg)}
        var = relax_paths.callee(call)
        places[var] = places.get(var, free) & free
    updates = {
        var: mod[var].with_attr(LAYOUT_FREE, sorted(free)) for var, free in places.items() if free
    }
    return with_functions(mod, updates)


def _is_matrix(arg: Any) -> bool:
    shape = relax_paths.constant_shape(arg)
    return shape is not None and sum(size > 1 for size in shape) > 1


def packed(mod: Any) -> Any:
    """A scheduled module whose constants have the layouts that its kernels read.

    Parameters
    ----------
    mod
        Relax module whose PrimFuncs have their schedules; copies into another layout are blocks
        of them.
    """
    mod = relax_paths.split_layout_rewrite()(mod)
    arrays: dict[tuple[Any, Any], Any] = {}

    def constant(call: Any, _builder: Any) -> Any | None:
        if not relax_paths.is_tir_call(call):
            return None
        var, arguments = relax_paths.callee(call), relax_paths.tir_arguments(call)
        if not str(var.name_hint).endswith(relax_paths.PREPACK):
            return None
        (source,) = arguments
        if relax_paths.constant_shape(source) is None:
            return None
        key = (source, var)
        if key not in arrays:
            array = relaid(mod[var], relax_paths.constant_array(source))
            arrays[key] = relax_paths.constant(array)
        return arrays[key]

    return relax_paths.replace_calls(mod, constant)


def relaid(func: Any, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What a PrimFunc that copies its argument into another layout makes of an array.

    Parameters
    ----------
    func
        One block that stores each element of the first buffer somewhere in the second.
    array
        Of the first buffer's shape.
    """
    block, store = next(_copies(func))
    grid = np.ogrid[tuple(slice(int(v.dom.extent.value)) for v in block.iter_vars)]
    values: Any = {v.var: axis for v, axis in zip(block.iter_vars, grid, strict=True)}
    target = (relax_paths.buffers_of(func) or [None])[-1]
    place = tuple(number(index, values) for index in store.indices)
    taken = tuple(number(index, values) for index in store.value.indices)
    result = np.zeros(relax_paths.buffer_shape(target) or (), array.dtype)
    result[place] = array[taken]
    return result


def _copies(func: Any) -> Iterator[tuple[Any, Any]]:
    for node in walk(func.body):
        if hasattr(node, "block") and block_of(node).iter_vars:
            yield block_of(node), block_of(node).body
