"""Traces of any TVM in the words of this one."""

from __future__ import annotations

import json
from typing import Any

from pruner_ms.tvm_compat.object_graph import Graph
from pruner_ms.tvm_compat.paths import GET_BLOCK, save_json, tir
from pruner_ms.tvm_compat.rebuild import Rebuilder

_GET_BLOCK = ("GetBlock", "GetSBlock")
"""One instruction, before 0.24 and since then: no other has changed its name (TVM's
`schedule/primitive`, 0.17 and 0.27 compared)."""


def translated(trace: Any) -> Any:
    """A trace in JSON form, as this TVM would have written it.

    Parameters
    ----------
    trace
        `[instructions, decisions]`, as MetaSchedule stores it.

    Raises
    ------
    ValueError
        An index map in it cannot be made here.
    """
    instructions, decisions = trace
    return [[_instruction(one) for one in instructions], decisions]


def _instruction(instruction: Any) -> list[Any]:
    name, inputs, attributes, outputs = instruction
    name = GET_BLOCK if name in _GET_BLOCK else name
    return [name, [_part(one) for one in inputs], [_part(one) for one in attributes], outputs]


def _part(value: Any) -> Any:
    """An input or an attribute; layouts (`TransformLayout`) are object graphs within a text."""
    if not isinstance(value, str) or not value.startswith("{") or '"nodes"' not in value:
        return value
    graph = Graph.parse(json.loads(value))
    if graph.kind(graph.root) != "IndexMap":
        raise ValueError(f"an instruction with a {graph.type_name(graph.root)}")
    return save_json(_index_map(Rebuilder(graph), graph.root))


def _index_map(of: Rebuilder, i: int) -> Any:
    inverse = of.graph.ref(i, "inverse_index_map")
    return tir.IndexMap(
        of.several(i, "initial_indices"),
        of.several(i, "final_indices"),
        None if inverse is None else _index_map(of, inverse),
    )
