"""All nodes below a statement or an expression of TIR, of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

_PARTS = (
    "seq",
    "iter_values",
    "predicate",
    "block",
    "min",
    "extent",
    "init",
    "condition",
    "value",
    "a",
    "b",
    "true_value",
    "false_value",
    "args",
    "vectors",
    "base",
    "stride",
    "indices",
    "body",
    "then_case",
    "else_case",
)
"""Fields of TIR nodes with statements or expressions, in the order of the walk."""

_PLAIN = (bool, int, float, str, bytes)


def below(node: Any) -> Iterator[Any]:
    """Statements and expressions directly below a node, without regions and annotations."""
    for name in _PARTS:
        part = getattr(node, name, None)
        if part is None or isinstance(part, _PLAIN):
            continue
        nodes: Iterable[Any] = part if hasattr(part, "__len__") else (part,)
        yield from (one for one in nodes if not isinstance(one, _PLAIN))


def walk(node: Any) -> Iterator[Any]:
    """A node and all below it, from the top."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += reversed(list(below(one)))
