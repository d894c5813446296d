"""Geometric means of factors, with a bootstrap interval."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.race.curves import Counts

RESAMPLES = 10_000
LEVEL = 0.95
SEED = 20250330
"""Of every interval, so that the same lines give the same figures."""

LEAST_WORKLOADS = 5
"""Over fewer there is no interval: of two it would be their minimum and maximum."""


class Factor(NamedTuple):
    """A geometric mean over pairs, and the interval that covers it in 95 of 100 resamplings.

    Attributes
    ----------
    x
        By how much one is better: 2 is twice as good, 1 the same.
    interval
        Both ends; None over fewer than `LEAST_WORKLOADS` workloads.
    pairs
        Blocks (workload x seed) that it is the mean over.
    """

    x: float
    interval: list[float] | None
    pairs: int


def factor(values: pd.Series, workloads: pd.Series, seed: int = SEED) -> Factor | None:
    """The mean of paired factors and its percentile bootstrap interval; None without any.

    Parameters
    ----------
    values
        Of each block, positive, of two tuners in it; NaN where nothing is known.
    workloads
        Of the same blocks: each has one value for each seed.
    seed
        Draws `RESAMPLES` times as many workloads as there are, with replacement, and in each
        workload drawn as many of its seeds as there are: seeds of one workload are not independent.
    """
    logs = np.log(values.dropna().astype(float))
    if logs.empty:
        return None
    x = float(np.exp(logs.mean()))
    # in the order in which they appear
    codes, _ = pd.factorize(workloads[logs.index])
    sizes = np.bincount(codes)
    if len(sizes) < LEAST_WORKLOADS:
        return Factor(x, None, len(logs))
    tail = (1 - LEVEL) / 2
    places, counts = _drawn(tuple(sizes.tolist()), seed)
    grouped = np.append(logs.to_numpy()[np.argsort(codes, kind="stable")], 0.0)
    low, high = np.exp(np.quantile(grouped[places].sum(axis=1) / counts, [tail, 1 - tail]))
    return Factor(x, [float(low), float(high)], len(logs))


@lru_cache(maxsize=8)
def _drawn(sizes: tuple[int, ...], seed: int) -> tuple[Counts, Counts]:
    """Workloads drawn again with seeds drawn again; the same for all factors of one shape.

    Returns
    -------
    (RESAMPLES, n) places among the blocks, ordered by workload, and one behind the last where a
    workload has fewer seeds than another; (RESAMPLES,) blocks drawn.
    """
    rng, seeds_of, widest = np.random.default_rng(seed), np.array(sizes), max(sizes)
    drawn = rng.integers(0, len(sizes), (RESAMPLES, len(sizes)))
    counts = seeds_of[drawn][..., None]
    seeds = (rng.random((*drawn.shape, widest)) * counts).astype(np.int64)
    places = (np.cumsum(seeds_of) - seeds_of)[drawn][..., None] + seeds
    places = np.where(np.arange(widest) < counts, places, seeds_of.sum())
    return places.reshape(RESAMPLES, -1), counts.sum(axis=(1, 2))
