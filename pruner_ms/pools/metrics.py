"""Metrics of a ranking: pure functions on arrays.

Notation
--------
n        evaluated records
latency  measured seconds, (n,); infinite for a failed trial
order    a ranking: indices of the records, the predicted fastest first, (n,)
k        number of first records that are measured
"""

from __future__ import annotations

import math

import numpy as np

from pruner_ms.types import FloatArray, IntArray

KEPT = 0.128
"""The paper's S_spec: 512 of 4,000 (Table 10)."""

CUTS: tuple[tuple[str, int | float], ...] = (
    ("1", 1),
    ("5", 5),
    ("10", 10),
    ("64", 64),
    ("12.8%", KEPT),
)
"""Names and sizes of the k for which recall is reported; a float is a share of n."""


def average_ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1, equal values share the mean of theirs; infinite ones are equal and last."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: FloatArray = (last - (counts - 1) / 2.0)[place.reshape(-1)]
    return mean


def spearman(a: FloatArray, b: FloatArray) -> float | None:
    """Rank correlation with average ranks; None below 3 values or where one side is constant."""
    if len(a) < 3:
        return None
    ranks = [average_ranks(np.asarray(x, np.float64)) for x in (a, b)]
    if min(float(r.std()) for r in ranks) == 0.0:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def order_of(cost: FloatArray, rng: np.random.Generator) -> IntArray:
    """The ranking by predicted cost (less is faster); ties are broken at random, NaN is last."""
    clean = np.where(np.isnan(cost), np.inf, cost)
    order: IntArray = np.lexsort((rng.random(len(cost)), clean)).astype(np.int64)
    return order


def size_of(cut: int | float, n: int) -> int:
    """k for a cut: at least 1, at most n."""
    wanted = cut if isinstance(cut, int) else round(cut * n)
    return max(1, min(wanted, n))


def recall(latency: FloatArray, order: IntArray, k: int) -> float | None:
    """Best latency of all over the best among the first k, in [0, 1].

    0 where all of the first k failed; None where every record failed.
    """
    best = float(latency.min(initial=math.inf))
    if not math.isfinite(best):
        return None
    return best / float(latency[order[:k]].min(initial=math.inf))


def random_recall(latency: FloatArray, k: int) -> float | None:
    """Mean of `recall` over all rankings, exactly.

    With latencies in ascending order, the best of k drawn from n is the i-th (from 0) with
    probability C(n-1-i, k-1) / C(n, k).
    """
    n = len(latency)
    ordered = np.sort(latency)
    if not n or not math.isfinite(ordered[0]):
        return None
    total, chance = 0.0, k / n
    for i in range(n - k + 1):
        total += chance * float(ordered[0] / ordered[i])
        rest = n - 1 - i
        chance = chance * (rest - k + 1) / rest if rest else 0.0
    return total


def winner_percentile(latency: FloatArray, order: IntArray) -> float | None:
    """Percentile of the fastest record in the ranking: 0 first, 100 last; None if all failed."""
    n = len(latency)
    best = latency.min(initial=math.inf)
    if not math.isfinite(best):
        return None
    place = int(np.flatnonzero(latency[order] == best)[0])
    return 100.0 * place / max(n - 1, 1)


def fastest_quarter(latency: FloatArray) -> IntArray:
    """Indices of the fastest quarter of those that ran (rounded up), ascending."""
    ran = np.flatnonzero(np.isfinite(latency))
    count = math.ceil(len(ran) / 4)
    return np.sort(ran[np.argsort(latency[ran], kind="stable")[:count]])
