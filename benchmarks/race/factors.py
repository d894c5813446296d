"""Geometric means of factors, with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
LEVEL = 0.95
SEED = 20250330
"""Of every interval, so that the same lines give the same figures."""


@dataclass(frozen=True)
class Factor:
    """A geometric mean over pairs, and the interval that covers it in 95 of 100 resamplings.

    Attributes
    ----------
    x
        By how much one is better: 2 is twice as good, 1 the same.
    low, high
        Ends of the interval.
    pairs
        Blocks (workload x seed) that it is the mean over.
    """

    x: float
    low: float
    high: float
    pairs: int


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers, at least one."""
    return float(np.exp(np.mean(np.log(np.asarray(values, dtype=np.float64)))))


def factor(values: Sequence[float], rng: np.random.Generator) -> Factor | None:
    """The mean of paired factors and its percentile bootstrap interval; None without any.

    Parameters
    ----------
    values
        (pairs,) one factor for each workload x seed, positive, each of two tuners in the same
        block: the pairs are drawn again, so both tuners' values of a block stay together.
    rng
        Draws `RESAMPLES` times as many pairs as there are, with replacement.
    """
    if not len(values):
        return None
    logs = np.log(np.asarray(values, dtype=np.float64))
    drawn = rng.integers(0, len(logs), (RESAMPLES, len(logs)))
    tail = (1 - LEVEL) / 2
    low, high = np.exp(np.quantile(logs[drawn].mean(axis=1), [tail, 1 - tail]))
    return Factor(float(np.exp(logs.mean())), float(low), float(high), len(logs))
