"""Count the scalar operations and loads of a block's body. Used by the parser and the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pruner_ms.elementary import FORMULAS
from pruner_ms.tvm_compat.exprs import dtype_of
from pruner_ms.tvm_compat.paths import has_vector_form, region_buffer

KINDS = ("add", "mul", "div", "cmp", "special", "library", "int", "guard")
"""Kinds of operations, see `program.Statement.ops`."""

_NODES: Mapping[str, str] = {
    "Add": "add",
    "Sub": "add",
    "Mul": "mul",
    "Div": "div",
    "FloorDiv": "int",
    "FloorMod": "int",
    "Mod": "int",
}
"""Arithmetic; counted if it uses loaded values, so that index arithmetic is not."""

LOADS = frozenset({"BufferLoad", "TensorLoad"})
"""TVM's node names of a load (the second from 0.27 on)."""

_COMPARISONS = frozenset({"Max", "Min", "LT", "LE", "GT", "GE", "EQ", "NE", "Select"})

_CALLS: Mapping[str, str] = {
    "fabs": "cmp",
    "shift_left": "int",
    "shift_right": "int",
    "bitwise_and": "int",
    "bitwise_or": "int",
    "bitwise_xor": "int",
    "bitwise_not": "int",
    "fma": "mul",
    "likely": "",
    "reinterpret": "",
}
"""Called operators by name without their prefix; any other one counts as special."""

_OF_EXP = frozenset({*FORMULAS, "tanh", "sigmoid"})
"""Special operators with vector code from `tvm_compat.vector_math` in float32; the others also
count as calls of the mathematical library."""


@dataclass
class Body:
    """Operations of a block's body in one iteration.

    Attributes
    ----------
    ops
        Operations by kind.
    loads
        Loads by the name of the buffer.
    copies
        Whether every store stores the unchanged value of one load.
    last
        Operations by kind, only the outermost one of each stored value.
    conditions
        Variables in the conditions of `if_then_else`, and in the arguments of calls without a
        vector form: a vector whose lanes differ in them becomes a loop.
    """

    ops: dict[str, int] = field(default_factory=dict)
    loads: dict[str, int] = field(default_factory=dict)
    copies: bool = True
    last: dict[str, int] = field(default_factory=dict)
    conditions: list[Any] = field(default_factory=list)

    def count(self, kind: str) -> None:
        """Add one operation."""
        if kind:
            self.ops[kind] = self.ops.get(kind, 0) + 1


def children(node: Any) -> Iterator[Any]:
    """Sub-expressions of an expression, indices of loads left out."""
    kind = type(node).__name__
    if kind in LOADS:
        return
    if kind == "Call":
        yield from node.args
        return
    for name in ("a", "b", "value", "condition", "true_value", "false_value"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, int | float | str):
            yield child


def _own_name(buffer: Any) -> str:
    return str(buffer.name)


def _variables(node: Any) -> Iterator[Any]:
    if type(node).__name__.endswith("Var"):
        yield node
    for child in children(node):
        yield from _variables(child)


def _all_variables(node: Any) -> Iterator[Any]:
    """Variables below a node, those in the indices of loads included."""
    if type(node).__name__.endswith("Var"):
        yield node
    below = node.indices if type(node).__name__ in LOADS else children(node)
    for child in below:
        yield from _all_variables(child)


def _loads(node: Any) -> bool:
    """Whether something is loaded below a node."""
    return type(node).__name__ in LOADS or any(_loads(child) for child in children(node))


def _visit(node: Any, body: Body, name_of: Callable[[Any], str]) -> bool:
    """Count below a node; True if it contains a load."""
    kind = type(node).__name__
    if kind in LOADS:
        name = name_of(region_buffer(node))
        body.loads[name] = body.loads.get(name, 0) + 1
        return True
    touched = False
    for child in children(node):
        touched = _visit(child, body, name_of) or touched
    if kind in _COMPARISONS:
        body.count("cmp" if touched else "guard")
    elif kind == "Call":
        name = str(getattr(node.op, "name", "")).rsplit(".", maxsplit=1)[-1]
        if name == "if_then_else":
            body.conditions += _variables(node.args[0])
            body.count("cmp" if _loads(node.args[0]) else "guard")
        else:
            if name not in _CALLS and not has_vector_form(node.op):
                body.conditions += _all_variables(node)
            _count_call(node, name, body)
    elif touched and kind in _NODES:
        body.count(_NODES[kind])
    return touched


def _count_call(node: Any, name: str, body: Body) -> None:
    body.count(_CALLS.get(name, "special"))
    if name not in _CALLS and (name not in _OF_EXP or dtype_of(node) != "float32"):
        body.count("library")


def statements(stmt: Any) -> Iterator[Any]:
    """Stores below a statement without inner blocks."""
    kind = type(stmt).__name__
    if kind == "BufferStore":
        yield stmt
    elif kind == "SeqStmt":
        for part in stmt.seq:
            yield from statements(part)
    elif kind in ("For", "AttrStmt", "LetStmt", "While", "DeclBuffer"):
        yield from statements(stmt.body)
    elif kind == "IfThenElse":
        yield from statements(stmt.then_case)
        if stmt.else_case is not None:
            yield from statements(stmt.else_case)


def read_body(stmt: Any, name_of: Callable[[Any], str] = _own_name) -> Body:
    """Count a block's body (a TIR statement without inner blocks).

    Parameters
    ----------
    name_of
        Name of a buffer.
    """
    body = Body()
    stores = 0
    for store in statements(stmt):
        stores += 1
        _visit(store.value, body, name_of)
        value = store.value
        kind = "cmp" if type(value).__name__ in _COMPARISONS else _NODES.get(type(value).__name__)
        if kind is not None:
            body.last[kind] = body.last.get(kind, 0) + 1
        while type(value).__name__ == "Cast":
            value = value.value
        body.copies = body.copies and type(value).__name__ in LOADS
    body.copies = body.copies and stores > 0
    return body
