"""Every node below a statement or an expression of TIR, whatever its kind."""

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
"""Fields of TIR's nodes that hold statements or expressions, in the order in which they count."""

_PLAIN = (bool, int, float, str, bytes)


def below(node: Any) -> Iterator[Any]:
    """Statements and expressions right below a node; regions and annotations of blocks are none."""
    for name in _PARTS:
        part = getattr(node, name, None)
        if part is None or isinstance(part, _PLAIN):
            continue
        several: Iterable[Any] = part if hasattr(part, "__len__") else (part,)
        yield from (one for one in several if not isinstance(one, _PLAIN))


def walk(node: Any) -> Iterator[Any]:
    """A node and all below it, from the top."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += reversed(list(below(one)))
