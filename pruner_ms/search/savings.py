"""What each origin of candidates was worth: the trials that the other origins took to catch up.

If the other origins needed 15 more trials to come within a percent of a donor's latency, the donor
saved 15 trials. If they never did, it saved at least the trials that they had until the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

NEAR = 1.01
"""Latencies up to this factor apart count as the same: repeated measurements differ by as much."""


def trials_saved(trials: Sequence[tuple[str, float]]) -> dict[str, int]:
    """Trials saved by each origin, for one task.

    Parameters
    ----------
    trials
        Origin and seconds of each trial, in order; infinity where it failed. An origin of "" is
        an earlier run.

    Returns
    -------
    dict
        By origin, for each whose fastest latency no other origin had reached before it.
    """
    saved = {}
    for origin in sorted({name for name, _ in trials}):
        level = NEAR * min(seconds for name, seconds in trials if name == origin)
        if not math.isfinite(level):
            continue
        as_fast = [(i, name) for i, (name, seconds) in enumerate(trials) if seconds <= level]
        first, name = as_fast[0]
        if origin and name == origin:
            last = next((i for i, name in as_fast if name != origin), len(trials) - 1)
            saved[origin] = sum(name != origin for name, _ in trials[first : last + 1])
    return saved
