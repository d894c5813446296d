"""The stages of a run: each is announced and timed, and what a user should read is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pruner_ms.clock import awake
from pruner_ms.integration.events import Events, Told

log = logging.getLogger(__name__)


class Stages:
    """The stages of one run so far.

    Parameters
    ----------
    events
        Told of each.

    Attributes
    ----------
    events
        The same; one that fails is not told again.
    seconds
        Wall seconds of each stage that is over, by name, summed if it came several times; pauses
        are not counted.
    notes
        What the user should read.
    """

    def __init__(self, events: Events) -> None:
        self.events = Told(events)
        self.seconds: dict[str, float] = {}
        self.notes: list[str] = []
        self._started = awake()

    @contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """What happens within is a stage; `text` is for a person."""
        self.events.stage(text)
        log.info("%s", text)
        start = awake()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + awake() - start

    def note(self, text: str) -> None:
        """Something the user should read, once."""
        if text not in self.notes:
            self.notes.append(text)
            self.events.note(text)

    def times(self) -> dict[str, float]:
        """Wall seconds of the stages, and in total until now."""
        return {**self.seconds, "total": awake() - self._started}
