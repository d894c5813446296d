"""Budgets: trials, seconds, patience. Pure functions of numbers.

Notation: T trials allowed, n tasks, b candidates a batch. TVM's gradient scheduler gives every task
one batch before it compares them, so b is chosen such that these warm-up batches take at most a
quarter of T.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pruner_ms.errors import OptionError

_WARM_UP_SHARE = 4
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0, "": 1.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(d|h|min|m|s|)")


@dataclass(frozen=True)
class Budget:
    """When a session ends; the first limit reached ends it.

    Attributes
    ----------
    trials
        Measured candidates over all tasks, failures and earlier runs included.
    seconds
        Wall seconds of this run, pauses (`clock.awake`) not counted; None: no limit.
    patience
        Trials of a task without an improvement by `min_gain` after which the task ends; None: no
        limit.
    per_task
        Measured candidates of one task in this run; None: no limit.
    min_gain
        Relative improvement of a task's best latency that counts as one.
    """

    trials: int
    seconds: float | None = None
    patience: int | None = None
    min_gain: float = 0.005
    per_task: int | None = None

    def __post_init__(self) -> None:
        _require("trials", self.trials, self.trials >= 1, "at least 1")
        if self.seconds is not None:
            _require("time", self.seconds, self.seconds > 0, "a positive time such as 2h30m")
        if self.patience is not None:
            _require("patience", self.patience, self.patience >= 1, "at least 1")
        _require("min_gain", self.min_gain, 0 <= self.min_gain < 1, "a share in [0, 1)")

    def spent(self, trials: int, seconds: float) -> str | None:
        """Why the session is over, None while it is not."""
        if trials >= self.trials:
            return "budget"
        if self.seconds is not None and seconds >= self.seconds:
            return "time"
        return None

    def improves(self, latency: float, best: float | None) -> bool:
        """Whether a latency counts as an improvement of the best, in seconds."""
        return best is None or latency < best * (1.0 - self.min_gain)

    def out_of_patience(self, trials_since_gain: int) -> bool:
        """Whether a task has had too many trials without an improvement."""
        return self.patience is not None and trials_since_gain >= self.patience


def batch_size(trials: int, tasks: int, largest: int = 16) -> int:
    """Candidates per batch: T / (4 n), in [1, `largest`]; at least two if T allows each task four.

    Two candidates are chosen and built in the time of one.
    """
    each = trials // max(1, tasks)
    return max(1, min(largest, max(each // _WARM_UP_SHARE, min(2, each // 2))))


def total_trials(per_task: int, tasks: int) -> int:
    """Trials of an effort that states them per task."""
    return per_task * max(1, tasks)


def parse_duration(text: str) -> float:
    """Seconds in a text such as `2h30m`, `90s`, `1.5h` or `45` (seconds).

    Raises
    ------
    OptionError
        The text is no duration, or zero.
    """
    compact = text.strip().lower().replace(" ", "")
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise OptionError(f"{text!r} is no time; write it like 2h30m, 90s or 45m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds <= 0:
        raise OptionError(f"the time {text!r} is zero; give at least 1s")
    return seconds


def _require(name: str, value: object, holds: bool, wanted: str) -> None:
    if not holds:
        raise OptionError(f"{name}={value!r} cannot be used; give {wanted}")
