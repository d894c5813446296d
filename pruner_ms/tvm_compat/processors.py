"""How many processors there are to work with."""

from __future__ import annotations

import os


def _now() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_AT_IMPORT = _now()
"""Asked with the package's import: TVM binds the main thread to the fastest cores, on some machines
to a few of many, once it has run a kernel in the process."""


def usable() -> int:
    """Logical CPUs that this process was started on (`taskset`, containers)."""
    return _AT_IMPORT
