"""Blocks of a schedule by name, whatever the version calls them."""

from __future__ import annotations

from typing import Any

from pruner_ms.tvm_compat.paths import ScheduleError


def get_block(schedule: Any, name: str) -> Any:
    """The block of a name in the schedule's `main`; a `ScheduleError` where there is none."""
    get = getattr(schedule, "get_sblock", None) or schedule.get_block
    return get(name)


def has_block(schedule: Any, name: str) -> bool:
    """Whether there is a block of that name; the schedule stays as it is."""
    try:
        get_block(schedule.copy(), name)
    except ScheduleError:
        return False
    return True
