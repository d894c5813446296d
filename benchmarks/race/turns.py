"""Turns: a tuner is a process that stops after each of its batches until it is told to go on.

Its clock runs only while it has the turn, so that tuners which share a machine pay for themselves
alone. One JSON object a line goes from the tuner to the race (`k` names its kind; "turn" gives the
turn back, "end" is the last one), and the word "go" the other way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

GO = "go"


class Clock:
    """Wall seconds, the time outside one's own turns left out."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._before = 0.0

    def start(self) -> None:
        """The turn begins."""
        self._start = time.perf_counter()

    def stop(self) -> None:
        """The turn ends."""
        self._before, self._start = self.seconds(), None

    def reset(self) -> None:
        """Nothing so far counts."""
        self._start, self._before = None, 0.0

    def seconds(self) -> float:
        """Seconds of one's own turns so far."""
        running = 0.0 if self._start is None else time.perf_counter() - self._start
        return self._before + running


class Line:
    """The tuner's end: messages out, and waiting for the turn.

    Parameters
    ----------
    out, into
        Streams of text. Nothing else may write to `out`.
    clock
        Runs from `wait` to `wait`.
    """

    def __init__(self, out: IO[str], into: IO[str], clock: Clock) -> None:
        self.out, self.into, self.clock = out, into, clock

    @classmethod
    def standard(cls, clock: Clock) -> Line:
        """Over standard output, which goes to standard error for everybody else from now on."""
        out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        return cls(out, sys.stdin, clock)

    def say(self, kind: str, **facts: Any) -> None:
        """Send one message."""
        self.out.write(json.dumps({"k": kind, **facts}) + "\n")
        self.out.flush()

    def wait(self) -> None:
        """Give the turn back, and wait for the next one; the end of the race ends the process."""
        self.clock.stop()
        self.say("turn")
        if self.into.readline().strip() != GO:
            raise SystemExit("the race is over")
        self.clock.start()


class Player:
    """The race's end: a tuner's process.

    Parameters
    ----------
    name
        Of the tuner.
    command
        Starts it; it begins by waiting for its first turn.
    log
        Where its standard error goes.
    env
        Environment variables beside those of this process.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.over = False
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self.log = log

    def ready(self) -> list[dict[str, Any]]:
        """What it says before its first turn."""
        return list(self._messages())

    def turn(self) -> list[dict[str, Any]]:
        """Give it a turn; what it says until it gives the turn back, or ends."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(GO + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended by itself; what it said last is still to be read
        return list(self._messages())

    def close(self) -> None:
        """End it with everything that it started."""
        self.over = True
        with_group = getattr(os, "killpg", None)
        if self._process.poll() is None and with_group is not None:
            with_group(self._process.pid, 15)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                with_group(self._process.pid, 9)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()

    def _messages(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            message = dict(json.loads(text))
            if message["k"] == "turn":
                return
            yield message
            if message["k"] == "end":
                self.over = True
                return
        self.over = True
        code = self._process.wait()
        yield {"k": "end", "why": f"it ended with exit code {code}; see {self.log.name}"}
