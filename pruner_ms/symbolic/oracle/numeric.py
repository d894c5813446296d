"""Evaluation of index expressions of a lowered program: the oracle's arithmetic.

An index becomes a constant, steps of single loops, and tables. A table has the value of a part that
is not a sum (a quotient, a remainder, a minimum) for every combination of the loops it depends on,
so that ranges and steps of such parts are read from it, never derived. No rule is shared with the
interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pruner_ms.types import IntArray

TABLE_LIMIT = 1 << 26
"""Most entries of a table; an index with a larger one counts as unknown."""


class UnknownIndex(Exception):  # noqa: N818  caught where the index is read
    """An index that cannot be evaluated (indirect, or too large a table)."""


class TooLarge(UnknownIndex):
    """An index whose table would be too large; it could be evaluated in principle."""


@dataclass(frozen=True)
class Table:
    """A part of an index, enumerated.

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
        """Largest difference while the loops from `level` on run and the others are fixed."""
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


def join(parts: Sequence[Table], combine: Callable[..., Any]) -> Table:
    """One table over all the loops of several tables."""
    loops = tuple(sorted({loop for part in parts for loop in part.loops}))
    extents = {
        loop: n for part in parts for loop, n in zip(part.loops, part.values.shape, strict=True)
    }
    if np.prod([extents[loop] for loop in loops], dtype=float) > TABLE_LIMIT:
        raise TooLarge
    shaped = []
    for part in parts:
        shape = [extents[loop] if loop in part.loops else 1 for loop in loops]
        shaped.append(part.values.reshape(shape))
    return Table(loops, np.asarray(combine(*shaped), np.int64))


def total(*values: IntArray) -> IntArray:
    """Sum of arrays, by broadcasting."""
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


def apart(tables: Sequence[Table]) -> list[Table]:
    """Join tables that share loops, so that the remaining ones are independent."""
    independent: list[Table] = []
    for table in tables:
        related = [other for other in independent if set(other.loops) & set(table.loops)]
        independent = [other for other in independent if other not in related]
        independent.append(join([*related, table], total) if related else table)
    return independent


@dataclass(frozen=True)
class Index:
    """A value as a function of the loops: `constant + sum(steps[p] * loop p) + sum(tables)`.

    No loop occurs in two of its parts, so that spreads add up.

    Attributes
    ----------
    extents
        Iterations of every loop by position.
    """

    extents: Sequence[int]
    constant: int = 0
    steps: Mapping[int, int] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()

    def spread(self, level: int) -> int:
        """Largest difference while the loops from `level` on run and the others are fixed."""
        spread = 0
        for loop, step in self.steps.items():
            if loop >= level:
                spread += abs(step) * (self.extents[loop] - 1)
        for table in self.tables:
            spread += table.spread(level)
        return spread

    def step(self, loop: int) -> int:
        """Difference between the first two iterations of a loop, the others at 0."""
        step_sum = self.steps.get(loop, 0) if self.extents[loop] > 1 else 0
        for table in self.tables:
            step_sum += table.step(loop)
        return step_sum

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        low = high = self.constant
        for loop, step in self.steps.items():
            reach = step * (self.extents[loop] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        for table in self.tables:
            low, high = low + int(table.values.min()), high + int(table.values.max())
        return low, high

    def table(self) -> Table:
        """The whole index as a table."""
        parts = [
            Table((loop,), step * np.arange(self.extents[loop]))
            for loop, step in self.steps.items()
        ]
        parts += [*self.tables, Table((), np.asarray(self.constant, np.int64))]
        return parts[0] if len(parts) == 1 else join(parts, total)

    def scaled(self, factor: int) -> Index:
        """A multiple."""
        if factor == 0:
            return Index(self.extents)
        return Index(
            self.extents,
            self.constant * factor,
            {loop: step * factor for loop, step in self.steps.items()},
            tuple(Table(t.loops, t.values * factor) for t in self.tables),
        )

    def plus(self, other: Index) -> Index:
        """A sum."""
        steps = dict(self.steps)
        for loop, step in other.steps.items():
            steps[loop] = steps.get(loop, 0) + step
        tables = [*self.tables, *other.tables]
        if tables:
            table_loops = {loop for table in tables for loop in table.loops}
            tables += [
                Table((loop,), steps.pop(loop) * np.arange(self.extents[loop]))
                for loop in list(steps)
                if loop in table_loops
            ]
            tables = apart(tables)
        nonzero = {loop: step for loop, step in steps.items() if step}
        return Index(self.extents, self.constant + other.constant, nonzero, tuple(tables))

    def divided(self, width: int) -> tuple[Index, Index]:
        """Floored quotient and remainder of a division by a positive number."""
        multiples = Index(
            self.extents,
            self.constant // width,
            {p: step // width for p, step in self.steps.items() if step % width == 0},
            tuple(
                Table(t.loops, t.values // width)
                for t in self.tables
                if not (t.values % width).any()
            ),
        )
        rest = Index(
            self.extents,
            self.constant % width,
            {p: step for p, step in self.steps.items() if step % width},
            tuple(t for t in self.tables if (t.values % width).any()),
        )
        low, high = rest.bounds()
        if low // width == high // width:
            shift = Index(self.extents, low // width)
            return multiples.plus(shift), rest.plus(shift.scaled(-width))
        values = rest.table()
        high_part = Table(values.loops, values.values // width)
        low_part = Table(values.loops, values.values % width)
        return (
            multiples.plus(Index(self.extents, 0, {}, (high_part,))),
            Index(self.extents, 0, {}, (low_part,)),
        )


class Enumerator:
    """Evaluates TVM expressions.

    Parameters
    ----------
    loops
        Loop variables, outermost first.
    extents
        Their iterations.
    starts
        Their first values; None for zeros.
    """

    def __init__(
        self, loops: Sequence[Any], extents: Sequence[int], starts: Sequence[int] | None = None
    ) -> None:
        self._extents = extents
        self._positions = {loop: p for p, loop in enumerate(loops)}
        self._starts = starts

    def index(self, node: Any) -> Index:
        """An expression's value.

        Raises
        ------
        UnknownIndex
            It cannot be evaluated.
        """
        kind = type(node).__name__
        if kind == "IntImm":
            return Index(self._extents, int(node.value))
        if isinstance(node, int):
            return Index(self._extents, int(node))
        if kind == "Cast":
            return self.index(node.value)
        if kind.endswith("Var"):
            position = self._positions.get(node)
            if position is None:
                raise UnknownIndex
            start = 0 if self._starts is None else self._starts[position]
            step = {position: 1} if self._extents[position] > 1 else {}
            return Index(self._extents, start, step)
        if kind == "Not":
            return self._joined(lambda a: a == 0, self.index(node.a))
        if kind in _BINARY:
            return self._binary(kind, self.index(node.a), self.index(node.b))
        if kind == "Select":
            parts = (node.condition, node.true_value, node.false_value)
            return self._joined(np.where, *(self.index(part) for part in parts))
        raise UnknownIndex

    def _binary(self, kind: str, a: Index, b: Index) -> Index:
        if kind == "Add":
            return a.plus(b)
        if kind == "Sub":
            return a.plus(b.scaled(-1))
        fixed = not b.steps and not b.tables
        if kind == "Mul":
            if fixed:
                return a.scaled(b.constant)
            if not a.steps and not a.tables:
                return b.scaled(a.constant)
        if kind in ("FloorDiv", "FloorMod") and fixed and b.constant > 0:
            return a.divided(b.constant)[kind == "FloorMod"]
        return self._joined(_BINARY[kind], a, b)

    def _joined(self, combine: Callable[..., Any], *parts: Index) -> Index:
        table = join([part.table() for part in parts], combine)
        if not table.loops:
            return Index(self._extents, int(table.values))
        return Index(self._extents, 0, {}, (table,))


_BINARY: Mapping[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Max": np.maximum,
    "Min": np.minimum,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
}


_ORDERED: Mapping[str, Callable[[int, int], bool]] = {
    "LT": lambda low, high: high >= 0,
    "LE": lambda low, high: high > 0,
    "GT": lambda low, high: low <= 0,
    "GE": lambda low, high: low < 0,
    "EQ": lambda low, high: (low, high) != (0, 0),
}
"""Comparison of a and b -> whether it is false for some `a - b` in [low, high]."""


def may_fail(names: Enumerator, condition: Any) -> bool:
    """Whether a condition is false in some iteration; True for one that cannot be evaluated."""
    kind = type(condition).__name__
    if kind == "And":
        return may_fail(names, condition.a) or may_fail(names, condition.b)
    try:
        if kind in _ORDERED:
            difference = names.index(condition.a).plus(names.index(condition.b).scaled(-1))
            return _ORDERED[kind](*difference.bounds())
        return names.index(condition).bounds()[0] == 0
    except UnknownIndex:
        return True
