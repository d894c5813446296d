"""Programs of measured candidates: read off their schedules, or known beforehand.

Reading one takes milliseconds (tens on a GPU). A strategy of this package knows the design space
and the row of what it asked for: these are interpreted together, a design space at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.lowered import read
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import Sketch
from pruner_ms.types import IntArray

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Expected:
    """A candidate that is about to be measured.

    Attributes
    ----------
    schedule
        Its TVM `Schedule`.
    sketch, row
        Its design space and its decisions, int64 (columns,).
    program
        What was read off its schedule already, where the design space has no closed form.
    """

    schedule: Any
    sketch: Sketch
    row: IntArray
    program: SketchProgram | None = None


class Reader:
    """Reads candidates; those that are expected it knows, once."""

    def __init__(self) -> None:
        self._expected: dict[str, tuple[Expected, ...]] = {}

    def expect(self, task: str, candidates: Sequence[Expected]) -> None:
        """The next candidates of a task, in the order in which they will come."""
        self._expected[task] = tuple(candidates)

    def programs(
        self, task: str, target: Any, candidates: Sequence[Any]
    ) -> list[tuple[IntArray, SketchProgram]]:
        """Programs of measure candidates, each with the places of its rows among them.

        What cannot be read is left out. The places of all programs ascend only within each.
        """
        found: list[tuple[IntArray, SketchProgram]] = []
        left = set(range(len(candidates)))
        for places, program in self._known(task, candidates):
            if program.supported.all():
                found.append((places, program))
                left.difference_update(places.tolist())
        for place in sorted(left):
            try:
                program = read(candidates[place].sch.mod, target)
            except UnsupportedTrace as verdict:
                logger.debug("a candidate cannot be read: %s", verdict)
                continue
            found.append((np.array([place], np.int64), program))
        return found

    def _known(
        self, task: str, candidates: Sequence[Any]
    ) -> Iterator[tuple[IntArray, SketchProgram]]:
        """Places and programs of the candidates that are the expected ones."""
        groups: dict[int, list[int]] = {}
        expected = self._expected.get(task, ())
        for place, (candidate, one) in enumerate(zip(candidates, expected, strict=False)):
            if not candidate.sch.same_as(one.schedule):
                continue
            if one.program is not None:
                yield np.array([place], np.int64), one.program
            else:
                groups.setdefault(id(one.sketch), []).append(place)
            # schedules are large, and a network has many tasks
            self._expected.pop(task, None)
        for places in groups.values():
            rows = np.stack([expected[i].row for i in places])
            yield np.array(places, np.int64), expected[places[0]].sketch.program(rows)
