"""The loops around a block, and the leaves and digits that belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.forms import Leaf
from pruner_ms.symbolic.rows import Num, column
from pruner_ms.types import IntArray

Run = tuple[bool, IntArray, IntArray]
"""Whether a loop runs, its stride and extent, int64 (K,) each."""


@dataclass(frozen=True)
class Nest:
    """The loops around a block.

    Attributes
    ----------
    where
        Leaf -> position of its loop; missing leaves run within one iteration.
    digits
        Leaf -> its split loop, and the number of its digit.
    parts
        Split loop -> position and number of every part.
    fused
        Leaf -> leaves that were fused inside of it.
    """

    where: Mapping[Leaf, int]
    digits: Mapping[Leaf, tuple[Cut, int]]
    parts: Mapping[Cut, Sequence[tuple[int, int]]]
    fused: Mapping[Leaf, tuple[Leaf, ...]]

    def parts_of(
        self, cut: Cut, rows: IntArray, level: int, size: int
    ) -> list[tuple[bool, IntArray]]:
        """Whether each part of a split loop runs at a level, and its extent in some of `size` rows.

        The most significant part comes first.
        """
        places = {part: position for position, part in self.parts[cut]}
        return [(places[k] >= level, picked_rows(n, size, rows)) for k, n in enumerate(cut.extents)]


def picked_rows(value: Num, size: int, rows: IntArray) -> IntArray:
    """A number in some of `size` rows, int64 (K,)."""
    return np.asarray(column(value, size)[rows], np.int64)
