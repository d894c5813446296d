"""Programs of measured candidates: read off their schedules, or known beforehand.

Reading one takes milliseconds (tens on a GPU). A strategy of this package knows the design space
and the row of what it asked for: these are interpreted together, a design space at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import Sketch
from pruner_ms.tvm_compat.untuned import is_untuned
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

        What cannot be read is left out, and untuned functions: they are unlike all schedules, and
        would teach little but that. The places of all programs ascend only within each.
        """
        found: list[tuple[IntArray, SketchProgram]] = []
        left = set(range(len(candidates)))
        for places, program in self._known(task, candidates):
            if program.supported.all():
                found.append((places, program))
                left.difference_update(places.tolist())
        for place in sorted(left):
            if is_untuned(candidates[place].sch.trace):
                continue
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
        groups: dict[int, list[tuple[int, Expected]]] = {}
        for place, one in _matched(candidates, self._expected.get(task, ())):
            if one.program is not None:
                yield np.array([place], np.int64), one.program
            elif one.sketch.closed:
                groups.setdefault(id(one.sketch), []).append((place, one))
            # schedules are large, and a network has many tasks
            self._expected.pop(task, None)
        for members in groups.values():
            rows = np.stack([one.row for _, one in members])
            places = np.array([place for place, _ in members], np.int64)
            with suppress(UnsupportedTrace):  # it has no closed form after all: they are read
                yield places, members[0][1].sketch.program(rows)


def _matched(
    candidates: Sequence[Any], expected: Sequence[Expected]
) -> Iterator[tuple[int, Expected]]:
    """Places of candidates, and what was expected there.

    TVM hands over the candidates in their order, without those that could not be built.
    """
    at = 0
    for place, candidate in enumerate(candidates):
        found = next(
            (i for i in range(at, len(expected)) if candidate.sch.same_as(expected[i].schedule)),
            None,
        )
        if found is not None:
            at = found + 1
            yield place, expected[found]
