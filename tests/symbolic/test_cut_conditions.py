"""Conditions that keep idle iterations of a cut loop from running."""

from __future__ import annotations

import pytest

from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.forms import Leaf


@pytest.mark.parametrize(
    ("extents", "total", "shortened"),
    [
        ((3, 2, 32, 4), 640, True),  # i * 2 + j < 5, and 32 x 4 iterations inside of that
        ((3, 2, 32, 8), 1280, True),
        ((3, 1, 32, 8), 640, False),  # i * 32 + k < 80: all but the last one
        ((3, 1, 32, 8), 768, False),  # no idle iterations
        ((1, 2, 32, 4), 128, False),  # j < 1: one part alone
        ((2, 2, 32, 1), 100, False),  # all parts that run
        ((2, 2, 32, 1), 96, True),
        ((2, 2, 32, 8), 640, False),  # (i * 2 + j) * 32 + k < 80
        ((2, 3, 4), 20, False),  # i * 3 + j < 5
    ],
)
def test_a_condition_on_several_parts_and_not_on_the_last_two_is_told(
    extents: tuple[int, ...], total: int, shortened: bool
) -> None:
    cut = Cut([Leaf(total, False)], total, [object() for _ in extents], extents)
    assert bool(cut.shortened) is shortened
