"""Constant operands in the layout in which their kernel goes through them.

A PrimFunc with the attribute `layout_free_buffers` may have those arguments in any layout: TVM's
postprocessor RewriteLayout chooses it by the schedule, builders measure the kernel without the
copy, and before a network is compiled its constants are copied once, by numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.symbolic.ops import LOADS
from pruner_ms.symbolic.tir_walk import walk
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.exprs import number, same_place
from pruner_ms.tvm_compat.paths import LAYOUT_FREE, block_of, region_buffer
from pruner_ms.tvm_compat.rewriting import with_functions


def marked(mod: Any) -> Any:
    """A lowered module whose PrimFuncs say which of their arguments are constants in every call.

    Vectors and scalars are left out: they have one layout only. So are arguments that a function
    first copies to other places, as a transposed convolution does with its filters.

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
    updates = {}
    for var, constants in places.items():
        buffers = relax_paths.buffers_of(mod[var]) or []
        still = [i for i in sorted(constants) if not _is_moved(mod[var], buffers[i])]
        if still:
            updates[var] = mod[var].with_attr(LAYOUT_FREE, still)
    return with_functions(mod, updates)


def _is_matrix(arg: Any) -> bool:
    shape = relax_paths.constant_shape(arg)
    return shape is not None and sum(size > 1 for size in shape) > 1


def _is_moved(func: Any, buffer: Any) -> bool:
    """Whether blocks that read nothing else write a buffer's elements to other places.

    TVM takes any such block without an `init` for a `cache_read`, and takes the layout of the
    block's result for a layout of the buffer (`GetCacheReadChain` in rewrite_layout.cc): what the
    function computes is then wrong.
    """
    for block, store in _copies(func):
        if block.init is not None or [*map(region_buffer, block.reads)] != [buffer]:
            continue
        loads = [node for node in walk(store) if type(node).__name__ in LOADS]
        if not all(same_place(load, store) for load in loads):
            return True
        buffer = store.buffer
    return False


def packed(mod: Any) -> Any:
    """A scheduled module whose constants have the layouts that its kernels read.

    Parameters
    ----------
    mod
        Relax module whose PrimFuncs have their schedules; copies into another layout are blocks
        of them.
    """
    mod = relax_paths.split_layout_rewrite()(mod)
    arrays: dict[tuple[Any, ...], Any] = {}

    def constant(call: Any, _builder: Any) -> Any | None:
        if not relax_paths.is_tir_call(call):
            return None
        var, arguments = relax_paths.callee(call), relax_paths.tir_arguments(call)
        if not str(var.name_hint).endswith(relax_paths.PREPACK):
            return None
        if any(relax_paths.constant_shape(source) is None for source in arguments):
            return None
        key = (*arguments, var)
        if key not in arrays:
            results = relaid(mod[var], list(map(relax_paths.constant_array, arguments)))
            packs = list(map(relax_paths.constant, results))
            arrays[key] = packs[0] if len(packs) == 1 else relax_paths.RELAX.Tuple(packs)
        return arrays[key]

    return relax_paths.replace_calls(mod, constant)


def relaid(func: Any, arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """What a PrimFunc that copies its arguments into other layouts makes of arrays.

    Parameters
    ----------
    func
        Blocks that each store all elements of one of the first buffers somewhere in one of the
        last.
    arrays
        Of the first buffers' shapes.
    """
    buffers = relax_paths.buffers_of(func) or []
    held = dict(zip(buffers, arrays, strict=False))
    for block, store in _copies(func):
        grid = np.ogrid[tuple(slice(int(v.dom.extent.value)) for v in block.iter_vars)]
        values: Any = {v.var: axis for v, axis in zip(block.iter_vars, grid, strict=True)}
        place = tuple(number(index, values) for index in store.indices)
        taken = tuple(number(index, values) for index in store.value.indices)
        source = held[region_buffer(store.value)]
        result = np.zeros(relax_paths.buffer_shape(store.buffer) or (), source.dtype)
        result[place] = source[taken]
        held[store.buffer] = result
    return [held[buffer] for buffer in buffers[len(arrays) :]]


def _copies(func: Any) -> Iterator[tuple[Any, Any]]:
    for node in walk(func.body):
        if hasattr(node, "block") and block_of(node).iter_vars:
            yield block_of(node), block_of(node).body
