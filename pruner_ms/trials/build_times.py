"""Build seconds by module, from builder to search: MetaSchedule's results have no field for them.

Both are in one process. Only the latest builds are stored.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

LATEST = 4096
"""Capacity in builds."""

_lock = Lock()
_seconds: OrderedDict[str, float] = OrderedDict()


def note(module: str, seconds: float) -> None:
    """Store a build by the structural hash of its module; the limit if it timed out."""
    with _lock:
        _seconds[module] = seconds
        _seconds.move_to_end(module)
        while len(_seconds) > LATEST:
            _seconds.popitem(last=False)


def take(module: str) -> float | None:
    """Remove and return the seconds of a build; None if there are none."""
    with _lock:
        return _seconds.pop(module, None)
