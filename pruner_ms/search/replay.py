"""Replay: applies traces and MetaSchedule's postprocessors, in threads.

The outcome of a candidate depends on its trace and its seed only, so it is the same for any number
of threads.

A candidate that raises is refused, as one that a postprocessor rejects: TVM raises half a dozen
classes for a schedule that it cannot express. An exception of a user's postprocessor is a bug,
though, and is logged once with its traceback.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from threading import Lock, local
from typing import Any

import tvm

from pruner_ms.errors import last_line
from pruner_ms.tvm_compat.paths import Schedule, is_users_postproc, load_own_json, module_key

_log = logging.getLogger(__name__)

SEED_RANGE = 2**31 - 1
"""TVM takes seeds in [1, 2**31 - 1]."""


@dataclass(frozen=True)
class Replayed:
    """A schedule after its postprocessors, and the structural hash of its module."""

    schedule: Any
    key: str


class Replayer:
    """Replays traces of one task.

    Parameters
    ----------
    mod
        The task's module.
    postprocs
        MetaSchedule postprocessors, applied in order; each may reject the candidate.
    threads
        Threads to replay in.
    log
        Logger for the faults of a user's postprocessors.

    Attributes
    ----------
    refusals
        Candidates refused so far, by reason.
    """

    # redundant for closed-form rows, whose GpuFacts.valid is exact; it lowers the program
    _CLOSED_FORM = "VerifyGPUCode"

    def __init__(
        self,
        mod: Any,
        postprocs: Sequence[Any],
        threads: int,
        log: logging.Logger = _log,
    ) -> None:
        self._mod = tvm.ir.save_json(mod)
        self._postprocs = tuple(postprocs)
        self._postprocs_beyond_closed_form = tuple(
            p for p in postprocs if type(p).__name__ != self._CLOSED_FORM
        )
        self._users = {str(p) for p in postprocs if is_users_postproc(p)}
        self._threads = max(1, threads)
        self._local = local()
        self._log = log
        self._lock = Lock()
        self.refusals: Counter[str] = Counter()

    def replay(self, traces: Sequence[tuple[Any, int]]) -> list[Replayed | None]:
        """Replay (trace, seed) pairs; None for a candidate that a rule or postprocessor refuses.

        Seeds are in [1, 2**31 - 1] and feed decisions that a postprocessor draws.
        """
        return list(self.stream(traces))

    def stream(
        self, traces: Sequence[tuple[Any, int]], judged: bool = False
    ) -> Iterator[Replayed | None]:
        """Like `replay`, in chunks of a few per thread, so that the caller can stop early.

        Parameters
        ----------
        judged
            Whether the closed form has verified the target's limits already.
        """
        applied = self._postprocs_beyond_closed_form if judged else self._postprocs
        if self._threads == 1 or len(traces) < 4:
            yield from (self._one(trace, seed, applied) for trace, seed in traces)
            return
        rest = iter(traces)
        with ThreadPoolExecutor(self._threads) as pool:
            while chunk := list(islice(rest, 8 * self._threads)):
                yield from pool.map(lambda pair: self._one(pair[0], pair[1], applied), chunk)

    def _module(self) -> Any:
        # a copy per thread: schedules copy on write, and two threads must not share the original
        if not hasattr(self._local, "mod"):
            self._local.mod = load_own_json(self._mod)
        return self._local.mod

    def _one(self, trace: Any, seed: int, applied: Sequence[Any]) -> Replayed | None:
        schedule = Schedule(self._module(), seed=seed, error_render_level="none")
        by = "its trace"
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            for postproc in applied:
                by = str(postproc)
                if not postproc.apply(schedule):
                    self._refuse(by)
                    return None
        except Exception as error:  # of any class: see above
            self._refuse(by, error)
            return None
        return Replayed(schedule, module_key(schedule.mod))

    def _refuse(self, by: str, error: Exception | None = None) -> None:
        """Count a refusal; the first of its kind is logged, a user's bug as a warning."""
        reason = by if error is None else f"{by} ({type(error).__name__})"
        with self._lock:
            self.refusals[reason] += 1
            first = self.refusals[reason] == 1
        if first and error is not None:
            level = logging.WARNING if by in self._users else logging.DEBUG
            message = last_line(error)
            self._log.log(
                level, "a candidate is refused by %s: %s", reason, message, exc_info=error
            )
