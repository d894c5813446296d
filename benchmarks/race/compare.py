"""By how much one tuner beats another in the same block."""

from __future__ import annotations

import numpy as np

from benchmarks.race import curves
from benchmarks.race.curves import Crossing
from benchmarks.race.rows import Row

FIGURES = (
    "seconds_to_target_x",
    "trials_to_target_x",
    "latency_at_equal_trials_x",
    "latency_at_equal_seconds_x",
    "seconds_to_target_cautious_x",
    "trials_to_target_cautious_x",
    "place_to_target_cautious_x",
    "area_x",
)
"""Factors by which a row is better than the one that it is compared with.

Trials are those whose results were there, `place` counts to the schedule's own trial (`Crossing`).
`area_x` is that of the geometric means of the latency over the other's own seconds. A tuner that
never reaches the target enters with its own whole call, however short: misses push the plain
factors up. In the cautious ones it enters with no less than the other's whole call. That is no
bound either: a time that was cut off is only known to be longer than the own call, so what is
charged may be too little (a factor that is too high) or too much. Where the other one misses, it is
charged its own call in both, which is too little: that pushes both down.
"""

_LEAST_SECONDS = 1e-3
"""A quotient of seconds does not go below it."""


def factors(row: Row, other: Row) -> dict[str, float | None]:
    """By how much a row is better than another of its block, for each of `FIGURES`.

    None where there is nothing to divide: one of them has no schedule that runs, or stock had none
    on any seed, so that there is no target.
    """
    own, its = row.curve, other.curve
    moment = curves.equal_seconds(own, its)
    trials = row.case.trials
    horizon = its.end if its.end > 0 else np.nan
    areas = [curves.mean_log_latency(c, horizon, row.before) for c in (its, own)]
    found = {
        "latency_at_equal_trials_x": curves.value_after_trials(its, trials)
        / curves.value_after_trials(own, trials),
        "latency_at_equal_seconds_x": curves.value_after_seconds(its, moment)
        / curves.value_after_seconds(own, moment),
        "area_x": np.exp(areas[0] - areas[1]),
    }
    if np.isfinite(row.target):
        reference = other.crossing
        for name, cautious in (("target", False), ("target_cautious", True)):
            at = _charged(row, other, cautious)
            seconds = max(reference.seconds, _LEAST_SECONDS) / max(at.seconds, _LEAST_SECONDS)
            found[f"seconds_to_{name}_x"] = seconds
            found[f"trials_to_{name}_x"] = max(reference.trials, 1) / max(at.trials, 1)
            found[f"place_to_{name}_x"] = max(reference.place, 1) / max(at.place, 1)
    values = {name: float(found.get(name, np.nan)) for name in FIGURES}
    return {name: x if np.isfinite(x) and x > 0 else None for name, x in values.items()}


def _charged(row: Row, other: Row, cautious: bool) -> Crossing:
    """When the row reached the target; where it did not, what it is charged.

    Its whole call, a bound. A call that an error ended bounds nothing: it is charged the other's
    whole call at least, as are all when asked to be cautious.
    """
    own, its = row.curve, other.curve
    if row.crossing.reached or not (cautious or row.end.why is not None):
        return row.crossing
    trials = max(own.trials, its.trials)
    return Crossing(max(own.end, its.end), trials, False, trials)
