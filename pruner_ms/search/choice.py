"""A candidate on its way through the funnel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.types import IntArray


@dataclass(frozen=True, eq=False)
class Choice:
    """One draft.

    Attributes
    ----------
    sketch
        Index of its design space.
    row
        Its decisions, int64 (columns,).
    key
        Identity of the draft: equal for equal decisions of the same design space.
    latency
        What the draft model predicts, in seconds.
    program
        Read off its replayed schedule where the design space is not closed-form, else None; None
        as well where that schedule cannot be read.
    replayed
        That schedule (`replay.Replayed`), None where nothing has been replayed yet.
    uniform
        Whether it was drawn uniformly, without asking the draft.
    origin
        Who chose it: "draft", "model", "chance", or "donor: " and which.
    compile_seconds
        What the draft predicts for a build; NaN where it did not.
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

    def with_replayed(self, replayed: Any) -> Choice:
        """The same draft with its schedule."""
        return replace(self, replayed=replayed)
