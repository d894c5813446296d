"""Batch selection by an upper confidence bound (GP-UCB): novelty of candidates.

A ranking alone measures one family of near-equal schedules until it is exhausted. So candidates
unlike all measured ones get a bonus: GP-UCB for batches (Desautels, Krause and Burdick,
Parallelizing Exploration-Exploitation Tradeoffs in Gaussian Process Bandit Optimization, JMLR
2014): the posterior deviation of a Gaussian process does not depend on the measured values, so
within a batch each pick reduces it for similar candidates before the pick has been measured.

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
"""Length scale of the covariance, in standard deviations per regressor."""

NOISE = 0.1
"""Variance of a measurement, relative to that between unlike schedules."""

MOST = 1024
"""Most measured schedules that are used, the last ones."""


@one_blas_thread
def unexplained(measured: Draft | None, candidates: Draft) -> FloatArray:
    """`left` of some candidates, (M, M), by their drafted latency and its terms.

    Schedules that the draft calls invalid have no covariance with others.
    """
    n_measured = 0 if measured is None else min(len(measured), MOST)
    together = candidates
    if measured is not None:
        together = concatenated([measured.take(np.arange(len(measured))[-n_measured:]), candidates])
    good = np.isfinite(together.latency)
    z = np.zeros((len(good), 1 + len(together.terms)))
    z[good] = _regressors(together.take(good))
    old, new = np.flatnonzero(good[:n_measured]), good[n_measured:]
    left = np.where(
        new[:, None] & new, nearness(z[n_measured:], z[n_measured:], LENGTH), np.eye(len(new))
    )
    if len(old):
        seen = nearness(z[old], z[old], LENGTH) + NOISE * np.eye(len(old))
        across = nearness(z[old], z[n_measured:], LENGTH) * new
        left -= across.T @ np.linalg.solve(seen, across)
    covariance: FloatArray = left
    return covariance


def _regressors(drafted: Draft) -> FloatArray:
    """Log latency and log shares of its terms, standardised, (n, J)."""
    z = regressors(drafted.latency, drafted.terms, (FORMULA, *drafted.terms))
    columns: FloatArray = (z - z.mean(axis=0)) / np.maximum(z.std(axis=0), 1e-6)
    return columns


def optimistic(scores: FloatArray, left: FloatArray, optimism: float, count: int) -> IntArray:
    """The first `count` candidates to measure, in order, (count,) or fewer.

    Those of score minus infinity, which the draft calls invalid, are left out.

    Parameters
    ----------
    scores
        Natural log of the predicted speed, (M,).
    left
        See the notation.
    optimism
        Weight of one standard deviation, in natural-log units.
    """
    wanted = min(count, int(np.isfinite(scores).sum()))
    rest, variance = scores.astype(np.float64), np.diag(left).copy()
    # pivoted Cholesky: a pick's column less the part explained by the picks before it
    factors = np.zeros((wanted, len(scores)))
    picked = np.zeros(wanted, np.int64)
    for n in range(wanted):
        best = int(np.argmax(rest + optimism * np.sqrt(np.maximum(variance, 0.0))))
        picked[n], rest[best] = best, -np.inf
        column = left[:, best] - factors[:n].T @ factors[:n, best]
        factors[n] = column / np.sqrt(max(column[best], 0.0) + NOISE)
        variance -= factors[n] ** 2
    return picked
