"""How many processors there are to work with."""

from __future__ import annotations

import os


def usable() -> int:
    """Logical CPUs that this process may run on; all of the machine's where nobody says."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
