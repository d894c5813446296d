"""What one statement of a scheduled function computes: operations, reads, writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from pruner_ms.symbolic.ops import LOADS, Body, children, read_body
from pruner_ms.tvm_compat.paths import as_int, region_buffer

_COMBINE = {"Add": "add", "Sub": "add", "Mul": "mul", "Max": "cmp", "Min": "cmp", "Select": "cmp"}
_REDUCE = "reduce_scope"


def regions_of(block: Any, reduction: bool) -> list[tuple[bool, Any]]:
    """Reads, then writes (True) of a block.

    The update of a reduction loads what it stores, even where the block does not list it.
    """
    reads, writes = list(block.reads), list(block.writes)
    if reduction and _allreduce(block.body) is None:
        listed = [region_buffer(read) for read in reads]
        own = [w for w in writes if not any(region_buffer(w).same_as(b) for b in listed)]
        reads = own + reads
    return [*((False, region) for region in reads), *((True, region) for region in writes)]


def body_of(block: Any, tensorized: bool) -> Body:
    """Operations of one iteration of a block.

    Of an intrinsic they follow from the sizes of its regions: m*k, k*n and m*n elements are
    multiplied and added m*n*k times.
    """
    reducer = _allreduce(block.body)
    if reducer is not None:
        return _combining(*reducer)
    if not tensorized:
        return read_body(block.body)
    written = [region_buffer(region) for region in block.writes]
    reads = [r for r in block.reads if not any(region_buffer(r).same_as(b) for b in written)]
    if len(reads) == 1:
        return Body(copies=True)
    if len(reads) < 2 or not written:
        return Body(copies=False)
    sizes = [_size(reads[0]), _size(reads[1]), _size(block.writes[0])]
    products = round(prod(sizes) ** 0.5)
    return Body({"add": products, "mul": products}, {}, False)


def steps_of(block: Any) -> int:
    """Instructions that an intrinsic's body is; 1 where it is none that is called."""
    body = block.body
    parts = body.seq if type(body).__name__ == "SeqStmt" else [body]
    return max(1, sum(type(part).__name__ == "Evaluate" for part in parts))


def _allreduce(stmt: Any) -> tuple[Any, Any] | None:
    """Reducer and call of a reduction over threads, if a block's body is one."""
    if type(stmt).__name__ != "AttrStmt" or not str(stmt.attr_key).endswith(_REDUCE):
        return None
    return stmt.node, stmt.body.value


def combines(block: Any) -> bool:
    """Whether a block reduces over threads."""
    return _allreduce(block.body) is not None


def _combining(reducer: Any, call: Any) -> Body:
    """One combination of two values, and what the values are computed from."""
    body = Body(copies=False)
    for result in reducer.result:
        for node in _nodes(result):
            body.count(_COMBINE.get(type(node).__name__, ""))
    count = as_int(call.args[0])
    for source in call.args[1 : 1 + count]:
        for node in _nodes(source):
            name = type(node).__name__
            if name in LOADS:
                key = str(region_buffer(node).name)
                body.loads[key] = body.loads.get(key, 0) + 1
            else:
                body.count(_COMBINE.get(name, ""))
    return body


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in children(node):
        yield from _nodes(child)


def _size(region: Any) -> int:
    return prod(as_int(r.extent) for r in region.region)


def written_elsewhere(buffer: Any, own: Sequence[Any], everything: Sequence[Sequence[Any]]) -> bool:
    """Whether another statement than the one with these regions writes a buffer."""
    return any(
        write and region_buffer(region).same_as(buffer)
        for regions in everything
        if regions is not own
        for write, region in regions
    )
