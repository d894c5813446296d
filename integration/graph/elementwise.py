"""Element-wise PrimFuncs rewritten for tensors whose axes lie in another order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pruner_ms.symbolic.tir_walk import walk
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.exprs import dtype_of
from pruner_ms.tvm_compat.paths import IndexMap, IRModule, Schedule, block_of, region_buffer


def reordered(func: Any, order: tuple[int, ...]) -> Any | None:
    """A PrimFunc of one element-wise block, for tensors with their axes in an order.

    Parameters
    ----------
    func
        Function of buffers, the result last.
    order
        Axes as they are to lie.

    Returns
    -------
    PrimFunc or None
        None: there are several blocks, or one reads elsewhere than where it writes.
    """
    return _laid_out(func, len(order), lambda *axes: [axes[i] for i in order])


def flattened(func: Any) -> Any | None:
    """As `reordered`, for tensors as matrices [pixels, channels]: all axes but the last are one."""
    *sizes, _ = relax_paths.buffer_shape((relax_paths.buffers_of(func) or [None])[-1]) or (0,)

    def matrix(*axes: Any) -> list[Any]:
        row = axes[0]
        for axis, size in zip(axes[1:-1], sizes[1:], strict=True):
            row = row * size + axis
        return [row, axes[-1]]

    return _laid_out(func, len(sizes) + 1, matrix)


def _laid_out(func: Any, rank: int, place: Callable[..., list[Any]]) -> Any | None:
    buffers = relax_paths.buffers_of(func)
    shapes = [relax_paths.buffer_shape(buffer) for buffer in buffers or ()]
    blocks = [
        b for node in walk(func.body) if hasattr(node, "block") and (b := block_of(node)).iter_vars
    ]
    if not shapes or None in shapes or len(blocks) != 1 or len(shapes[-1] or ()) != rank:
        return None
    (block,) = blocks
    store = block.body
    variables = [v.var for v in block.iter_vars]
    accesses = [node for node in walk(store) if hasattr(node, "indices")]
    sizes = [relax_paths.buffer_shape(region_buffer(node)) for node in accesses]
    for node, size in zip(accesses, sizes, strict=True):
        if math.prod(size or ()) == 1:
            continue
        same = len(node.indices) == len(variables) and all(
            index.same_as(var) for index, var in zip(node.indices, variables, strict=True)
        )
        if size != shapes[-1] or not same:
            return None
    schedule = Schedule(IRModule({"main": func.with_attr("global_symbol", "main")}))
    handle = schedule.get_sblock(block.name_hint)
    for kind, regions in (("read", block.reads), ("write", block.writes)):
        for number, region in enumerate(regions):
            if math.prod(relax_paths.buffer_shape(region_buffer(region)) or ()) > 1:
                schedule.transform_layout(handle, (kind, number), place)
    dtype = dtype_of(variables[0])
    schedule.transform_block_layout(handle, IndexMap.from_func(place, ndim=rank, index_dtype=dtype))
    return schedule.mod["main"].without_attr("global_symbol")
