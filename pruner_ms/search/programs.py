"""Programs of candidates, interpreted in batches by design space and cached."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pruner_ms.search.candidate import Candidate
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import DecisionSpace
from pruner_ms.types import IntArray


@dataclass(frozen=True, eq=False)
class Programs:
    """Choices of a task with the design spaces they are from.

    Attributes
    ----------
    space
        The task's design spaces.
    candidates
        Each of a closed-form design space, or with a program of its own.
    """

    space: DecisionSpace
    candidates: list[Candidate]

    @cached_property
    def parts(self) -> list[tuple[IntArray, SketchProgram]]:
        """Programs, each with the places of its rows among the candidates, ascending."""
        parts: list[tuple[IntArray, SketchProgram]] = []
        by_sketch: dict[int, list[int]] = {}
        for place, candidate in enumerate(self.candidates):
            if candidate.program is None:
                by_sketch.setdefault(candidate.sketch, []).append(place)
            else:
                parts.append((np.array([place], np.int64), candidate.program))
        for sketch, members in by_sketch.items():
            rows = np.stack([self.candidates[place].row for place in members])
            parts.append((np.array(members, np.int64), self.space[sketch].program(rows)))
        return parts
