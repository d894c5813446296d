"""Geometric means of factors, with a bootstrap interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.race.curves import Array

RESAMPLES = 10_000
LEVEL = 0.95
SEED = 20250330
"""Of every interval, so that the same lines give the same figures."""

LEAST_WORKLOADS = 5
"""Over fewer there is no interval: of two it would be their minimum and maximum."""


@dataclass(frozen=True)
class Factor:
    """A geometric mean over pairs, and the interval that covers it in 95 of 100 resamplings.

    Attributes
    ----------
    x
        By how much one is better: 2 is twice as good, 1 the same.
    low, high
        Ends of the interval; None over fewer than `LEAST_WORKLOADS` workloads.
    pairs
        Blocks (workload x seed) that it is the mean over.
    """

    x: float
    low: float | None
    high: float | None
    pairs: int

    @property
    def interval(self) -> list[float] | None:
        """Both ends, as in the JSON."""
        return None if self.low is None or self.high is None else [self.low, self.high]


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers, at least one."""
    return float(np.exp(np.mean(np.log(np.asarray(values, dtype=np.float64)))))


def factor(values: Mapping[str, Sequence[float]], rng: np.random.Generator) -> Factor | None:
    """The mean of paired factors and its percentile bootstrap interval; None without any.

    Parameters
    ----------
    values
        By workload, one factor for each seed, positive, each of two tuners in the same block: both
        tuners' values of a block stay together.
    rng
        Draws `RESAMPLES` times as many workloads as there are, with replacement, and in each
        workload drawn as many of its seeds as there are: seeds of one workload are not independent.
    """
    logs = [np.log(np.asarray(own, dtype=np.float64)) for own in values.values() if len(own)]
    if not logs:
        return None
    every = np.concatenate(logs)
    x = float(np.exp(every.mean()))
    if len(logs) < LEAST_WORKLOADS:
        return Factor(x, None, None, len(every))
    tail = (1 - LEVEL) / 2
    low, high = np.exp(np.quantile(_resampled(logs, rng), [tail, 1 - tail]))
    return Factor(x, float(low), float(high), len(every))


def _resampled(logs: Sequence[Array], rng: np.random.Generator) -> Array:
    """(RESAMPLES,) means over the blocks of workloads drawn again with seeds drawn again."""
    widest = max(map(len, logs))
    sizes = np.array([len(own) for own in logs])
    table = np.zeros((len(logs), widest))
    for place, own in enumerate(logs):
        table[place, : len(own)] = own
    drawn = rng.integers(0, len(logs), (RESAMPLES, len(logs)))
    counts = sizes[drawn]
    seeds = (rng.random((*drawn.shape, widest)) * counts[..., None]).astype(np.int64)
    # a workload with fewer seeds than another has fewer drawn
    kept = np.arange(widest) < counts[..., None]
    sums = np.where(kept, table[drawn[..., None], seeds], 0.0).sum(axis=(1, 2))
    return np.asarray(sums / counts.sum(axis=1), dtype=np.float64)
