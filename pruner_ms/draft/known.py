"""Figures of kinds of rows that were computed before.

The design spaces of a task share statements, and a search meets the same forms of them again and
again: what was computed once is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from pruner_ms.draft.columns import Column
from pruner_ms.types import IntArray

MOST_KINDS = 1 << 16
"""Kinds that are kept, 60 bytes each; at more all are forgotten."""


@dataclass(frozen=True)
class _Table:
    """Kinds of one structure: marks, ascending, and figures, float32 (F, K)."""

    marks: IntArray
    figures: Column


class Known:
    """Figures of kinds of rows by structure and mark."""

    def __init__(self) -> None:
        self._tables: dict[Hashable, _Table] = {}
        self._count = 0

    def clear(self) -> None:
        """Forget all figures."""
        self._tables, self._count = {}, 0

    def __len__(self) -> int:
        return self._count

    def figures(
        self, structure: Hashable, marks: IntArray, compute: Callable[[], Column]
    ) -> Column:
        """Figures of some kinds, float32 (F, K).

        Parameters
        ----------
        marks
            Of the kinds, all different, int64 (K,).
        compute
            Gives the figures of all of these kinds; asked if one of them is new.
        """
        table = self._tables.get(structure)
        if table is None:
            return self._added(structure, None, marks, compute())
        place = np.minimum(np.searchsorted(table.marks, marks), len(table.marks) - 1)
        old = table.marks[place] == marks
        if old.all():
            return table.figures[:, place]
        found = compute()
        found[:, old] = table.figures[:, place[old]]
        self._added(structure, table, marks[~old], found[:, ~old])
        return found

    def _added(
        self, structure: Hashable, table: _Table | None, marks: IntArray, figures: Column
    ) -> Column:
        """Keep the figures of new kinds; all others go if they are too many."""
        found = figures
        if self._count + len(marks) > MOST_KINDS:
            self.clear()
            table = None
        self._count += len(marks)
        if table is not None:
            marks = np.concatenate([table.marks, marks])
            figures = np.concatenate([table.figures, figures], axis=1)
        order = np.argsort(marks)
        self._tables[structure] = _Table(marks[order], figures[:, order])
        return found
