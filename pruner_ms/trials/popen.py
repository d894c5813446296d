"""TVM's pool of worker processes, ended without waiting for what is queued in it.

Its threads are Python's own, which the interpreter joins at its end: what is queued would be begun
then, one after the other, and each waited for until its time limit.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from pruner_ms.clock import awake

_SECONDS = 5.0
"""Within which threads end whose workers were killed."""

_POLL_SECONDS = 0.02


def end_pool(pool: Any) -> None:
    """Cancel what waits in a `PopenPoolExecutor`, and kill its workers; harmless twice.

    Its parts have no public names (TVM 0.17 to 0.27 call them the same), so each may be missing.
    TVM's own `shutdown` would wait: it closes pipes that a thread is reading.
    """
    threads = getattr(pool, "_threadpool", None)
    if threads is None:
        return
    threads.shutdown(wait=False, cancel_futures=True)
    end = awake() + _SECONDS
    _kill(pool)
    while any(thread.is_alive() for thread in getattr(threads, "_threads", ())):
        if awake() > end:
            return
        time.sleep(_POLL_SECONDS)
        _kill(pool)  # a thread that had just taken a candidate starts a worker for it all the same
    for worker in _workers(pool):
        worker.kill()  # nobody reads any more: the pipes are closed, and the process is waited for


def _workers(pool: Any) -> list[Any]:
    return list(getattr(pool, "_worker_map", {}).values())


def _kill(pool: Any) -> None:
    for worker in _workers(pool):
        process = getattr(worker, "_proc", None)
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
