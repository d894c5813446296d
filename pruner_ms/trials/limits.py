"""Memory limits of workers, and how workers end when the tuner does.

The first half is used by the tuner, the second half inside a worker. Only standard library: a
worker applies its limits before it imports anything large.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import sys
import threading
from pathlib import Path

_SHARE = 0.75
_FLOOR = 2 << 30
_NO_LIMIT = 1 << 60
_POLL_SECONDS = 2.0
_CGROUP_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """Bytes of memory available at most: physical memory or the container's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUP_FILES:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _NO_LIMIT:
            total = min(total, int(text))
    return total


def default_memory_limit() -> int:
    """Default memory limit of a worker: three quarters of the machine, at least 2 GiB."""
    return max(_FLOOR, int(_SHARE * machine_memory()))


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes; 0 when it cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def apply_limits(memory_limit_bytes: int | None) -> None:
    """Limit this process: memory, and no core dumps.

    The limit is on private writable memory (RLIMIT_DATA), not on address space: CUDA reserves
    hundreds of gigabytes of addresses that it never writes. If the machine runs out of memory
    nevertheless, the kernel kills a worker before the tuner (oom_score_adj).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_limit_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = memory_limit_bytes if hard < 0 else min(memory_limit_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        Path("/proc/self/oom_score_adj").write_text("500")
    except OSError:
        return  # no such file outside Linux: the other limits hold


def die_with_parent(life_fd: int) -> None:
    """End this process and its group when the tuner has ended in any way.

    `life_fd` is the reading end of a pipe that the tuner holds open and never writes to. The
    kernel sends SIGKILL to the group when the pipe breaks, even while a candidate holds the
    interpreter's lock. A thread watches as well, for kernels without this, and for a fork of the
    tuner that keeps the pipe open. PR_SET_PDEATHSIG is not used: it fires at the end of the
    *thread* that started the worker.
    """
    if sys.platform == "linux":
        fcntl.fcntl(life_fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life_fd, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(life_fd, fcntl.F_GETFL)
        fcntl.fcntl(life_fd, fcntl.F_SETFL, flags | fcntl.FASYNC)
    args = (life_fd, os.getppid())
    threading.Thread(target=_watch, args=args, name="pruner-ms-life", daemon=True).start()


def _watch(life_fd: int, parent: int) -> None:
    while os.getppid() == parent:
        readable, _, _ = select.select([life_fd], [], [], _POLL_SECONDS)
        if readable:
            break
    os.killpg(os.getpgrp(), signal.SIGKILL)


def give_back_pages() -> None:
    """Return the pages of freed memory to the system (`malloc_trim`), where the C library can.

    Arguments of candidates are aligned pieces of the heap; freed ones are often a little too small
    for the next, so that a worker would grow with every candidate.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
