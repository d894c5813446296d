"""Wrapper of a search strategy that enforces budgets and records trials.

MetaSchedule ends a task when its strategy returns None, and has no other way to stop. The wrapper
asks the strategy for candidates, limits the batch to the budget, announces it to the ledger, and
returns None when the session is over, or when the task has run out of patience, of new candidates,
or has no success. An exception in the strategy ends its task only.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from pruner_ms.records.database import trace_id
from pruner_ms.session.ledger import Announced, Ledger
from pruner_ms.session.progress import Progress, TaskState
from pruner_ms.tvm_compat.paths import derived_object, module_key, ms, plain

log = logging.getLogger(__name__)

_EMPTY_BATCHES = 8
"""Consecutive batches without a new candidate after which the space counts as exhausted."""
NO_CANDIDATE = "space exhausted"
"""Reason for the end of a task."""
_HOPELESS_TRIALS = 32
"""Trials without a success after which a task ends; otherwise the gradient scheduler would spend
the rest of the budget on it."""


@dataclass
class Guarded:
    """The task of a guarded strategy, and the session's bookkeeping."""

    task: TaskState
    workload: str
    progress: Progress
    ledger: Ledger


class _GuardedStrategy(ms.search_strategy.PySearchStrategy):
    """Asks `inner` for candidates while the session runs.

    Parameters
    ----------
    inner
        A MetaSchedule search strategy, of any kind.
    guarded
        The task and the session's bookkeeping.
    """

    def __init__(self, inner: Any, guarded: Guarded) -> None:
        super().__init__()
        self.inner = inner
        self.guarded = guarded
        self.empty = 0

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.inner._initialize_with_tune_context(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Any,
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Prepare the inner strategy; a failure ends the task."""
        try:
            self.inner.pre_tuning(
                max_trials, num_trials_per_iter, design_spaces, database, cost_model
            )
        except Exception as error:  # a strategy may raise anything
            self._fail(error)

    def post_tuning(self) -> None:
        """Let the inner strategy clean up."""
        try:
            self.inner.post_tuning()
        except Exception as error:  # all results are stored already
            log.debug("post_tuning of %s failed: %s", self.guarded.task.name, error)

    def generate_measure_candidates(self) -> Any:
        """The next batch, or None when the task is over."""
        reason = self._over()
        if reason is not None:
            self.guarded.progress.end(self.guarded.task, reason)
            return None
        try:
            candidates = self.inner.generate_measure_candidates()
        except Exception as error:  # a strategy may raise anything
            self._fail(error)
            return None
        if candidates is None:
            fault = getattr(getattr(self.inner, "_inst", self.inner), "fault", None)
            reason = NO_CANDIDATE if fault is None else "search failed"
            self.guarded.progress.end(self.guarded.task, reason, fault or "")
            return None
        return self._admit(list(candidates))

    def _over(self) -> str | None:
        task, progress = self.guarded.task, self.guarded.progress
        if task.ended is not None:
            return task.ended
        over = progress.over()
        if over is not None:
            return over
        if self.empty >= _EMPTY_BATCHES:
            return NO_CANDIDATE
        if task.best_s is None and task.trials >= _HOPELESS_TRIALS:
            return "no valid schedule"
        return "patience" if progress.budget.out_of_patience(task.since_gain) else None

    def _admit(self, candidates: list[Any]) -> list[Any]:
        """Announce candidates; new trials only within the budget."""
        progress, task = self.guarded.progress, self.guarded.task
        left = progress.budget.trials - progress.claimed
        admitted, new = [], 0
        for candidate in candidates:
            if new >= left:
                break
            new += self._announce(candidate)
            admitted.append(candidate)
        task.in_flight += new
        self.empty = 0 if new else self.empty + 1
        return admitted

    def _announce(self, candidate: Any) -> bool:
        trace = plain(candidate.sch.trace.as_json())
        announced = Announced(self.guarded.workload, trace, trace_id(trace))
        return self.guarded.ledger.announce(module_key(candidate.sch.mod), announced)

    def notify_runner_results(self, measure_candidates: Any, results: Any) -> None:
        """Pass on the results; a failure ends the task, the results are stored."""
        try:
            self.inner.notify_runner_results(measure_candidates, results)
        except Exception as error:  # a strategy may raise anything
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        task = self.guarded.task
        log.error("the search of task %s failed", task.name, exc_info=error)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        self.guarded.progress.end(task, "search failed", lines[-1][:300])

    def clone(self) -> Any:
        """A wrapper for the same task around a clone of the strategy."""
        return GuardedStrategy(self.inner.clone(), self.guarded)


GuardedStrategy: Any = derived_object(_GuardedStrategy)
