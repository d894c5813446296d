"""Calls of MetaSchedule's task schedulers: fewer trials where that is set, and what we did in them.

`tune_tir`, `tune_relax`, `tune_relay` and the Relax passes all end in `TaskScheduler.tune`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pruner_ms.errors import OptionError
from pruner_ms.registry.patches import Patches

TRIALS = ("max_trials_global", "max_trials_per_task")
SCALE = "trials_scale"


@dataclass
class Tally:
    """What happened in the calls of a process.

    Attributes
    ----------
    calls, tasks
        Calls of a task scheduler, and the tasks that they were given.
    ours
        Tasks that our search tuned.
    measured, failed
        Candidates that our search chose, and those of them that failed.
    """

    calls: int = 0
    tasks: int = 0
    ours: int = 0
    measured: int = 0
    failed: int = 0

    def line(self) -> str:
        """One line for a person."""
        if not self.calls:
            return "nothing was tuned"
        return (
            f"{self.calls} tuning calls, {self.tasks} tasks; our search tuned {self.ours} of them "
            f"and measured {self.measured} candidates ({self.failed} failed)"
        )


def scaled(trials: int, scale: float) -> int:
    """A number of trials times a factor, at least one."""
    return max(1, round(trials * scale))


def check_scale(scale: Any) -> None:
    """Refuse a factor that no number of trials can be multiplied by.

    Raises
    ------
    OptionError
        It is no positive number.
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < 1e6:
        raise OptionError(f"{SCALE}={scale!r} cannot be used; give a factor such as 0.25")


def patch_calls(
    ms: ModuleType,
    patches: Patches,
    settings: Callable[[], Mapping[str, Any]],
    tally: Tally,
) -> None:
    """Wrap `TaskScheduler.tune`.

    Parameters
    ----------
    ms
        The `meta_schedule` package.
    patches
        Where the original is kept.
    settings
        What `pruner_ms.defaults` has set at the time of the call.
    tally
        Counts the calls.
    """
    owner = ms.task_scheduler.TaskScheduler
    stock = owner.tune
    if hasattr(stock, "__pruner_ms__"):
        return
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def tune(*args: Any, **kwargs: Any) -> Any:
        from pruner_ms.search import funnels  # needs numpy: not at import
        from pruner_ms.trials.cores import tuning

        call = signature.bind(*args, **kwargs)
        scale = settings().get(SCALE)
        for name in TRIALS:
            if scale is not None and call.arguments.get(name) is not None:
                call.arguments[name] = scaled(int(call.arguments[name]), scale)
        before = dict(funnels.published())
        try:
            with tuning(task.target for task in call.arguments["tasks"]):
                return stock(*call.args, **call.kwargs)
        finally:
            ours = [f for name, f in funnels.published().items() if before.get(name) is not f]
            tally.calls += 1
            tally.tasks += len(call.arguments["tasks"])
            tally.ours += len(ours)
            tally.measured += sum(funnel.measured for funnel in ours)
            tally.failed += sum(funnel.failed for funnel in ours)

    tune.__pruner_ms__ = True  # type: ignore[attr-defined]
    patches.replace(owner, "tune", tune)
