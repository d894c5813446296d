"""How the operands of a product lie in memory, seen from the loops that tiles are copied along."""

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
    """Elements from one iteration to the next of the innermost loop of a kind; None: not known.

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


def factor_strides(schedule: Any, block: Any) -> Strides | None:
    """Of a block of a schedule, once what goes before it is inlined, as other rules will do it.

    None for blocks that do not read two operands and write accumulators.
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
        # what cannot be inlined is computed apart: its result is what is read
        with suppress(ScheduleError):
            tried.compute_inline(producer)
    return strides_of(tried.get(block))


def strides_of(block: Any) -> Strides | None:
    """Of a block as it stands."""
    if len(block.reads) != 2 or len(block.writes) != 1:
        return None
    a, b, c = (_used(region, block) for region in (*block.reads, *block.writes))
    several = [v.var for v in block.iter_vars if as_int(v.dom.extent) > 1]
    reductions = [v for v in several if v in a and v in b and v not in c]
    rows = [v for v in several if v in a and v in c and v not in b]
    across = [v.var for v in block.iter_vars if v.var in b and v.var in c and v.var not in a]
    columns = [v for v in across if v in several]
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
"""Kind of the axes of several products."""

_KINDS: Mapping[tuple[bool, ...], str] = {
    (True, True, True): BATCH,
    (True, False, True): "m",
    (False, True, True): "n",
    (True, True, False): "k",
}
"""What an axis is, by whether A, B and the result have it."""


_LEFT_OUT: Mapping[str, str] = {"S": "m", "R": "k"}
"""What an axis of one element is taken for where it is left out, by its type: TVM puts axes of one
type together."""


def axes_of(block: Any, swapped: bool = False) -> str | None:
    """Kind of each iteration variable of a product: b(atch), m (rows), n (columns), k (reduction).

    None for blocks that do not read two operands and write accumulators, or have another axis.

    Parameters
    ----------
    swapped
        Whether rows are what the block's second operand shares with the result.
    """
    if len(block.reads) != 2 or len(block.writes) != 1:
        return None
    operands = tuple(block.reads)[::-1] if swapped else block.reads
    used = [_used(region, block) for region in (*operands, *block.writes)]
    found = [
        # an axis of one element may have been left out where it is added to another one
        _KINDS.get(tuple(v.var in some for some in used))
        or (_LEFT_OUT.get(iter_type_name(v), "") if as_int(v.dom.extent) == 1 else "")
        for v in block.iter_vars
    ]
    return "".join(found) if all(found) else None


def epilogue_reads(schedule: Any, block: Any) -> bool:
    """Whether what is made of a block's results, element by element, needs another buffer, too."""
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
    """Whether what follows a block has one axis where the block has several.

    Of two axes that became one TVM forgets which end of the inner one is padding, once what follows
    has become part of the copy that cuts it off (ReverseComputeInline).
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
    """Iteration variables that the place of a region hangs on, be it by a quotient of them."""
    found = set()
    for each in block.iter_vars:
        ends = (1, max(1, as_int(each.dom.extent) - 1))
        if any(step(region, each.var, block, end) != 0 for end in ends):
            found.add(each.var)
    return found


def step(region: Any, variable: Any, block: Any, value: int = 1) -> int | None:
    """Elements by which a region moves when a variable has a value; 0 is what all have else."""
    start = {v.var: 0 for v in block.iter_vars}
    shape = [as_int(size) for size in region_buffer(region).shape]
    places = []
    for values in (start, {**start, variable: value}):
        found = [number(r.min, values) for r in region.region]
        if any(index is None for index in found):
            return None
        pitches = (prod(shape[d + 1 :]) for d in range(len(shape)))
        places.append(sum(i * p for i, p in zip(found, pitches, strict=True) if i is not None))
    return places[1] - places[0]
