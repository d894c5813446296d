"""The state of a running session, for screens, reports and budgets."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pruner_ms.clock import awake
from pruner_ms.session.budget import Budget
from pruner_ms.types import Measurement, Ok

log = logging.getLogger(__name__)


@dataclass
class TaskState:
    """One task's trials.

    Attributes
    ----------
    name, weight, flops
        As extracted: calls in the network, floating-point operations of one call.
    resumed, trials
        Trials of earlier runs, and all of them (failures included).
    failures
        Failed trials by kind, those of earlier runs under "earlier".
    first_s, best_s
        First and lowest valid latency in seconds.
    untuned_s
        Seconds of the untuned function, which is no trial; None: it was not measured, or failed.
    in_flight
        Proposed trials without an outcome yet.
    since_gain
        Trials since the last improvement by `min_gain`.
    ended
        Why the task ended; None while it runs.
    message
        Error message, if any.
    """

    name: str
    weight: float
    flops: float
    resumed: int = 0
    trials: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    first_s: float | None = None
    best_s: float | None = None
    untuned_s: float | None = None
    in_flight: int = 0
    since_gain: int = 0
    ended: str | None = None
    message: str = ""

    @property
    def gain(self) -> float | None:
        """The untuned function's latency over the best."""
        if self.untuned_s is None or self.best_s is None:
            return None
        return self.untuned_s / self.best_s

    @property
    def gflops(self) -> float | None:
        """Giga floating-point operations per second of the best."""
        return None if self.best_s is None else self.flops / self.best_s / 1e9


@dataclass(frozen=True)
class CurvePoint:
    """State of the session after a trial that improved a task.

    Attributes
    ----------
    seconds, trials
        Since the start of this run; trials of all runs.
    task, best_s
        The task that improved and its latency.
    total_s
        Sum of weight times best latency over all tasks, None while a task has none.
    """

    seconds: float
    trials: int
    task: str
    best_s: float
    total_s: float | None


Observer = Callable[["Progress"], None]
"""Called after each trial, and when a task or the session ends."""


class Progress:
    """Counts trials of a session and decides when it is over.

    Parameters
    ----------
    tasks
        Initial states.
    budget
        The limits.
    observer
        Called at each change.
    stop
        Set from outside when the user asks to stop.
    clock
        Seconds, for tests.

    Attributes
    ----------
    curve
        Improvements in order.
    notes
        Notes for the user.
    """

    def __init__(
        self,
        tasks: Sequence[TaskState],
        budget: Budget,
        observer: Observer | None = None,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = awake,
    ) -> None:
        self.tasks = list(tasks)
        self.budget = budget
        self.curve: list[CurvePoint] = []
        self.stop = stop or threading.Event()
        self.notes: list[str] = []
        self._observer = observer
        self._clock = clock
        self._start = clock()

    @property
    def seconds(self) -> float:
        """Seconds since the start of this run, pauses not counted."""
        return self._clock() - self._start

    @property
    def trials(self) -> int:
        """Trials of all tasks, earlier runs included."""
        return sum(task.trials for task in self.tasks)

    @property
    def claimed(self) -> int:
        """Trials made and in flight."""
        return self.trials + sum(task.in_flight for task in self.tasks)

    @property
    def resumed(self) -> int:
        """Trials that earlier runs made."""
        return sum(task.resumed for task in self.tasks)

    @property
    def failed(self) -> int:
        """Failed trials."""
        return sum(sum(task.failures.values()) for task in self.tasks)

    @property
    def total_s(self) -> float | None:
        """Sum of weight times best latency, None while a task that can run has none."""
        alive = [t for t in self.tasks if not (t.best_s is None and t.ended)]
        if not alive or any(t.best_s is None for t in alive):
            return None
        return math.fsum(t.weight * t.best_s for t in alive if t.best_s is not None)

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end of the budget at the speed so far, None before the first trial."""
        made = self.trials - self.resumed
        if made <= 0:
            return self.budget.seconds
        left = (self.budget.trials - self.trials) * self.seconds / made
        if self.budget.seconds is not None:
            left = min(left, self.budget.seconds - self.seconds)
        return max(0.0, left)

    def adopt(self, task: TaskState, outcome: Measurement) -> None:
        """Count a trial of an earlier run."""
        task.resumed += 1
        task.trials += 1
        if not isinstance(outcome, Ok):
            task.failures["earlier"] += 1
        elif task.best_s is None or outcome.latency < task.best_s:
            task.best_s = outcome.latency
            task.first_s = task.first_s or outcome.latency

    def record(self, task: TaskState, outcome: Measurement) -> None:
        """Count a new trial."""
        task.trials += 1
        task.in_flight = max(0, task.in_flight - 1)
        task.since_gain += 1
        if isinstance(outcome, Ok):
            latency = outcome.latency
            task.first_s = task.first_s or latency
            if self.budget.improves(latency, task.best_s):
                task.since_gain = 0
            if task.best_s is None or latency < task.best_s:
                task.best_s = latency
                self.curve.append(
                    CurvePoint(self.seconds, self.trials, task.name, latency, self.total_s)
                )
        else:
            task.failures[outcome.kind.value] += 1
        self.changed()

    def untuned(self, task: TaskState, outcome: Measurement) -> None:
        """Record the outcome of a task's untuned function."""
        if isinstance(outcome, Ok):
            task.untuned_s = outcome.latency
            self.changed()

    def over(self) -> str | None:
        """Why the session is over, None while it is not."""
        if self.stop.is_set():
            return "interrupted"
        return self.budget.spent(self.claimed, self.seconds)

    def end(self, task: TaskState, reason: str, message: str = "") -> None:
        """End a task."""
        if task.ended is None:
            task.ended, task.message = reason, message
            self.changed()

    def note(self, text: str) -> None:
        """Add a note for the user, once."""
        if text not in self.notes:
            self.notes.append(text)
            self.changed()

    def changed(self) -> None:
        """Call the observer; one that fails is not called again, and the session continues."""
        if self._observer is None:
            return
        try:
            self._observer(self)
        except (Exception, SystemExit) as error:  # rich raises the latter for a broken pipe
            self._observer = None
            log.error("the tuning goes on, and its observer is not told any more", exc_info=error)
