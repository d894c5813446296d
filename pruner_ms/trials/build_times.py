"""Seconds that builds took, by module: MetaSchedule's results have no place for them.

A builder notes them, a search takes them, both in one process. Only the latest are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

LATEST = 4096
"""Builds that are remembered."""

_lock = Lock()
_seconds: OrderedDict[str, float] = OrderedDict()


def note(module: str, seconds: float) -> None:
    """Remember a build by the structural hash of its module; of one that timed out, the limit."""
    with _lock:
        _seconds[module] = seconds
        _seconds.move_to_end(module)
        while len(_seconds) > LATEST:
            _seconds.popitem(last=False)


def take(module: str) -> float | None:
    """The seconds of a build, forgotten thereby; None where no builder noted it."""
    with _lock:
        return _seconds.pop(module, None)
