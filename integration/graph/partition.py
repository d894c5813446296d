"""Functions that copy the parts of a concatenation: a loop for each part, without a search.

TVM writes a concatenation as a chain of conditions on the index, and fuses what follows into it.
MetaSchedule splits and vectorises the loop as if there were no conditions, so that each element
evaluates all of them. For 256 channels in six parts at 56x56 pixels, multiplied and added to, the
best of its candidates took 1,300 us; one loop for each part, without conditions, took 94 us.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from pruner_ms.symbolic.tir_walk import walk
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.exprs import is_variable
from pruner_ms.tvm_compat.paths import IRModule, Schedule, iter_type_name
from pruner_ms.tvm_compat.rewriting import with_functions

_BOUNDS: Mapping[str, Callable[[bool], int]] = MappingProxyType(
    {"LT": int, "GE": int, "LE": lambda left: 1 - left, "GT": lambda left: 1 - left}
)
"""For each comparison of an index with a number: what is added to the number to get the index at
which the result changes, given whether the number is on the left."""

_ON_ONE_CORE = 1 << 15
"""Elements that one core copies before another one has begun (4 us)."""


def partitioned(mod: Any) -> Any:
    """A lowered module in which functions that copy parts have a schedule: a loop for each part.

    Parameters
    ----------
    mod
        Relax module of calls of PrimFuncs, fused. A function stays for the search where it adds
        up, has several results or an open shape, or where the parts lie on the only axis that cores
        could share.
    """
    functions = {
        var: other
        for var, func in mod.functions.items()
        if isinstance(func, relax_paths.PrimFunc)
        and relax_paths.SCHEDULED_ATTR not in (func.attrs or ())
        and (other := _partitioned(func)) is not None
    }
    return with_functions(mod, functions) if functions else mod


def _partitioned(func: Any) -> Any | None:
    shapes = [relax_paths.buffer_shape(buffer) for buffer in relax_paths.buffers_of(func) or [None]]
    if None in shapes or not any(_is_condition(node) for node in walk(func.body)):
        return None
    schedule = Schedule(IRModule({"main": func.with_attr("global_symbol", "main")}))
    try:
        *before, last = schedule.get_child_blocks(schedule.get_sblock("root"))
        for block in before:
            schedule.compute_inline(block)
    except relax_paths.CALL_ERRORS:  # it adds up, is a result itself, or has no blocks
        return None
    bounds, loops = _bounds(schedule.get(last)), schedule.get_loops(last)
    extents = [int(schedule.get(loop).extent) for loop in loops]
    parallel = math.prod(extents) >= _ON_ONE_CORE
    if bounds is None or (parallel and math.prod(extents[: bounds[0]]) == 1):
        return None
    axis, starts = bounds
    outer = schedule.fuse(*loops[:axis]) if axis else None
    sizes = [end - start for start, end in pairwise([0, *starts])]
    schedule.loop_partition(loops[axis], [*sizes, None])
    if parallel:
        schedule.parallel(outer)
    made = schedule.mod["main"].with_attr(relax_paths.SCHEDULED_ATTR, 1)
    return made.without_attr("global_symbol")


def _is_condition(node: Any) -> bool:
    return str(getattr(getattr(node, "op", None), "name", "")).endswith(".if_then_else")


def _bounds(block: Any) -> tuple[int, list[int]] | None:
    """The axis whose parts are computed differently, and where each part after the first begins.

    None: there are such parts on several axes or on none, or there are sums.
    """
    places = {one.var: i for i, one in enumerate(block.iter_vars)}
    if any(iter_type_name(one) != "S" for one in block.iter_vars):
        return None
    starts: dict[int, set[int]] = {}
    for node in walk(block.body):
        condition: Any = node.args[0] if _is_condition(node) else None
        kind = type(condition).__name__
        if kind not in _BOUNDS:
            continue
        left = is_variable(condition.b)
        number, var = (condition.a, condition.b) if left else (condition.b, condition.a)
        if type(number).__name__ == "IntImm" and var in places:
            starts.setdefault(places[var], set()).add(int(number.value) + _BOUNDS[kind](left))
    if len(starts) != 1:
        return None
    ((axis, every),) = starts.items()
    inside = sorted(start for start in every if 0 < start < int(block.iter_vars[axis].dom.extent))
    return (axis, inside) if inside else None
