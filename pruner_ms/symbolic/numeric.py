"""Index expressions of a lowered program by plain enumeration: the oracle's arithmetic.

An index becomes a sum of tables. A table holds the value of one part of the index for every
combination of the loops it depends on, so ranges and steps are read off, not derived: no affine
algebra is shared with the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pruner_ms.types import IntArray

TABLE_LIMIT = 1 << 22
"""Entries of a table beyond which an index counts as unknown."""


class UnknownIndex(Exception):  # noqa: N818  caught where the index is read
    """An index that cannot be enumerated (indirect, or too large a table)."""


@dataclass(frozen=True)
class Table:
    """One part of an index.

    Attributes
    ----------
    loops
        Positions of the loops it depends on, ascending: the axes of `values`.
    values
        int64, one axis per loop.
    """

    loops: tuple[int, ...]
    values: IntArray

    def spread(self, level: int) -> int:
        """Largest difference while the loops from `level` on run and the others stand still."""
        axes = tuple(i for i, loop in enumerate(self.loops) if loop >= level)
        if not axes:
            return 0
        return int((self.values.max(axis=axes) - self.values.min(axis=axes)).max())

    def step(self, loop: int) -> int:
        """Difference between the first two iterations of a loop, the others at 0."""
        if loop not in self.loops or self.values.shape[self.loops.index(loop)] < 2:
            return 0
        at = tuple(int(other == loop) for other in self.loops)
        return int(self.values[at] - self.values[(0,) * len(self.loops)])


Tables = list[Table]


def join(parts: Sequence[Table], combine: Callable[..., Any]) -> Table:
    """One table over all the loops of several."""
    loops = tuple(sorted({loop for part in parts for loop in part.loops}))
    extents = {
        loop: n for part in parts for loop, n in zip(part.loops, part.values.shape, strict=True)
    }
    if np.prod([extents[loop] for loop in loops], dtype=float) > TABLE_LIMIT:
        raise UnknownIndex
    shaped = []
    for part in parts:
        shape = [extents[loop] if loop in part.loops else 1 for loop in loops]
        shaped.append(part.values.reshape(shape))
    return Table(loops, np.asarray(combine(*shaped), np.int64))


def _sum(*values: IntArray) -> IntArray:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def tidy(parts: Tables) -> Tables:
    """Join the tables that share loops, so that what remains is independent."""
    found: Tables = []
    for part in parts:
        related = [other for other in found if set(other.loops) & set(part.loops)]
        if not part.loops:
            related = [other for other in found if not other.loops]
        found = [other for other in found if other not in related]
        found.append(join([*related, part], _sum) if related else part)
    return found


def constant(value: int) -> Table:
    """A table without loops."""
    return Table((), np.asarray(value, np.int64))


class Enumerator:
    """Turns TVM index expressions into tables.

    Parameters
    ----------
    loops
        Loop variable -> (position, extent).
    bound
        Let-bound variables -> expression.
    """

    def __init__(self, loops: Mapping[Any, tuple[int, int]]) -> None:
        self.loops = loops

    def tables(self, node: Any) -> Tables:
        """The independent tables that sum up to an expression.

        Raises
        ------
        UnknownIndex
            It cannot be enumerated.
        """
        kind = type(node).__name__
        if kind == "IntImm" or isinstance(node, int):
            return [constant(int(getattr(node, "value", node)))]
        if kind == "Cast":
            return self.tables(node.value)
        if kind.endswith("Var") and node in self.loops:
            position, extent = self.loops[node]
            return [Table((position,), np.arange(extent))]
        if kind in ("Add", "Sub"):
            right = self.tables(node.b)
            if kind == "Sub":
                right = [Table(t.loops, -t.values) for t in right]
            return tidy([*self.tables(node.a), *right])
        if kind == "Mul":
            return self._product(self.tables(node.a), self.tables(node.b))
        if kind in ("FloorDiv", "FloorMod"):
            return self._divide(kind, self.tables(node.a), self.tables(node.b))
        if kind in _JOINED:
            a, b = self.tables(node.a), self.tables(node.b)
            return [join([_one(a), _one(b)], _JOINED[kind])]
        raise UnknownIndex

    def _product(self, a: Tables, b: Tables) -> Tables:
        for left, right in ((a, b), (b, a)):
            if len(right) == 1 and not right[0].loops:
                return [Table(t.loops, t.values * right[0].values) for t in left]
        return [join([_one(a), _one(b)], np.multiply)]

    def _divide(self, kind: str, a: Tables, b: Tables) -> Tables:
        if len(b) != 1 or b[0].loops or int(b[0].values) <= 0:
            raise UnknownIndex
        width = int(b[0].values)
        whole = [t for t in a if not (t.values % width).any()]
        rest = [t for t in a if (t.values % width).any()]
        if rest:
            low = sum(int(t.values.min()) for t in rest)
            high = sum(int(t.values.max()) for t in rest)
            if low // width == high // width:
                shift = low // width
                if kind == "FloorMod":
                    return tidy([*rest, constant(-shift * width)])
                return tidy([*(Table(t.loops, t.values // width) for t in whole), constant(shift)])
        if kind == "FloorMod":
            return [join(rest, lambda *v: _sum(*v) % width)] if rest else [constant(0)]
        quotients = [Table(t.loops, t.values // width) for t in whole]
        if rest:
            quotients.append(join(rest, lambda *v: _sum(*v) // width))
        return tidy(quotients)


def _one(parts: Tables) -> Table:
    return parts[0] if len(parts) == 1 else join(parts, _sum)


_JOINED: Mapping[str, Callable[..., Any]] = {
    "Max": np.maximum,
    "Min": np.minimum,
}
