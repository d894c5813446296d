"""Curves of re-measured incumbents, and what is read from them: pure functions on arrays.

A tuner's curve is a step function: at each of its own seconds, and after each number of trials, its
value is the re-measured latency of the schedule that it held to be the best at that moment. It may
rise: a schedule that was the best by luck measures slower afterwards, and the tuner would have
returned it. The results of a round come at once: of several that were the best in turn, the last
alone was ever held, and nobody could have stopped before the round's last trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

SLACK = 1.03
"""The target is so much slower than what stock ends with."""


@dataclass(frozen=True)
class Curve:
    """Steps of one tuner in one block.

    Attributes
    ----------
    trial_seconds
        (m,) own seconds at which the results of the m trials came, ascending.
    counts
        (n,) trials done when each step begins, ascending, from 1.
    values
        (n,) re-measured latency of the incumbent from there on, seconds.
    end
        Own seconds of the whole call.
    """

    trial_seconds: Array
    counts: Counts
    values: Array
    end: float

    @property
    def seconds(self) -> Array:
        """(n,) own seconds at which each step begins, ascending."""
        return self.trial_seconds[self.counts - 1]

    @property
    def handed(self) -> Counts:
        """(n,) trials whose results were there when each step begins: those of its whole round."""
        return np.searchsorted(self.trial_seconds, self.seconds, side="right").astype(np.int64)

    @property
    def held(self) -> npt.NDArray[np.bool_]:
        """(n,) whether the step lasts: the next does not begin at the same moment."""
        if not len(self.values):
            return np.zeros(0, dtype=np.bool_)
        return np.append(np.diff(self.seconds) > 0, True)

    @property
    def trials(self) -> int:
        """Trials done."""
        return len(self.trial_seconds)

    @property
    def final(self) -> float:
        """Value at the end, seconds; infinite if nothing could be measured."""
        return float(self.values[-1]) if len(self.values) else np.inf


@dataclass(frozen=True)
class Crossing:
    """When a target was first reached; where it never was, the whole call as a bound.

    Attributes
    ----------
    seconds
        Own seconds.
    trials
        Whose results were there then.
    place
        Of the schedule's own trial in the order of measuring, from 1: at most `trials`.
    """

    seconds: float
    trials: int
    reached: bool
    place: int


def curve(
    numbers: Sequence[int],
    seconds: Sequence[float],
    best_numbers: Sequence[int],
    best_values: Sequence[float],
    end: float,
) -> Curve:
    """The step curve of one tuner.

    Parameters
    ----------
    numbers, seconds
        (m,) numbers of the trials, each of 0..m-1 in any order, and own seconds of their results.
    best_numbers, best_values
        (n,) numbers of the trials that were the best so far, in any order, and their re-measured
        latencies in seconds; NaN where measuring again failed: the one before stands.
    end
        Own seconds of the whole call; not before the last result.

    Raises
    ------
    ValueError
        If a trial between is missing.
    """
    order = np.argsort(np.asarray(numbers, dtype=np.int64))
    if not np.array_equal(np.asarray(numbers, dtype=np.int64)[order], np.arange(len(order))):
        raise ValueError(f"the trials are not numbered from 0 to {len(order) - 1}")
    # a result is not handed over before an earlier one
    times = np.maximum.accumulate(np.asarray(seconds, dtype=np.float64)[order])
    held = np.argsort(np.asarray(best_numbers, dtype=np.int64))
    counts = np.asarray(best_numbers, dtype=np.int64)[held] + 1
    values = np.asarray(best_values, dtype=np.float64)[held]
    mask = np.isfinite(values)
    last = float(times[-1]) if len(times) else 0.0
    return Curve(times, counts[mask], values[mask], max(end, last))


def prefix(full_curve: Curve, trials: int) -> Curve:
    """What the curve would have been with fewer trials; only if the tuner knows no budget.

    The call ends when the last of those trials is there, a round that is cut at the moment at which
    the whole of it came. The whole curve where it is no longer.
    """
    if trials >= full_curve.trials:
        return full_curve
    times = full_curve.trial_seconds[:trials]
    mask = full_curve.counts <= trials
    end = float(times[-1]) if trials else 0.0
    return Curve(times, full_curve.counts[mask], full_curve.values[mask], end)


def median_again(again: Sequence[float]) -> float:
    """Latency of an incumbent: the median of its repeats; NaN without any."""
    return float(np.median(again)) if len(again) else np.nan


def quiet_again(again: Sequence[float]) -> float:
    """Latency while nobody else took the machine: the lower quartile; NaN without any.

    What disturbs a measurement only adds to it, and half of ten repeats may be disturbed.
    """
    return float(np.quantile(again, 0.25)) if len(again) else np.nan


def target_of(finals: Sequence[float], slack: float = SLACK) -> float:
    """The latency to reach on a workload, the same for all tuners.

    Parameters
    ----------
    finals
        (seeds,) what stock ended with, seconds; infinite where it had nothing.

    Returns
    -------
    float
        Their median times `slack`; infinite if half of them are.
    """
    return float(np.median(np.asarray(finals, dtype=np.float64))) * slack


def crossing(step_curve: Curve, target: float) -> Crossing:
    """The first step that lasts and whose value is at or below the target."""
    below = np.flatnonzero(step_curve.held & (step_curve.values <= target))
    if not len(below):
        return Crossing(step_curve.end, step_curve.trials, False, step_curve.trials)
    at = below[0]
    return Crossing(
        float(step_curve.seconds[at]), int(step_curve.handed[at]), True, int(step_curve.counts[at])
    )


def value_after_seconds(step_curve: Curve, seconds: Any) -> Any:
    """Latency that the tuner would have returned then; infinite before its first incumbent.

    Of one moment or an array of them.
    """
    return np.append(np.inf, step_curve.values)[
        np.searchsorted(step_curve.seconds, seconds, side="right")
    ]


def value_after_trials(step_curve: Curve, trials: Any) -> Any:
    """As `value_after_seconds`, after that many trials."""
    return np.append(np.inf, step_curve.values)[
        np.searchsorted(step_curve.counts, trials, side="right")
    ]


def equal_seconds(one: Curve, other: Curve) -> float:
    """The moment at which two tuners are compared at equal seconds.

    The end of the call that ends first: until then both were at work. Where one of them has
    nothing by then, its first incumbent is waited for, while the other keeps its final one.
    Infinite if one of them never has any.
    """
    first = [float(c.seconds[0]) if len(c.seconds) else np.inf for c in (one, other)]
    return max(min(one.end, other.end), *first)


def mean_log_latency(step_curve: Curve, horizon: float, before: float) -> float:
    """The area under log latency over own seconds from 0 to the horizon, over the horizon.

    Parameters
    ----------
    horizon
        Seconds, the same for all tuners of a block (stock's whole call): a tuner that ended
        earlier keeps its final value, one that goes on is cut.
    before
        Latency until the first incumbent is there, seconds; the same for all tuners of a block.

    Returns
    -------
    float
        Mean of the natural logarithm; differences of it are logarithms of factors.
    """
    starts = np.concatenate([[0.0], np.minimum(step_curve.seconds, horizon), [horizon]])
    values = np.log(np.concatenate([[before], step_curve.values]))
    return float(np.diff(starts) @ values / horizon)
