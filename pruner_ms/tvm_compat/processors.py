"""Which processors there are to work with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def _now() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


_AT_IMPORT = _now()
"""Read when the package is imported: once TVM has run a kernel in the process, it binds the main
thread to the fastest cores, on some machines to a few of many."""


def usable() -> int:
    """Logical CPUs that this process was started on (`taskset`, containers)."""
    return len(_AT_IMPORT)


def processors() -> list[int]:
    """Their numbers, ascending."""
    return sorted(_AT_IMPORT)


@contextmanager
def all_usable() -> Iterator[None]:
    """Inside the block this thread, and a process that it starts, may use all of them again."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with suppress(OSError):  # some may have been taken away since
        os.sched_setaffinity(0, _AT_IMPORT)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)
