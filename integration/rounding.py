"""Why outputs of right programs differ: units that cut sums off, and numbers rounded to integers.

Both are read off functions that have no schedule yet. What follows from them is in `trials.checks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pruner_ms.integration.relax import TaskInfo
from pruner_ms.symbolic.ops import LOADS, children
from pruner_ms.tensorcore.intrinsics import instructions_for
from pruner_ms.trials.checks import Rounded, coarsest
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.exprs import dtype_of
from pruner_ms.tvm_compat.paths import (
    Schedule,
    block_of,
    iter_type_name,
    prim_func,
    region_buffer,
)
from pruner_ms.tvm_compat.targets import attrs_of

_TO_INTEGERS = frozenset({"round", "nearbyint", "floor", "ceil", "trunc"})
"""Operators whose result jumps, without the name of their dialect."""

_BELOW = ("init", "body", "then_case", "else_case")
"""Where a statement holds others."""


@dataclass(frozen=True)
class Rounding:
    """What two right programs of one network may differ by, beyond the order of their sums.

    Attributes
    ----------
    truncation
        Share of the outputs' size that TensorCores may cut off, see `truncation`.
    steps
        How often numbers are rounded to integers on the way; 0: never.
    """

    truncation: float = 0.0
    steps: int = 0


STRICT = Rounding()


def network_rounding(
    tasks: Sequence[TaskInfo], lowered: Any, target: Any, allow_tf32: bool = False
) -> Rounding:
    """What two right programs of a network may differ by.

    Parameters
    ----------
    tasks
        Those of the network.
    lowered
        The fused Relax module, with the functions that are no tasks.
    target, allow_tf32
        See `truncation`.
    """
    cut = sum(task.weight * truncation(task.mod, target, allow_tf32) for task in tasks)
    # what rounds may lie behind a tuned function without being tuned itself; its calls are not
    # counted, but the count matters little (`checks.norm_limit`)
    functions = [f for f in lowered.functions.values() if isinstance(f, relax_paths.PrimFunc)]
    found = sum(rounds(func) for func in functions)
    calls = sum(task.weight for task in tasks if rounds(prim_func(task.mod)))
    return Rounding(cut, max(found, calls))


def reduction_length(mod: Any) -> int:
    """Terms that are summed into one output element of a module: the sum over its blocks."""
    schedule = Schedule(mod)
    total = 1
    for block in relax_paths.top_blocks(schedule):
        reduced = [v.dom.extent for v in block.iter_vars if iter_type_name(v) == "R"]
        total += math.prod(int(extent) for extent in reduced) - 1
    return total


def truncation(mod: Any, target: Any, allow_tf32: bool = False) -> float:
    """Share of the size of float32 outputs that a target's TensorCores may cut off; 0 without any.

    It is what the instructions for a function's operands say of themselves
    (`Instruction.tolerance`). Which of the two programs uses them is not asked: TVM's default
    schedules, which the reference has on a GPU, do, too.

    Parameters
    ----------
    mod
        Module of one PrimFunc without a schedule.
    target
        A TVM `Target`.
    allow_tf32
        Whether float32 products may be tf32.
    """
    attrs = attrs_of(target)
    if attrs["kind"] != "cuda":
        return 0.0
    stores = tuple(_stores(prim_func(mod).body))
    read = {dtype_of(load) for store in stores for load in _loads(store.value)}
    arch, length = str(attrs.get("arch", "")), reduction_length(mod)
    rows = [
        row
        for operands in read
        for row in instructions_for(operands, "float32", arch, allow_tf32=allow_tf32)
    ]
    return max((row.tolerance(length) for row in rows), default=0.0)


def rounded_outputs(mod: Any) -> dict[int, Rounded]:
    """Parameters of a module's function that hang on numbers it rounded to integers, by number.

    Parameters
    ----------
    mod
        Module of one PrimFunc without a schedule.
    """
    func = prim_func(mod)
    found = _rounded_buffers(func)
    buffers = relax_paths.buffers_of(func) or []
    return {i: found[buffer] for i, buffer in enumerate(buffers) if buffer in found}


def rounds(func: Any) -> bool:
    """Whether a PrimFunc rounds numbers that it reads or computes to integers."""
    return bool(_rounded_buffers(func))


def _rounded_buffers(func: Any) -> dict[Any, Rounded]:
    """Buffers that hang on rounded numbers: every one is written before it is read."""
    found: dict[Any, Rounded] = {}
    for store in _stores(func.body):
        sources = [region_buffer(load) for load in _loads(store.value)]
        inherited = [found[buffer] for buffer in sources if buffer in found]
        dtypes = [*_rounded_here(store.value), *(known.dtype for known in inherited)]
        if not dtypes:
            continue
        before = found.get(store.buffer)
        last = _is_rounded(store.value, found) and (before is None or before.last)
        if before is not None:
            dtypes.append(before.dtype)
        found[store.buffer] = Rounded(coarsest(dtypes), last)
    return found


def _is_rounded(value: Any, found: dict[Any, Rounded]) -> bool:
    """Whether a value is a rounded number itself, not computed of some."""
    if type(value).__name__ in LOADS:
        known = found.get(region_buffer(value))
        return known is not None and known.last
    if type(value).__name__ != "Cast" or not _is_integer(dtype_of(value)):
        return False
    return _is_float(dtype_of(value.value)) or _is_rounded(value.value, found)


def _rounded_here(value: Any) -> Iterator[str]:
    """Dtypes of the loaded floating-point numbers that become integers within a value."""
    for node in _nodes(value):
        if _to_integer(node):
            inner = [part for operand in _below(node) for part in _nodes(operand)]
            # positions are rounded, too (a resize computes them), but the same in every program
            if any(type(part).__name__ in LOADS for part in inner):
                yield from (d for d in map(dtype_of, inner) if _is_float(d))


def _to_integer(node: Any) -> bool:
    kind = type(node).__name__
    if kind == "Cast":
        return _is_integer(dtype_of(node)) and _is_float(dtype_of(node.value))
    name = str(getattr(node.op, "name", "")) if kind == "Call" else ""
    return name.rpartition(".")[2] in _TO_INTEGERS and _is_float(dtype_of(node.args[0]))


def _stores(stmt: Any) -> Iterator[Any]:
    """Stores below a statement, in program order."""
    if type(stmt).__name__ == "BufferStore":
        yield stmt
        return
    if type(stmt).__name__.endswith("BlockRealize"):
        yield from _stores(block_of(stmt))
        return
    parts: Iterable[Any] = getattr(stmt, "seq", None) or ()
    for part in (*parts, *(getattr(stmt, name, None) for name in _BELOW)):
        if part is not None:
            yield from _stores(part)


def _below(node: Any) -> Iterator[Any]:
    """Sub-expressions, indices of loads left out."""
    yield from children(node)
    if type(node).__name__ == "Let":
        yield node.body


def _nodes(node: Any) -> Iterator[Any]:
    """An expression and all below it."""
    yield node
    for child in _below(node):
        yield from _nodes(child)


def _loads(value: Any) -> Iterator[Any]:
    return (node for node in _nodes(value) if type(node).__name__ in LOADS)


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))
