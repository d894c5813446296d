"""Why outputs of right programs differ: truncated sums, numbers rounded to integers, sigmoids.

All are read off programs that have no schedule yet. What follows is in `trials.checks`.
They widen a tolerance and nothing else: a function that is not understood is taken for one that
sums as much as it can read and rounds nothing, and the log says so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pruner_ms.integration.graph.winograd import SUMMED
from pruner_ms.integration.relax import TaskInfo
from pruner_ms.symbolic.ops import LOADS, children
from pruner_ms.symbolic.tir_walk import below, walk
from pruner_ms.tensorcore.intrinsics import instructions_for
from pruner_ms.trials.checks import Rounded, coarsest
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.exprs import dtype_of, same_place
from pruner_ms.tvm_compat.paths import (
    block_of,
    iter_type_name,
    prim_func,
    region_buffer,
)
from pruner_ms.tvm_compat.targets import attrs_of

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_TO_INTEGERS = frozenset({"round", "nearbyint", "floor", "ceil", "trunc"})
"""Operators whose result jumps, without the name of their dialect."""

_CUT_SHARE = 2.0**-23
"""Of a sum's terms, what TensorCores cut off at most (`trials.checks`)."""


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

SIGMOID_ERROR = 2.0**-21
"""Sigmoids of two engines may differ by so much, however small they are: onnxruntime 1.31 makes
them of 0.5 and a quotient, off by up to 1.7e-7 (x from -40 to 40), where 1 / (1 + exp(-x)) keeps
its relative precision. A text detector's map of probabilities may be no larger than that."""

_MOVED_ONLY = frozenset(
    f"relax.{name}" for name in ("reshape", "permute_dims", "squeeze", "expand_dims", "concat")
) | {"relax.flatten", "relax.strided_slice", "relax.split"}


def sigmoid_outputs(mod: Any) -> list[bool]:
    """Which outputs of a Relax module's `main` hold results of a sigmoid, moved at most."""
    func = mod["main"]
    values = dict(relax_paths.RELAX.analysis.get_var2val(func).items())

    def computed(value: Any) -> Any:
        while value in values:
            value = values[value]
        return value

    def of_sigmoid(value: Any) -> bool:
        value = computed(value)
        kind = type(value).__name__
        if kind == "Tuple":
            return any(map(of_sigmoid, value.fields))
        if kind == "TupleGetItem":
            return of_sigmoid(value.tuple_value)
        name = getattr(value.op, "name", "") if kind == "Call" else ""
        return name == "relax.sigmoid" or (name in _MOVED_ONLY and of_sigmoid(value.args[0]))

    result = computed(func.body.body)
    several = type(result).__name__ == "Tuple"
    return [of_sigmoid(one) for one in (result.fields if several else [result])]


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
    count = sum(rounds(func) for func in functions)
    calls = sum(task.weight for task in tasks if rounds(prim_func(task.mod)))
    return Rounding(cut, max(count, calls))


def reduction_length(mod: Any) -> int:
    """Terms that are summed into one output element of a module: the sum over its stores.

    A store sums over the loops and reduction variables around it that its indices do not name, if
    it reads the element that it writes; over all of them, if it reads others of that buffer, as a
    running sum does. A block may say that it rounds as a longer sum does (`SUMMED`).
    """
    func = prim_func(mod)

    def read() -> int:
        summed = 1 + sum(terms - 1 for terms in _summed(func.body, {}, {}, _largest(func)))
        return max([summed, *_said(func.body)])

    return _understood(read, lambda: _largest(func))


def _said(body: Any) -> Iterator[int]:
    for node in walk(body):
        if type(node).__name__.endswith("BlockRealize"):
            annotations = dict(block_of(node).annotations)
            if SUMMED in annotations:
                yield relax_paths.prim_value(annotations[SUMMED])


def _summed(
    stmt: Any, loops: Mapping[Any, int], reduced: Mapping[Any, int], most: int
) -> Iterator[int]:
    """Terms of each sum below a statement.

    Parameters
    ----------
    loops, reduced
        Extents of the loops of the innermost block, and of reduction variables of blocks.
    most
        Extent of what has no fixed one.
    """
    kind = type(stmt).__name__
    if kind == "BufferStore":
        yield _terms(stmt, {**loops, **reduced})
        return
    if kind.endswith("BlockRealize"):
        block = block_of(stmt)
        variables = {
            iv.var: _fixed(iv.dom.extent, most)
            for iv in block.iter_vars
            if iter_type_name(iv) != "S"
        }
        # a block's variables stand for the loops around it; a block without any is inside them
        around = {} if len(block.iter_vars) else loops
        yield from _summed(block.body, around, {**reduced, **variables}, most)
        return
    if kind == "For":
        loops = {**loops, stmt.loop_var: _fixed(stmt.extent, most)}
    elif kind == "While":
        loops = {**loops, stmt: most}
    for part in below(stmt):
        yield from _summed(part, loops, reduced, most)


def _terms(store: Any, around: Mapping[Any, int]) -> int:
    loads = [one for one in _loads(store.value) if region_buffer(one) == store.buffer]
    if not loads:
        return 1
    named: set[Any] = set()
    if all(same_place(load, store) for load in loads):
        named = {node for index in store.indices for node in walk(index) if node in around}
    return math.prod(extent for variable, extent in around.items() if variable not in named)


def _fixed(extent: Any, most: int) -> int:
    return int(extent.value) if type(extent).__name__ == "IntImm" else most


def _largest(func: Any) -> int:
    """Elements of the largest argument: no sum has many more terms."""
    shapes = [relax_paths.buffer_shape(b) for b in relax_paths.buffers_of(func) or ()]
    return max((math.prod(shape) for shape in shapes if shape), default=1)


def _understood(read: Callable[[], _T], otherwise: Callable[[], _T]) -> _T:
    """What is read off a function, or what is safe where it is written as nobody expected."""
    try:
        return read()
    except Exception:  # whatever a program that is odd makes of it: only a tolerance hangs on it
        log.warning("a function is not understood; its tolerance is a guess", exc_info=True)
        return otherwise()


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
    arch, length = str(attrs.get("arch", "")), reduction_length(mod)

    def read() -> float:
        stores = tuple(_stores(prim_func(mod).body))
        types = {dtype_of(load) for store in stores for load in _loads(store.value)}
        rows = [
            row
            for operands in types
            for row in instructions_for(operands, "float32", arch, allow_tf32=allow_tf32)
        ]
        return max((row.tolerance(length) for row in rows), default=0.0)

    return _understood(read, lambda: length * _CUT_SHARE)


def rounded_outputs(mod: Any) -> dict[int, Rounded]:
    """Parameters of a module's function that hang on numbers it rounded to integers, by number.

    Parameters
    ----------
    mod
        Module of one PrimFunc without a schedule.
    """
    func = prim_func(mod)
    rounded_buffers = _rounded_buffers(func)
    buffers = relax_paths.buffers_of(func) or []
    return {
        i: rounded_buffers[buffer] for i, buffer in enumerate(buffers) if buffer in rounded_buffers
    }


def rounds(func: Any) -> bool:
    """Whether a PrimFunc rounds numbers that it reads or computes to integers."""
    return bool(_rounded_buffers(func))


def _rounded_buffers(func: Any) -> dict[Any, Rounded]:
    """Buffers that hang on rounded numbers: every one is written before it is read."""
    return _understood(lambda: _traced(func), dict)


def _traced(func: Any) -> dict[Any, Rounded]:
    rounded_buffers: dict[Any, Rounded] = {}
    for store in _stores(func.body):
        sources = [region_buffer(load) for load in _loads(store.value)]
        inherited = [rounded_buffers[buffer] for buffer in sources if buffer in rounded_buffers]
        dtypes = [*_rounded_here(store.value), *(rounding.dtype for rounding in inherited)]
        if not dtypes:
            continue
        before = rounded_buffers.get(store.buffer)
        last = _is_rounded(store.value, rounded_buffers) and (before is None or before.last)
        if before is not None:
            dtypes.append(before.dtype)
        rounded_buffers[store.buffer] = Rounded(coarsest(dtypes), last)
    return rounded_buffers


def _is_rounded(value: Any, rounded_buffers: dict[Any, Rounded]) -> bool:
    """Whether a value is a rounded number itself, not computed of some."""
    if type(value).__name__ in LOADS:
        rounding = rounded_buffers.get(region_buffer(value))
        return rounding is not None and rounding.last
    if type(value).__name__ != "Cast" or not _is_integer(dtype_of(value)):
        return False
    return _is_float(dtype_of(value.value)) or _is_rounded(value.value, rounded_buffers)


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
    return (node for node in walk(stmt) if type(node).__name__ == "BufferStore")


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


_DIVISIONS = ("Div", "Mod", "FloorDiv", "FloorMod")


def divides_by_data(func: Any) -> bool:
    """Whether a PrimFunc divides integers by numbers that it is given or computes.

    The processor ends the process if one is zero.
    """
    return any(
        type(node).__name__ in _DIVISIONS
        and _is_integer(dtype_of(node))
        and any(type(part).__name__ in LOADS for part in walk(node.b))
        for node in walk(func.body)
    )


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))
