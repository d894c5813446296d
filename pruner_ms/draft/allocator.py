"""Malloc settings (glibc) that let the next chunk of rows reuse the memory of the last one.

By default every array of 128 KiB or more is mapped anew, and memory freed at the end of the heap
goes back to the kernel: page faults took a quarter of the time of a draft.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""`M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` of `malloc.h`."""

KEPT_BYTES = 1 << 28
"""Free memory at the end of the heap that is not returned to the kernel."""

MAPPED_BYTES = 1 << 22
"""Least size of an array that gets a mapping of its own."""


@cache
def keep_pages() -> bool:
    """Set both limits, once in a process; False where the C library has none."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES)) and bool(
        mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)
    )
