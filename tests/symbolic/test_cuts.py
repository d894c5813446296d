"""Cut loops: closed intervals of digits against trying every iteration."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from pruner_ms.symbolic.index.cuts import Cut, enumerated
from pruner_ms.symbolic.index.forms import Leaf

ROWS = 60
DIGITS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16]
THREADS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32]


def _parts(kind: str, total: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    lanes = rng.choice([1, 2, 3, 4, 8], ROWS)
    lanes = np.where(total % lanes == 0, lanes, 1)
    inner = [rng.choice(THREADS, ROWS)]
    if kind in ("fetch", "two axes"):
        inner.append(lanes)
    if kind == "two axes":
        inner.insert(0, rng.choice([1, 2, 3], ROWS))
    return [-(-total // prod(inner)), *inner]


@pytest.mark.parametrize("kind", ["fetch", "bound nest", "two axes"])
@pytest.mark.parametrize("digits", [1, 2, 3])
def test_intervals_are_those_of_every_iteration(
    kind: str, digits: int, rng: np.random.Generator
) -> None:
    leaves = [Leaf(rng.choice(DIGITS, ROWS), False) for _ in range(digits)]
    total = prod(leaf.extent for leaf in leaves)
    parts = _parts(kind, total, rng)
    cut = Cut(leaves, total, [None] * len(parts), parts)
    for digit, leaf in enumerate(leaves):
        inside = np.broadcast_to(prod(x.extent for x in leaves[digit + 1 :]), ROWS)
        outside = prod((x.extent for x in leaves[:digit]), start=np.ones(ROWS, np.int64))
        for running in range(1 << len(parts)):
            widths = np.broadcast_to(cut.width(digit, running), ROWS)
            for i in range(ROWS):
                extents = tuple(int(part[i]) for part in parts)
                extent, stride = int(leaf.extent[i]), int(inside[i])
                modulus = 0 if outside[i] == 1 else extent
                there = running and extent > 1
                tried = enumerated(extents, running, stride, modulus) if there else 1
                assert widths[i] == tried, (extents, running, stride, extent, modulus)


def test_enumeration_counts_the_interval() -> None:
    # 3 x 4 iterations over parts of 2, 3 and 2: the second digit of 0, 1, 6, 7 spans 0..3
    assert enumerated((2, 3, 2), 0b101, 1, 4) == 4
    assert enumerated((2, 3, 2), 0b100, 1, 4) == 2
    assert enumerated((2, 3, 2), 0b111, 4, 0) == 3


def test_a_guard_is_where_the_parts_run_too_far() -> None:
    leaf = Leaf(np.array([12, 10]), False)
    cut = Cut([leaf], leaf.extent, [None, None], [np.array([3, 3]), 4])
    assert cut.guarded.tolist() == [False, True]
