"""Programs of measured candidates: read off their schedules, or interpreted from their rows.

Reading one takes milliseconds (tens on a GPU). A strategy of this package announces the design
space and the row of its candidates: these are interpreted in batches, by design space.
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
class ExpectedCandidate:
    """A candidate that is about to be measured.

    Attributes
    ----------
    schedule
        Its TVM `Schedule`.
    sketch, row
        Its design space and its decisions, int64 (columns,).
    program
        Read off its schedule already, where the design space has no closed form.
    """

    schedule: Any
    sketch: Sketch
    row: IntArray
    program: SketchProgram | None = None


class Reader:
    """Programs of candidates; expected ones are not read."""

    def __init__(self) -> None:
        self._expected: dict[str, tuple[ExpectedCandidate, ...]] = {}

    def expect(self, task: str, candidates: Sequence[ExpectedCandidate]) -> None:
        """The next candidates of a task, in the order in which they will come."""
        self._expected[task] = tuple(candidates)

    def programs(
        self, task: str, target: Any, candidates: Sequence[Any]
    ) -> list[tuple[IntArray, SketchProgram]]:
        """Programs of measure candidates, each with the places of its rows among them.

        Unreadable candidates and untuned functions (unlike all schedules) are left out. The places
        ascend only within each program.
        """
        programs: list[tuple[IntArray, SketchProgram]] = []
        unread = set(range(len(candidates)))
        for places, program in self._known(task, candidates):
            if program.supported.all():
                programs.append((places, program))
                unread.difference_update(places.tolist())
        for place in sorted(unread):
            if is_untuned(candidates[place].sch.trace):
                continue
            try:
                program = read(candidates[place].sch.mod, target)
            except UnsupportedTrace as verdict:
                logger.debug("a candidate cannot be read: %s", verdict)
                continue
            programs.append((np.array([place], np.int64), program))
        return programs

    def _known(
        self, task: str, candidates: Sequence[Any]
    ) -> Iterator[tuple[IntArray, SketchProgram]]:
        """Places and programs of the candidates that are the expected ones."""
        groups: dict[int, list[tuple[int, ExpectedCandidate]]] = {}
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
    candidates: Sequence[Any], expected: Sequence[ExpectedCandidate]
) -> Iterator[tuple[int, ExpectedCandidate]]:
    """Places of candidates, and the expected candidates there.

    TVM passes the candidates in their order, without those that could not be built.
    """
    at = 0
    for place, candidate in enumerate(candidates):
        match = next(
            (i for i in range(at, len(expected)) if candidate.sch.same_as(expected[i].schedule)),
            None,
        )
        if match is not None:
            at = match + 1
            yield place, expected[match]
