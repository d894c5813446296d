"""A clock that stands still while this process does: a pause is nobody's time-out.

A process is stopped by Ctrl-Z, with its container or virtual machine, by a debugger, and its clock
goes on. Whoever then compares that clock with a deadline blames a candidate that was stopped as
well. So every wait of ours that ends after some time, and every budget in seconds, asks `awake`. A
thread looks at the clock all the while: where it could not for `PAUSE_SECONDS`, nobody could.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

PAUSE_SECONDS = 2.0
"""What lasts longer is a pause; a machine with too much to do lets a thread wait for less."""

_BEAT_SECONDS = 0.25
_TICK_SECONDS = 0.1
_TRIES = 3
"""A candidate that keeps the whole machine from running looks like a pause each time."""

_T = TypeVar("_T")


class AwakeClock:
    """Seconds without pauses, for whoever asks again within `PAUSE_SECONDS`.

    Parameters
    ----------
    now
        Seconds, pauses among them.

    Attributes
    ----------
    pauses
        How many there were.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._lock = now, threading.Lock()
        self._last, self._lost = now(), 0.0
        self.pauses = 0

    def __call__(self) -> float:
        """Seconds since some moment."""
        with self._lock:
            now = self._now()
            gap = now - self._last
            if gap > PAUSE_SECONDS:
                self._lost += gap
                self.pauses += 1
            self._last = now
            return now - self._lost


_shared: AwakeClock | None = None
_making = threading.Lock()


def _clock() -> AwakeClock:
    global _shared
    with _making:
        if _shared is None:
            _shared = AwakeClock()
            # at the interpreter's end there are no threads any more, and waits are short
            with contextlib.suppress(RuntimeError):
                threading.Thread(
                    target=_beat, args=(_shared,), name="pruner-ms-clock", daemon=True
                ).start()
        return _shared


def _beat(clock: AwakeClock) -> None:
    while True:
        time.sleep(_BEAT_SECONDS)
        clock()


def _forget() -> None:
    """In a fork: no thread looks at the clock yet, and nobody holds the lock."""
    global _shared, _making
    _shared, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def awake() -> float:
    """Seconds since some moment, those not counted in which this process stood still."""
    return _clock()()


def pauses() -> int:
    """How often this process stood still so far."""
    clock = _clock()
    clock()
    return clock.pauses


def undisturbed(call: Callable[[], _T]) -> _T:
    """What a call gives that no pause fell into; after three tries, what it gave."""
    for _ in range(_TRIES):
        before = pauses()
        value = call()
        if pauses() == before:
            break
    return value


def run(command: Sequence[str], seconds: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with captured text, and a limit that a pause does not use up.

    Raises
    ------
    subprocess.TimeoutExpired
        The process was killed after so many seconds; with what it wrote until then.
    OSError
        It cannot be started.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, **options) as process:  # type: ignore[call-overload]
        end = awake() + seconds
        try:
            while True:
                try:
                    said = process.communicate(timeout=_TICK_SECONDS)
                    return subprocess.CompletedProcess(command, process.returncode, *said)
                except subprocess.TimeoutExpired as error:
                    if awake() > end:
                        error.timeout = seconds
                        raise
        except BaseException:  # an interrupt, too: the process does not stay behind
            process.kill()
            raise
