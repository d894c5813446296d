"""Grouped convolutions: a product of each group, and so a batch of products.

The channels of their result are one axis, of which the input knows the group, a quotient, alone: it
is neither an axis of a batch nor one of columns. Cut in two, group and channel in it, it is both.
"""

from __future__ import annotations

from typing import Any

from pruner_ms.tensorcore.strides import step
from pruner_ms.tvm_compat.paths import IndexMap, as_int, iter_type_name
from pruner_ms.tvm_compat.schedules import index_dtype


def by_groups(schedule: Any, block: Any) -> Any | None:
    """A copy of a schedule in which a block's channels are cut by groups; None if it has none."""
    node = schedule.get(block)
    found = _axis(node)
    if found is None:
        return None
    place, size = found

    def cut(*indices: Any) -> list[Any]:
        channel = indices[place]
        parts = [channel // size, channel % size]
        return [*indices[:place], *parts, *indices[place + 1 :]]

    count = len(node.iter_vars)
    layout = IndexMap.from_func(cut, ndim=count, index_dtype=index_dtype(node))
    grouped = schedule.copy()
    grouped.transform_block_layout(block, layout)
    return grouped


def _axis(block: Any) -> tuple[int, int] | None:
    """Place of the variable of which a factor takes a quotient, and the divisor."""
    if len(block.reads) != 2:
        return None
    for place, each in enumerate(block.iter_vars):
        extent = as_int(each.dom.extent)
        if iter_type_name(each) != "S" or extent == 1:
            continue
        for region in block.reads:
            if step(region, each.var, block) != 0:
                continue
            sizes = (n for n in range(2, extent) if extent % n == 0)
            size = next((n for n in sizes if step(region, each.var, block, n)), None)
            if size is not None:
                return place, size
    return None
