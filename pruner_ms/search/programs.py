"""The programs of some choices: interpreted a design space at a time, and once for all who ask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pruner_ms.search.choice import Choice
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
    choices
        What is asked about; each of a closed-form design space, or with a program of its own.
    """

    space: DecisionSpace
    choices: list[Choice]

    @cached_property
    def parts(self) -> list[tuple[IntArray, SketchProgram]]:
        """Programs, each with the places of its rows among the choices, ascending."""
        found: list[tuple[IntArray, SketchProgram]] = []
        by_sketch: dict[int, list[int]] = {}
        for place, choice in enumerate(self.choices):
            if choice.program is None:
                by_sketch.setdefault(choice.sketch, []).append(place)
            else:
                found.append((np.array([place], np.int64), choice.program))
        for sketch, members in by_sketch.items():
            rows = np.stack([self.choices[place].row for place in members])
            found.append((np.array(members, np.int64), self.space[sketch].program(rows)))
        return found
