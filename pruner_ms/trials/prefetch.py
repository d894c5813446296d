"""Software prefetching of packed weights in CPU kernels.

A kernel reads a block of a packed weight several times before the next block. In the first pass a
network's weights come from memory, and the core stalls. Here each pass prefetches a share of the
next block (figures in docs/constants.md).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pruner_ms.symbolic.tir_walk import walk
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.exprs import number
from pruner_ms.tvm_compat.paths import block_of, region_buffer, tir
from pruner_ms.tvm_compat.rewriting import with_functions

log = logging.getLogger(__name__)

_LINE = 64
"""Bytes of a cache line."""
_FEWEST_LINES = 16
"""Least cache lines of a block: for fewer, hardware prefetching is enough."""
_SAMPLES = 16
_SERIAL, _PARALLEL, _SUM = 0, 1, 2
"""TVM's kinds of loops, and of block variables."""
_OFFSET = "tirx.handle_add_byte_offset"
_READ, _ALL_CACHES, _DATA = 0, 3, 1
"""Operands of `llvm.prefetch`: read, locality, data cache."""


@dataclass(frozen=True)
class PrefetchPlan:
    """Prefetches of a loop nest.

    Attributes
    ----------
    repeats
        The loop that repeats the passes over a block.
    inside
        The loop in whose body lines are prefetched: `repeats` or a loop within it.
    block
        Bytes of a block; the next one follows it.
    lines
        Cache lines in each iteration.
    """

    repeats: int
    inside: int
    block: int
    lines: int


def prefetch_plan(
    extents: Sequence[int], strides: Sequence[int], serial: Sequence[bool], size: int
) -> PrefetchPlan | None:
    """Where to prefetch the next block of a loop nest; None: there is no use for it.

    Parameters
    ----------
    extents
        Of the loops of a thread, from the outermost.
    strides
        Elements by which each loop moves the access in the buffer.
    serial
        Whether each is an ordinary loop.
    size
        Bytes of an element.
    """
    moves = [stride if extent > 1 else 0 for stride, extent in zip(strides, extents, strict=True)]
    repeats = next(
        (
            loop
            for loop, extent in enumerate(extents)
            if serial[loop] and extent > 1 and not moves[loop] and any(moves[:loop])
        ),
        None,
    )
    if repeats is None:
        return None
    block = 1
    for stride, extent in sorted((moves[i], extents[i]) for i in range(repeats, len(moves))):
        if stride and stride != block:
            return None  # the block is not contiguous
        block *= extent if stride else 1
    last = max(loop for loop in range(repeats) if moves[loop])
    total = block * size // _LINE
    if moves[last] != block or total < _FEWEST_LINES:
        return None
    inside, times = repeats, extents[repeats]
    while inside + 1 < len(extents) and serial[inside + 1] and times * extents[inside + 1] <= total:
        inside += 1
        times *= extents[inside]
    return PrefetchPlan(repeats, inside, block * size, -(-total // times))


def prefetched(mod: Any, target: Any) -> Any:
    """A module of scheduled PrimFuncs with prefetches of their weights.

    Parameters
    ----------
    mod
        IRModule; other functions than PrimFuncs are unchanged.
    target
        A TVM `Target`. A module is returned unchanged if it is not for a CPU, or in TVM before
        0.25, which lacks an operator that prefetches need.
    """
    if str(target.kind.name) != "llvm" or not tir.__name__.endswith("tirx"):
        return mod
    changed: dict[Any, Any] = {}
    for var, func in mod.functions.items():
        if isinstance(func, relax_paths.PrimFunc):
            try:
                asking = _with_prefetches(func)
            except Exception:  # an unusual program; prefetching is optional
                log.debug("%s does not ask for its weights", var, exc_info=True)
                continue
            changed.update({} if asking is None else {var: asking})
    return with_functions(mod, changed) if changed else mod


def _with_prefetches(func: Any) -> Any | None:
    """A function with prefetches in its loops; None: there is nothing to prefetch."""
    requests: dict[Any, list[Any]] = {}
    buffers = relax_paths.buffers_of(func) or []
    for loops, realize in _nests(func.body, ()):
        for load in walk(block_of(realize).body):
            if not hasattr(load, "indices") or hasattr(load, "value"):
                continue  # a store, or no access
            if any(region_buffer(load).same_as(buffer) for buffer in buffers):
                request = _request(load, realize, loops)
                if request is not None:
                    loop, lines = request
                    requests.setdefault(loop, []).extend(lines)
    return func.with_body(_with_requests(func.body, requests)) if requests else None


def _nests(node: Any, loops: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Reduction updates, and the loops around each."""
    if isinstance(node, tir.For):
        yield from _nests(node.body, (*loops, node))
    elif isinstance(node, tir.SeqStmt):
        for one in node.seq:
            yield from _nests(one, loops)
    elif hasattr(node, "iter_values"):
        block = block_of(node)
        if any(int(var.iter_type) == _SUM for var in block.iter_vars) and block.init is None:
            yield loops, node
        yield from _nests(block.body, loops)


def _request(load: Any, realize: Any, loops: Sequence[Any]) -> tuple[Any, list[Any]] | None:
    """The variable of a loop, and the prefetches in its body, for one access."""
    extents = [number(loop.extent, {}) or 0 for loop in loops]
    kinds = [int(loop.kind) for loop in loops]
    first = max((i + 1 for i, kind in enumerate(kinds) if kind == _PARALLEL), default=0)
    variables = [loop.loop_var for loop in loops]
    strides = _strides(partial(_element, load, realize, variables), extents, first)
    if strides is None:
        return None
    buffer = region_buffer(load)
    size = _bytes(str(buffer.dtype))
    serial = [kind == _SERIAL for kind in kinds]
    plan = prefetch_plan(extents[first:], strides, serial[first:], size)
    if plan is None:
        return None
    repeats, inside = first + plan.repeats, first + plan.inside
    before = [*variables[:repeats], *[0] * (len(loops) - repeats)]
    time: Any = 0
    for variable, extent in zip(variables[repeats : inside + 1], extents[repeats:], strict=False):
        time = time * extent + variable
    start = _element(load, realize, variables, before) * size + plan.block
    start = start + time * (plan.lines * _LINE)
    lines = [start + line * _LINE for line in range(plan.lines)]
    return variables[inside], [_prefetch_call(buffer, place) for place in lines]


def _bytes(dtype: str) -> int:
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def _element(load: Any, realize: Any, variables: Sequence[Any], point: Sequence[Any]) -> Any:
    """Flat index that an access reads at given loop values: numbers, or expressions.

    Raises
    ------
    ValueError
        It depends on data.
    """
    values = dict(zip(variables, point, strict=True))
    block = block_of(realize)
    inner = {
        var.var: _certain(value, values)
        for var, value in zip(block.iter_vars, realize.iter_values, strict=True)
    }
    place: Any = 0
    shape = relax_paths.buffer_shape(region_buffer(load)) or ()
    for index, extent in zip(load.indices, shape, strict=True):
        place = place * extent + _certain(index, inner)
    return place


def _certain(expr: Any, values: Mapping[Any, Any]) -> Any:
    value = number(expr, values)
    if value is None:
        raise ValueError(f"{expr} hangs on more than loops")
    return value


def _strides(
    element: Callable[[Sequence[int]], int], extents: Sequence[int], first: int
) -> list[int] | None:
    """Stride of each loop from `first` on in a buffer; None: the access is not affine.

    Parameters
    ----------
    element
        Flat index at given loop values.
    extents
        Of all loops.
    first
        The loops before are distributed over threads.
    """
    if not all(extents):
        return None
    points = np.random.default_rng(0).integers(0, extents, (_SAMPLES, len(extents))).tolist()
    zero = [0] * len(extents)
    try:
        start = element(zero)
        steps = [
            element([*zero[:place], 1, *zero[place + 1 :]]) - start if extents[place] > 1 else 0
            for place in range(first, len(extents))
        ]
        for point in points:
            begin = element([*point[:first], *zero[first:]])
            moved = sum(n * step for n, step in zip(point[first:], steps, strict=True))
            if element(point) != begin + moved:
                return None
    except ValueError:
        return None
    return steps


def _prefetch_call(buffer: Any, place: Any) -> Any:
    address = tir.call_intrin("handle", _OFFSET, buffer.data, place)
    numbers = [tir.const(value, "int32") for value in (_READ, _ALL_CACHES, _DATA)]
    return tir.Evaluate(tir.call_llvm_intrin("void", "llvm.prefetch.p0", address, *numbers))


def _with_requests(node: Any, requests: Mapping[Any, Sequence[Any]]) -> Any:
    """A statement with prefetches at the beginning of some loops' bodies."""
    if isinstance(node, tir.For):
        body, first = _with_requests(node.body, requests), requests.get(node.loop_var, ())
        body = tir.SeqStmt([*first, body]) if first else body
        return tir.For(
            node.loop_var,
            node.min,
            node.extent,
            node.kind,
            body,
            node.thread_binding,
            node.annotations,
        )
    if isinstance(node, tir.SeqStmt):
        return tir.SeqStmt([_with_requests(one, requests) for one in node.seq])
    if hasattr(node, "iter_values"):
        block = block_of(node)
        inner = type(block)(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            _with_requests(block.body, requests),
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )
        return type(node)(node.iter_values, node.predicate, inner)
    return node
