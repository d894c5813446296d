"""Which traces may be handed to TVM. It trusts their form, and some wrong ones end the process.

Read from `schedule/trace.cc` and `schedule/primitive/sampling.cc`, and tried on mutated traces: a
null is taken for an object, "None" for a variable, a factor of zero is divided by, nested lists and
an index map's nodes are followed wherever they lead. All else that is wrong raises an error.
Importing this imports no TVM; the kinds of instructions are the same from 0.17 to 0.27 but for
their names.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from pruner_ms.tvm_compat.object_graph import BINARY, Graph

REFUSALS = (
    *(RuntimeError, ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, AssertionError),
)
"""What TVM raises for a trace, a module or a target that it does not take, by the damage."""

_DEEPEST = 16
"""Lists within lists; an instruction of TVM's has three, annotations have what users give them."""

_INT64 = range(-(1 << 63), 1 << 63)

_PAD = ("TransformLayout", 2)
"""The attribute that may be null: what an axis is padded with."""

_OPEN = ("Split", "LoopPartition")
"""Instructions of which one factor may be "None": it follows from the others."""

_SAMPLED: Mapping[str, Callable[[list[int]], bool]] = MappingProxyType(
    {
        # number of tiles, largest innermost one (-1: any)
        "SamplePerfectTile": lambda a: len(a) == 2 and (a[1] == -1 or a[1] > 0),
        # number of tiles, first of the inner ones, what their product is a multiple of
        "SamplePartitionedTile": lambda a: len(a) == 3 and 0 <= a[1] <= a[0] and a[2] > 0,
    }
)
"""Attributes that sampling counts, indexes and divides with, unchecked."""

_EXPRESSIONS = frozenset({*BINARY, "Cast", "Var", "IntImm"})

_FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "span": frozenset({"None"}),
        "type_annotation": frozenset({"None", "PrimType"}),
        "ty": frozenset({"PrimType"}),
        "name": frozenset({"String"}),
        "a": _EXPRESSIONS,
        "b": _EXPRESSIONS,
        "initial_indices": frozenset({"Array"}),
        "final_indices": frozenset({"Array"}),
        "inverse_index_map": frozenset({"None", "IndexMap"}),
    }
)
"""Field of an index map's nodes -> what it may refer to."""

_CASTS = MappingProxyType({**_FIELDS, "value": _EXPRESSIONS})
"""The same of a cast, as the loops of Relax functions have them: they count in 64 bits."""


def check_trace(trace: Any) -> None:
    """Refuse a trace for which TVM may do worse than raise an error.

    Parameters
    ----------
    trace
        As JSON: `[instructions, decisions]`.

    Raises
    ------
    ValueError
        It may end the process; the message names the instruction (from 0) and what is wrong.
    """
    if not (isinstance(trace, list) and len(trace) == 2):
        raise ValueError("the trace has not two parts")
    instructions, decisions = trace
    if not isinstance(instructions, list) or not isinstance(decisions, list):
        raise ValueError("the trace's parts are not lists")
    for number, instruction in enumerate(instructions):
        if not (
            isinstance(instruction, list)
            and len(instruction) == 4
            and isinstance(instruction[0], str)
            and all(isinstance(part, list) for part in instruction[1:])
        ):
            raise ValueError("an instruction has not the four parts kind, inputs, attrs, outputs")
        try:
            _check_instruction(*instruction)
        except ValueError as error:
            raise ValueError(f"{instruction[0][:40]} (instruction {number}): {error}") from None
    for decision in decisions:
        if not (isinstance(decision, list) and len(decision) == 2):
            raise ValueError("a decision is not a pair")
        if type(decision[0]) is not int or not 0 <= decision[0] < len(instructions):
            raise ValueError("a decision belongs to no instruction")
        _check_decision(decision[1])


def _check_instruction(kind: str, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
    name, place = _PAD
    if kind == name and len(attrs) > place and attrs[place] is None:
        attrs = attrs[:place] + attrs[place + 1 :]
    for part in ([kind], inputs, attrs, outputs):
        check_plain(part)
    if kind in _SAMPLED:
        integers = all(type(value) is int for value in attrs)
        if not (integers and _SAMPLED[kind](attrs) and attrs[0] == len(outputs)):
            raise ValueError(f"{len(outputs)} tiles by the numbers {str(attrs)[:40]}")
    fixed = inputs[:1] if kind in _OPEN else inputs
    if any(value == "None" for value in _leaves(fixed)):
        raise ValueError("it lacks a block or a loop")
    for value in (*_leaves(inputs), *_leaves(attrs)):
        if isinstance(value, str) and value.startswith("{"):
            _check_index_map(value)


def _check_decision(decision: Any) -> None:
    check_plain(decision)
    if isinstance(decision, list) and not all(type(x) is int and x > 0 for x in decision):
        raise ValueError(f"a tile of the factors {str(decision)[:40]}")


def check_plain(value: Any, depth: int = 0) -> None:
    """Raise ValueError for a JSON value that holds a null, or what TVM's own parser cannot read."""
    if depth > _DEEPEST:
        raise ValueError("lists are nested too deeply")
    if value is None:
        raise ValueError("there is a null in it")
    if isinstance(value, str):
        value.encode("utf-8")  # half a surrogate is refused: UnicodeEncodeError is a ValueError
    elif isinstance(value, float):
        tiny = 0 < abs(value) < sys.float_info.min
        if tiny or not math.isfinite(value):
            raise ValueError(f"the number {value} is out of range")
    elif isinstance(value, int):
        if value not in _INT64:
            raise ValueError(f"the number {str(value)[:24]} is out of range")
    elif isinstance(value, dict):
        for key, item in value.items():
            check_plain(key)
            check_plain(item, depth + 1)
    else:
        for item in value:
            check_plain(item, depth + 1)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


@lru_cache(maxsize=4096)
def _check_index_map(text: str) -> None:
    """Raise ValueError unless a text is the JSON graph of an index map."""
    try:
        graph = Graph.parse(json.loads(text))
    except RecursionError as error:
        raise ValueError("an index map is nested too deeply") from error
    if not 0 <= graph.root < len(graph.nodes) or graph.kind(graph.root) != "IndexMap":
        raise ValueError("an object that is no index map")
    if graph.old:
        return  # TVM 0.17 checks the types of fields itself
    for number, node in enumerate(graph.nodes):
        _check_node(graph, number, node)


def _check_node(graph: Graph, number: int, node: Mapping[str, Any]) -> None:
    """Raise ValueError unless a node refers only to earlier ones, of the kind that it needs."""
    kind, data = graph.kind(number), node.get("data")
    if kind == "Array":
        if not isinstance(data, list):
            raise ValueError("an index map with an array that is none")
        refers = [(item, _EXPRESSIONS) for item in data]
    elif isinstance(data, dict):
        fields = _CASTS if kind == "Cast" else _FIELDS
        refers = [(item, fields[name]) for name, item in data.items() if name in fields]
    else:
        return
    for item, wanted in refers:
        if type(item) is not int or not 0 <= item < number or graph.kind(item) not in wanted:
            raise ValueError(f"an index map whose {kind} refers to {str(item)[:24]}")
