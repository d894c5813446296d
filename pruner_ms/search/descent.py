"""Coordinate descent: the neighbours of a task's best schedule, until none of them is faster.

A search that has not gained for a while measures rows one step away from its best: one prime moved
between two factors of a tile, the next number of a categorical, the next compute location
(`Sketch.neighbours`), in the order that draft and model give them. The incumbent is measured again
beside them, in the same batch, and a neighbour takes its place if it is faster by a test over their
repeats. After Droplet Search (Canesche et al. 2024, doi:10.1145/3650109).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, erfc, sqrt

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.types import IntArray

EXACT = 1000
"""Most ways to divide all repeats between two candidates with which a test tries every way."""


def p_value(slower: Sequence[float], faster: Sequence[float]) -> float:
    """Probability of such a difference of means if both were samples of one distribution.

    One-sided. By all permutations; if too many, by Welch's statistic as a normal deviate.

    Parameters
    ----------
    slower, faster
        Seconds of the repeats of two candidates, (n,) and (m,).
    """
    both = np.concatenate([slower, faster])
    difference = float(np.mean(slower) - np.mean(faster))
    if comb(len(both), len(faster)) <= EXACT:
        places = np.array(list(combinations(range(len(both)), len(faster))))
        means = both[places].mean(axis=1)
        others = (both.sum() - len(faster) * means) / len(slower)
        return float(np.mean(others - means >= difference - 1e-12 * abs(difference)))
    spread = np.var(slower, ddof=1) / len(slower) + np.var(faster, ddof=1) / len(faster)
    return 0.5 * erfc(difference / sqrt(2.0 * max(float(spread), np.finfo(np.float64).tiny)))


MARGIN = 0.01
"""Share by which a mean must be lower where too few repeats were measured for a test."""


def is_faster(one: Sequence[float], incumbent: Sequence[float], limit: float) -> bool:
    """Whether a candidate takes the incumbent's place.

    Its mean must be lower and `p_value` at most `limit`; where the repeats are too few for a
    p-value as low as that, the mean must be lower by `MARGIN`.
    """
    if 1 / comb(len(one) + len(incumbent), len(one)) > limit:
        return float(np.mean(one)) < float(np.mean(incumbent)) * (1 - MARGIN)
    return float(np.mean(one)) < float(np.mean(incumbent)) and p_value(incumbent, one) <= limit


@dataclass(frozen=True, eq=False)
class Point:
    """A row of a design space."""

    sketch: int
    row: IntArray

    def same(self, other: Point) -> bool:
        """Whether both are the same row of the same design space."""
        return self.sketch == other.sketch and bool(np.array_equal(self.row, other.row))


@dataclass
class Descent:
    """Where the descent of one task stands.

    Attributes
    ----------
    incumbent
        The row whose neighbours are measured; None before the first.
    measured
        Candidates of the descent so far, the incumbent's repetitions among them.
    done
        The last incumbent of which all neighbours were measured and none was faster.
    """

    incumbent: Point | None = None
    measured: int = 0
    done: Point | None = None

    def due(self, config: SearchConfig, best: Point | None, trials: int, since_gain: int) -> bool:
        """Whether the next batch is the descent's.

        Parameters
        ----------
        config
            `descent_share` and `descent_after` are used.
        best
            The fastest schedule measured.
        trials, since_gain
            Trials of the task, and those since its best last became faster.
        """
        if best is None or not config.descent_share:
            return False
        if self.done is not None and best.same(self.done):
            return False
        if self.measured >= config.descent_share * (trials + 1):
            return False
        return self.incumbent is not None or since_gain >= config.descent_after

    def start(self, best: Point) -> Point:
        """The row to go on from: the incumbent, or the best where there is none."""
        self.incumbent = self.incumbent or best
        return self.incumbent

    def settle(self, repeats: Sequence[tuple[Point, Sequence[float]]], limit: float) -> bool:
        """Take a measured batch, the incumbent's own seconds among it.

        Parameters
        ----------
        repeats
            Rows with the seconds of their repeats; none for a row that failed.
        limit
            As for `is_faster`.

        Returns
        -------
        bool
            Whether the incumbent has changed.
        """
        if self.incumbent is None:
            return False
        own = [seconds for place, seconds in repeats if place.same(self.incumbent) and len(seconds)]
        others = [(place, s) for place, s in repeats if len(s) and not place.same(self.incumbent)]
        if not own or not others:
            return False
        place, seconds = min(others, key=lambda pair: float(np.mean(pair[1])))
        if not is_faster(seconds, own[0], limit):
            return False
        self.incumbent = place
        return True

    def end(self) -> None:
        """All neighbours were measured: go on from the best where that is another row."""
        self.done, self.incumbent = self.incumbent, None
