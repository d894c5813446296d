"""Whether a tuned network is what its user should get.

Tasks that gain by themselves need not make a network faster: threads start for each of them, and
what one leaves in the caches the next one may miss. So the whole is judged, too.
"""

from __future__ import annotations

from collections.abc import Callable

from pruner_ms.integration.timing import REPEATS, Comparison

SLOWER = 0.97
"""Speed of the tuned network by the untuned one's below which it is slower: less is noise."""

LONGER = 3
"""Times as many repeats in the comparison that decides where the first one leaves a doubt."""


def judged(compare: Callable[[int], Comparison], tuned: bool) -> tuple[Comparison, bool]:
    """A comparison of two networks, and whether the untuned one should be kept.

    Parameters
    ----------
    compare
        Of the number of repeats; before is the untuned network.
    tuned
        Whether any of the tasks has a tuned schedule; without one, to be as fast is no gain.
    """
    timing = compare(REPEATS)
    if timing.speedup < SLOWER and timing.high >= 1.0:
        timing = compare(LONGER * REPEATS)
    slower = timing.high < 1.0 or timing.speedup < SLOWER
    return timing, slower or (not tuned and timing.low <= 1.0)
