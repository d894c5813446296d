"""What each origin of candidates was worth: trials that the others needed longer for the same.

A donor that gave a latency with trial 5, which other candidates were within a percent of with trial
20, saved 15 trials. Where they never were, it saved at least those up to the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

NEAR = 1.01
"""Times a latency that counts as the same: repeated measurements differ by as much."""


def trials_saved(trials: Sequence[tuple[str, float]]) -> dict[str, int]:
    """Trials saved by each origin, for one task.

    Parameters
    ----------
    trials
        Origin and seconds of each trial, in order; infinity where it failed.

    Returns
    -------
    dict
        By origin, for those that were first to be as fast as their fastest.
    """
    saved = {}
    for origin in sorted({name for name, _ in trials}):
        level = NEAR * min(seconds for name, seconds in trials if name == origin)
        if not math.isfinite(level):
            continue
        as_fast = [(i, name) for i, (name, seconds) in enumerate(trials) if seconds <= level]
        first, name = as_fast[0]
        if name == origin:
            others = (i for i, name in as_fast if name != origin)
            saved[origin] = next(others, len(trials)) - first
    return saved
