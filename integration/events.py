"""What a run tells the outside while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pruner_ms.session.progress import Progress


class Events:
    """Does nothing; a screen overrides what it wants to show."""

    def stage(self, text: str) -> None:
        """A stage begins."""

    def note(self, text: str) -> None:
        """Something the user should read."""

    def tasks(self, tasks: Sequence[Any], skipped: Sequence[Any], trials: int) -> None:
        """The tasks (`relax.TaskInfo`, `relax.Skipped`) and the budget are known."""

    def progress(self, progress: Progress) -> None:
        """The session went on."""

    def tuned(self) -> None:
        """The session is over; what follows is compiling and checking."""
