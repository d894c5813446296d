"""Where running searches publish their funnels, for progress lines and reports.

A strategy lives inside TVM's C++ objects and cannot be reached from the caller; its counts can.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from pruner_ms.types import Funnel

_lock = Lock()
_funnels: dict[str, Funnel] = {}


def publish(task: str, funnel: Funnel) -> None:
    """Make a task's funnel visible; the search goes on counting in the same object."""
    with _lock:
        _funnels[task] = funnel


def published() -> dict[str, Funnel]:
    """The funnels themselves, by task name: a search that begins publishes one of its own."""
    with _lock:
        return dict(_funnels)


def snapshot() -> dict[str, Funnel]:
    """A copy of every published funnel, by task name."""
    with _lock:
        return {
            task: replace(funnel, seconds=dict(funnel.seconds)) for task, funnel in _funnels.items()
        }


def reset() -> None:
    """Forget every funnel (at the start of a session)."""
    with _lock:
        _funnels.clear()
