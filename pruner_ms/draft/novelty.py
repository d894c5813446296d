"""How unlike everything measured a schedule is, and batches that take it into account.

A ranking alone measures one family of near-equal schedules until it is used up: of equal
predictions the next is as good as the last. So what is not like anything measured is given the
benefit of the doubt: GP-UCB, for batches (Desautels, Krause and Burdick, Parallelizing
Exploration-Exploitation Tradeoffs in Gaussian Process Bandit Optimization, JMLR 2014): the
deviation of a Gaussian process at a schedule does not depend on what is measured, so within a batch
each pick makes those like it familiar before it has been measured.

Notation
--------
N, M, J    measured schedules, candidates, regressors
left       covariance of the candidates given the measured ones, (M, M); 1 on the diagonal where
           nothing like a candidate was measured
"""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.calibrate import FORMULA, regressors
from pruner_ms.draft.process import nearness
from pruner_ms.draft.score import Draft, concatenated
from pruner_ms.hardware.threads import one_blas_thread
from pruner_ms.types import FloatArray, IntArray

LENGTH = 0.5
"""Distance, in standard deviations per regressor, at which schedules begin to differ."""

NOISE = 0.1
"""Variance of a measurement, of that between unlike schedules."""

MOST = 1024
"""Measured schedules that are looked at, the last ones."""


@one_blas_thread
def unexplained(measured: Draft | None, candidates: Draft) -> FloatArray:
    """`left` of some candidates, (M, M): by what their latency is made of, and by itself.

    Schedules that the draft calls invalid are like nothing, and nothing is like them.
    """
    known = 0 if measured is None else min(len(measured), MOST)
    together = candidates
    if measured is not None:
        together = concatenated([measured.take(np.arange(len(measured))[-known:]), candidates])
    good = np.isfinite(together.latency)
    z = np.zeros((len(good), 1 + len(together.terms)))
    z[good] = _regressors(together.take(good))
    old, new = np.flatnonzero(good[:known]), good[known:]
    left = np.where(new[:, None] & new, nearness(z[known:], z[known:], LENGTH), np.eye(len(new)))
    if len(old):
        seen = nearness(z[old], z[old], LENGTH) + NOISE * np.eye(len(old))
        across = nearness(z[old], z[known:], LENGTH) * new
        left -= across.T @ np.linalg.solve(seen, across)
    found: FloatArray = left
    return found


def _regressors(drafted: Draft) -> FloatArray:
    """Log latency and log shares of its terms, standardised, (n, J)."""
    z = regressors(drafted.latency, drafted.terms, (FORMULA, *drafted.terms))
    found: FloatArray = (z - z.mean(axis=0)) / np.maximum(z.std(axis=0), 1e-6)
    return found


def optimistic(scores: FloatArray, left: FloatArray, optimism: float, count: int) -> IntArray:
    """The first `count` candidates to measure, one after the other, (count,) or fewer.

    Those of score minus infinity, which the draft calls invalid, are none of them.

    Parameters
    ----------
    scores
        Natural log of how fast they are said to be, (M,).
    left
        See the notation.
    optimism
        Natural-log units that one deviation is worth.
    """
    wanted = min(count, int(np.isfinite(scores).sum()))
    rest, variance = scores.astype(np.float64), np.diag(left).copy()
    # pivoted Cholesky: a pick's column less what the picks before it explain
    factors = np.zeros((wanted, len(scores)))
    picked = np.zeros(wanted, np.int64)
    for n in range(wanted):
        best = int(np.argmax(rest + optimism * np.sqrt(np.maximum(variance, 0.0))))
        picked[n], rest[best] = best, -np.inf
        column = left[:, best] - factors[:n].T @ factors[:n, best]
        factors[n] = column / np.sqrt(max(column[best], 0.0) + NOISE)
        variance -= factors[n] ** 2
    return picked
