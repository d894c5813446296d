"""A candidate in all stages of the funnel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.types import IntArray


@dataclass(frozen=True, eq=False)
class Candidate:
    """One candidate.

    Attributes
    ----------
    sketch
        Index of its design space.
    row
        Its decisions, int64 (columns,).
    key
        Its identity: equal for equal decisions of the same design space.
    latency
        Seconds by the draft.
    program
        Read off its replayed schedule, if the design space is not closed-form; None otherwise, and
        where that schedule cannot be read.
    replayed
        The replayed schedule (`replay.Replayed`); None before the replay.
    uniform
        Whether it was drawn uniformly, without the draft.
    origin
        Who chose it: "draft", "model", "chance", "descent", or "donor: " and which.
    compile_seconds
        Seconds of a build by the draft; NaN without one.
    """

    sketch: int
    row: IntArray
    key: bytes
    latency: float
    program: SketchProgram | None = None
    replayed: Any = None
    uniform: bool = False
    origin: str = "draft"
    compile_seconds: float = float("nan")

    def with_replayed(self, replayed: Any) -> Candidate:
        """The same candidate with its schedule."""
        return replace(self, replayed=replayed)
