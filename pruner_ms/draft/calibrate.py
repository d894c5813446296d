"""Re-fit the draft to what was measured, in milliseconds, shrunk towards the formula.

The formula's latency L and its terms t_j give an estimate
    log latency = log L + w_0 + b * sum_j w_j * z_j,    z_j = standardised log(t_j / L + FLOOR)
whose weights w are a ridge regression on log(measured / L). The blend b in [0, 1] is chosen by
cross-validation: each fifth of the records is predicted by weights that were fitted, ridge and
all, to the other four. Where no b > 0 beats the formula on those held-out records surely, in
squared error and in rank, b is 0 and the estimate is the formula (times a constant).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pruner_ms.draft.score import Draft
from pruner_ms.types import FloatArray

FLOOR = 1e-2
"""A term below this share of the latency says nothing by its exact size."""

RIDGES = tuple(float(r) for r in np.geomspace(1, 300, 9))
"""Strengths of the shrinkage that leave-one-out chooses from."""

FOLDS = 5
BLENDS = (1.0, 0.75, 0.5, 0.25)
"""Parts of the records that are held out in turn; weights of the fit against the formula."""

SURE, RANK_MARGIN = 1.645, 0.02
"""The fit is used if its gain in squared error on held-out records is this many standard errors
above 0, and its rank correlation there this much higher. Small samples flatter a fit."""

LEAST = 12
"""Measurements below which the formula is left alone."""

FORMULA = "formula"


@dataclass(frozen=True)
class Calibration:
    """Weights on log latency; the default is the formula itself.

    Attributes
    ----------
    names
        Terms with a weight; "formula" is log L itself.
    weights, centre, scale
        Per name.
    offset
        w_0: log of how much slower things ran than the formula says.
    rows
        Measurements it was fitted to.
    ridge, blend
        Chosen strength and b; infinite and 0 for the formula. `weights` have b in them.
    """

    names: tuple[str, ...] = ()
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    centre: FloatArray = field(default_factory=lambda: np.zeros(0))
    scale: FloatArray = field(default_factory=lambda: np.ones(0))
    offset: float = 0.0
    rows: int = 0
    ridge: float = np.inf
    blend: float = 0.0

    def latency(self, drafted: Draft) -> FloatArray:
        """Calibrated seconds, (N,); infinite where the draft is not valid."""
        out = np.full(len(drafted), np.inf)
        good = drafted.valid & np.isfinite(drafted.latency)
        if not good.any():
            return out
        kept = drafted.take(good)
        correction = np.full(len(kept), self.offset)
        if self.names:
            z = (_columns(kept.latency, kept.terms, self.names) - self.centre) / self.scale
            # beyond what was measured a straight line is a guess: hold it
            correction = correction + np.clip(z, -3.0, 3.0) @ self.weights
        out[good] = kept.latency * np.exp(correction)
        return out

    def apply(self, drafted: Draft) -> Draft:
        """The draft with calibrated latencies."""
        return replace(drafted, latency=self.latency(drafted))


def fit(drafted: Draft, measured: FloatArray) -> Calibration:
    """Fit a calibration.

    Parameters
    ----------
    drafted
        Drafts of the measured schedules.
    measured
        Their latencies in seconds, (N,); rows that are not finite and positive (failed trials),
        or whose draft is not valid, are left out.
    """
    good = drafted.valid & np.isfinite(measured) & (measured > 0) & np.isfinite(drafted.latency)
    kept, seconds = drafted.take(good), measured[good]
    rows = len(kept)
    if rows == 0:
        return Calibration()
    residual = np.log(seconds / kept.latency)
    plain = Calibration(offset=float(residual.mean()), rows=rows)
    if rows < LEAST:
        return plain
    names = (FORMULA, *kept.terms)
    columns = _columns(kept.latency, kept.terms, names)
    centre, scale = columns.mean(axis=0), columns.std(axis=0)
    used = scale > 1e-6
    names = tuple(n for n, u in zip(names, used, strict=True) if u)
    centre, scale = centre[used], scale[used]
    z = (columns[:, used] - centre) / scale
    chosen = best_blend(z, residual, np.log(kept.latency))
    if chosen == 0.0:
        return plain
    ridge, _, weights = best_ridge(z, residual - residual.mean())
    return replace(
        plain,
        names=names,
        weights=chosen * weights,
        centre=centre,
        scale=scale,
        ridge=ridge,
        blend=chosen,
    )


def best_blend(z: FloatArray, residual: FloatArray, formula: FloatArray) -> float:
    """b: the weight of a fit that gains most on held-out records, 0 where none surely gains.

    Parameters
    ----------
    z
        Standardised regressors, (N, J).
    residual, formula
        log(measured / L) and log L, (N,).
    """
    mean, shift = held_out(z, residual)
    truth = formula + residual
    least = rank_correlation(formula, truth) + RANK_MARGIN
    best, most = 0.0, 0.0
    for blend in BLENDS:
        gain = (residual - mean) ** 2 - (residual - mean - blend * shift) ** 2
        error = float(gain.std()) / np.sqrt(len(gain))
        sure = gain.mean() > SURE * error
        if sure and gain.mean() > most and rank_correlation(formula + blend * shift, truth) > least:
            best, most = blend, float(gain.mean())
    return best


def held_out(z: FloatArray, residual: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Predictions for records that took no part in their fit: the mean, and what terms add."""
    mean, shift = np.empty(len(z)), np.empty(len(z))
    fold = np.arange(len(z)) % FOLDS
    for part in range(FOLDS):
        out, kept = fold == part, fold != part
        centre, middle = z[kept].mean(axis=0), residual[kept].mean()
        weights = best_ridge(z[kept] - centre, residual[kept] - middle)[2]
        mean[out] = middle
        shift[out] = (z[out] - centre) @ weights
    return mean, shift


def rank_correlation(a: FloatArray, b: FloatArray) -> float:
    """Spearman's correlation; 0 where one side does not vary."""
    ranks = [np.unique(x, return_inverse=True)[1].astype(np.float64) for x in (a, b)]
    if min(r.std() for r in ranks) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _columns(
    latency: FloatArray, terms: Mapping[str, FloatArray], names: tuple[str, ...]
) -> FloatArray:
    """The regressors before standardising, (N, J)."""
    out = np.zeros((len(latency), len(names)))
    for j, name in enumerate(names):
        if name == FORMULA:
            out[:, j] = np.log(latency)
        elif name in terms:
            out[:, j] = np.log(terms[name] / latency + FLOOR)
    return out


def best_ridge(z: FloatArray, y: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Strength with the least leave-one-out error, the predictions left out, and its weights.

    With the hat matrix H of a ridge fit (the mean is fitted too, hence 1/N), the error of leaving
    row i out is (y_i - yhat_i) / (1 - H_ii): no refit.

    Parameters
    ----------
    z
        Standardised regressors, (N, J).
    y
        What is fitted, with mean 0, (N,).
    """
    u, s, vt = np.linalg.svd(z, full_matrices=False)
    best = (np.inf, np.inf, np.zeros(len(y)), np.zeros(z.shape[1]))
    for ridge in RIDGES:
        shrink = s**2 / (s**2 + ridge)
        hat = (u**2) @ shrink + 1.0 / len(y)
        errors = (y - u @ (shrink * (u.T @ y))) / np.maximum(1 - hat, 1e-3)
        error = float(np.mean(errors**2))
        if error < best[0]:
            best = (error, ridge, y - errors, vt.T @ ((s / (s**2 + ridge)) * (u.T @ y)))
    return best[1:]
