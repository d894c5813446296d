"""Recall monitor: statistical tests of whether the draft misses fast candidates.

A few candidates of each round are drawn uniformly, without the draft. Drafted ones must be faster
than these, and among these the draft's rank correlation has no selection bias.

Pure: no clock, no randomness.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import atanh, erfc, sqrt, tanh

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.calibrate import rank_correlation
from pruner_ms.types import BoolArray, FloatArray

LEAST_UNDRAFTED, LEAST_DRAFTED = 4, 8
"""Least measurements of each kind for a comparison."""

LEAST_RANKED = 10
"""Least undrafted measurements for a rank correlation."""

CHANCE = 0.05
"""Significance level of each of the two tests."""

POOR_RANK = 0.4
"""A draft whose rank correlation is significantly below this is poor (it should reach 0.6)."""

WIDEST = 2
"""Times that a search may widen."""

_NORMAL_95 = 1.645


@dataclass(frozen=True)
class Recall:
    """The monitor's verdict.

    Attributes
    ----------
    misses
        Whether the draft misses.
    reason
        Why, for the log; empty if it does not.
    beaten
        p-value of the hypothesis that undrafted candidates are no faster than drafted ones; 1
        while too few are measured.
    rank
        Rank correlation of draft and measurement among the undrafted; NaN while too few are.
    """

    misses: bool
    reason: str
    beaten: float
    rank: float


def recall_of(predicted: FloatArray, measured: FloatArray, undrafted: BoolArray) -> Recall:
    """Judge the draft by measured candidates.

    Parameters
    ----------
    predicted, measured
        Seconds, (N,); failed trials are left out by the caller.
    undrafted
        bool (N,): drawn uniformly, without the draft.
    """
    beaten = _beaten(measured[undrafted], measured[~undrafted])
    rank, highest = _rank(predicted[undrafted], measured[undrafted])
    reasons = []
    if beaten < CHANCE:
        reasons.append(
            f"candidates drawn by chance are faster than drafted ones (p = {beaten:.3f})"
        )
    if highest < POOR_RANK:
        reasons.append(f"its rank correlation on candidates drawn by chance is {rank:.2f}")
    return Recall(bool(reasons), " and ".join(reasons), beaten, rank)


def _beaten(undrafted: FloatArray, drafted: FloatArray) -> float:
    """One-sided Mann-Whitney test with the normal approximation: undrafted are faster."""
    n, m = len(undrafted), len(drafted)
    if n < LEAST_UNDRAFTED or m < LEAST_DRAFTED:
        return 1.0
    ordered = np.sort(drafted)
    # a win where the drafted one is slower, half a win for a tie
    before, through = (np.searchsorted(ordered, undrafted, side) for side in ("left", "right"))
    wins = n * m - float((before + through).sum()) / 2
    z = (wins - n * m / 2 - 0.5) / sqrt(n * m * (n + m + 1) / 12)
    return 0.5 * erfc(z / sqrt(2))


def _rank(predicted: FloatArray, measured: FloatArray) -> tuple[float, float]:
    """Spearman's correlation and the upper end of its confidence interval (Fisher)."""
    if len(measured) < LEAST_RANKED:
        return float("nan"), 1.0
    rank = rank_correlation(predicted, measured)
    bounded = float(np.clip(rank, -0.999, 0.999))
    # 1.06: the variance of Spearman's coefficient under Fisher's transform
    spread = sqrt(1.06 / (len(measured) - 3))
    return rank, tanh(atanh(bounded) + _NORMAL_95 * spread)


def widened(config: SearchConfig) -> SearchConfig:
    """The settings of a search whose draft misses: more candidates, more of them uniform."""
    return replace(
        config,
        spec_size=2 * config.spec_size,
        uniform_share=min(0.5, 2 * config.uniform_share + 0.1),
        explore_share=min(0.25, 2 * config.explore_share + 0.05),
    )
