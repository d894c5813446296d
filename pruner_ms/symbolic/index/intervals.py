"""Unions of intervals whose first index is a form: the range of several accesses in a dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.rows import Mask, Num, both, either, larger, negate, select, smaller

Interval = tuple[Num, Form]
"""Extent and first index of the accessed range of a dimension."""


def covers(size: Num, base: Form, full: Num) -> Mask:
    """Rows in which an interval is the whole dimension."""
    rows: Mask = size >= full
    for stride in base.values():
        rows = both(rows, stride == 0)
    return rows


def union(a: Interval, b: Interval, full: Num) -> tuple[Interval, Mask]:
    """The interval that covers two others, and the rows in which TVM's union of them is the same.

    It is the same if they move together, or if one of them is the whole dimension.
    """
    (size_a, base_a), (size_b, base_b) = a, b
    covered = either(covers(size_a, base_a, full), covers(size_b, base_b, full))
    same: Mask = True
    for leaf in set(base_a) | set(base_b):
        if leaf is not None:
            same = both(same, base_a.get(leaf, 0) == base_b.get(leaf, 0))
    low_a, low_b = base_a.get(None, 0), base_b.get(None, 0)
    low = smaller(low_a, low_b)
    size = larger(low_a + size_a, low_b + size_b) - low
    base: dict[Leaf | None, Num] = {}
    for leaf in set(base_a) | set(base_b):
        base[leaf] = select(covered, 0, low if leaf is None else base_a.get(leaf, 0))
    return (select(covered, full, size), base), either(same, covered)


def choose(rows: Mask, a: Interval, b: Interval) -> Interval:
    """The first interval in some rows, the second in the others."""
    if rows is True:
        return a
    base: dict[Leaf | None, Num] = {}
    for leaf in set(a[1]) | set(b[1]):
        base[leaf] = select(rows, a[1].get(leaf, 0), b[1].get(leaf, 0))
    return select(rows, a[0], b[0]), base


def union_all(intervals: Sequence[tuple[Mask, Interval]], full: Num) -> tuple[Interval, Mask]:
    """The union of the intervals that are present in a row, and the rows in which it is known."""
    (present, merged), *others = intervals
    exact: Mask = True
    for rows, interval in others:
        again = both(present, rows)
        joined, good = union(merged, interval, full)
        exact = both(exact, either(negate(again), good))
        merged = choose(again, joined, choose(present, merged, interval))
        present = either(present, rows)
    return merged, exact


def same_strides(bases: Sequence[Form]) -> bool:
    """Whether forms have the same strides in every row."""
    first, *others = bases
    return all(
        _equal(first.get(leaf, 0), other.get(leaf, 0))
        for other in others
        for leaf in {**first, **other}
        if leaf is not None
    )


def _equal(a: Num, b: Num) -> bool:
    return a is b or bool(np.all(a == b))
