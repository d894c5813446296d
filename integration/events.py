"""What a run tells the outside while it goes on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pruner_ms.session.progress import Progress

log = logging.getLogger(__name__)


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


class Told(Events):
    """Hands everything on until that fails once: a screen that is gone must not end a run.

    Parameters
    ----------
    events
        Who is told.
    """

    def __init__(self, events: Events) -> None:
        self._events: Events | None = events

    def _tell(self, what: str, *about: Any) -> None:
        if self._events is None:
            return
        try:
            getattr(self._events, what)(*about)
        except (Exception, SystemExit) as error:  # rich leaves by the latter when a pipe breaks
            self._events = None
            log.error("the run goes on, and nobody is told any more", exc_info=error)

    def stage(self, text: str) -> None:
        """Hand it on."""
        self._tell("stage", text)

    def note(self, text: str) -> None:
        """Hand it on."""
        self._tell("note", text)

    def tasks(self, tasks: Sequence[Any], skipped: Sequence[Any], trials: int) -> None:
        """Hand it on."""
        self._tell("tasks", tasks, skipped, trials)

    def progress(self, progress: Progress) -> None:
        """Hand it on."""
        self._tell("progress", progress)

    def tuned(self) -> None:
        """Hand it on."""
        self._tell("tuned")
