"""Strides of the operands of a product along the loops over which tiles are copied."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

from pruner_ms.tvm_compat.exprs import has_quotient, is_variable, number
from pruner_ms.tvm_compat.paths import ScheduleError, as_int, iter_type_name, region_buffer


@dataclass(frozen=True)
class Strides:
    """Elements between iterations of the innermost loop of a kind; None where unknown.

    Attributes
    ----------
    a_by_k, b_by_k
        Of A and of B, along k.
    a_by_rows, c_by_rows
        Of A and of the result, along its rows.
    b_by_columns, c_by_columns
        Of B and of the result, along its columns.
    """

    a_by_k: int | None
    b_by_k: int | None
    a_by_rows: int | None
    b_by_columns: int | None
    c_by_rows: int | None
    c_by_columns: int | None


def operand_strides(schedule: Any, block: Any) -> Strides | None:
    """Strides of a block after its producers are inlined, as other rules will do.

    None for blocks that are not a reduction of two operands.
    """
    tried = schedule.copy()
    before: dict[str, Any] = {}
    waiting = list(tried.get_producers(block))
    while waiting:
        producer = waiting.pop()
        name = str(tried.get(producer).name_hint)
        if name not in before:
            before[name] = producer
            waiting += tried.get_producers(producer)
    for producer in before.values():
        # a producer that cannot be inlined is a kernel of its own, whose result is read
        with suppress(ScheduleError):
            tried.compute_inline(producer)
    return strides_of(tried.get(block))


def strides_of(block: Any) -> Strides | None:
    """Strides of a block as it is."""
    if len(block.reads) != 2 or len(block.writes) != 1:
        return None
    a, b, c = (_used(region, block) for region in (*block.reads, *block.writes))
    long_axes = [v.var for v in block.iter_vars if as_int(v.dom.extent) > 1]
    reductions = [v for v in long_axes if v in a and v in b and v not in c]
    rows = [v for v in long_axes if v in a and v in c and v not in b]
    across = [v.var for v in block.iter_vars if v.var in b and v.var in c and v.var not in a]
    columns = [v for v in across if v in long_axes]
    if not reductions or not across or not (rows or columns):
        return None
    (first, second), (result,) = block.reads, block.writes
    places = {
        "a_by_k": (first, reductions),
        "b_by_k": (second, reductions),
        "a_by_rows": (first, rows),
        "b_by_columns": (second, columns),
        "c_by_rows": (result, rows),
        "c_by_columns": (result, columns),
    }
    steps = {n: step(region, of[-1], block) if of else None for n, (region, of) in places.items()}
    return Strides(**steps)


BATCH = "b"
"""Kind of the axes of a batch of products."""

_KINDS: Mapping[tuple[bool, ...], str] = {
    (True, True, True): BATCH,
    (True, False, True): "m",
    (False, True, True): "n",
    (True, True, False): "k",
}
"""Kind of an axis, by whether A, B and the result are indexed by it."""


_LEFT_OUT: Mapping[str, str] = {"S": "m", "R": "k"}
"""Kind of an axis of one element that no index contains, by its type: TVM groups axes by type."""


def axes_of(block: Any, swapped: bool = False) -> str | None:
    """Kind of each iteration variable of a product: b(atch), m (rows), n (columns), k (reduction).

    None for blocks that are not a reduction of two operands, or have another axis.

    Parameters
    ----------
    swapped
        Whether rows are the axes that the block's second operand shares with the result.
    """
    if len(block.reads) != 2 or len(block.writes) != 1:
        return None
    operands = tuple(block.reads)[::-1] if swapped else block.reads
    used = [_used(region, block) for region in (*operands, *block.writes)]
    kinds = [
        # TVM drops an axis of one element from a sum of indices
        _KINDS.get(tuple(v.var in variables for variables in used))
        or (_LEFT_OUT.get(iter_type_name(v), "") if as_int(v.dom.extent) == 1 else "")
        for v in block.iter_vars
    ]
    return "".join(kinds) if all(kinds) else None


def epilogue_reads(schedule: Any, block: Any) -> bool:
    """Whether the elementwise consumers of a block read another buffer."""
    while True:
        consumers = schedule.get_consumers(block)
        if len(consumers) != 1:
            return False
        block = consumers[0]
        node = schedule.get(block)
        if any(iter_type_name(v) == "R" for v in node.iter_vars):
            return False
        if len(node.reads) > 1:
            return True


def joins_axes(schedule: Any, block: Any) -> bool:
    """Whether a consumer has one axis where the block has several.

    Once such a consumer is inlined into the copy that cuts padding off, TVM loses the padded end
    of the inner one of two fused axes (ReverseComputeInline).
    """
    waiting = list(schedule.get_consumers(block))
    if not waiting:
        return False
    if any(not is_variable(r.min) for r in schedule.get(block).writes[0].region):
        return True
    while waiting:
        block = waiting.pop()
        if any(has_quotient(r.min) for read in schedule.get(block).reads for r in read.region):
            return True
        waiting += schedule.get_consumers(block)
    return False


def _used(region: Any, block: Any) -> set[Any]:
    """Iteration variables on which the position of a region depends, also by a quotient of them."""
    variables = set()
    for each in block.iter_vars:
        ends = (1, max(1, as_int(each.dom.extent) - 1))
        if any(step(region, each.var, block, end) != 0 for end in ends):
            variables.add(each.var)
    return variables


def step(region: Any, variable: Any, block: Any, value: int = 1) -> int | None:
    """Elements by which a region moves when a variable goes from 0 to a value, the others being 0.

    None where an index is not a number then.
    """
    start = {v.var: 0 for v in block.iter_vars}
    shape = [as_int(size) for size in region_buffer(region).shape]
    places = []
    for values in (start, {**start, variable: value}):
        indices = [number(r.min, values) for r in region.region]
        if any(index is None for index in indices):
            return None
        pitches = (prod(shape[d + 1 :]) for d in range(len(shape)))
        places.append(sum(i * p for i, p in zip(indices, pitches, strict=True) if i is not None))
    return places[1] - places[0]
