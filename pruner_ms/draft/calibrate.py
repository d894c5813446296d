"""Re-fit the draft to what was measured, in milliseconds, shrunk towards the formula.

The formula's latency L and its terms t_j give an estimate
    log latency = log L + w_0 + sum_j w_j * z_j,        z_j = standardised log(t_j / L + FLOOR)
whose weights are a ridge regression on log(measured / L), every prediction of which for a row that
was left out is known in closed form. With no data, or where those predictions are not clearly
better than the formula both in squared error and in rank, the weights are 0 and the estimate is
the formula (times a constant).
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

ERROR_MARGIN, RANK_MARGIN = 0.9, 0.03
"""The weights are used if they leave this share of the formula's squared error, and gain this much
rank correlation, on rows left out. Small samples flatter a fit, hence the margins."""

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
    ridge
        Chosen strength; infinite for the formula.
    """

    names: tuple[str, ...] = ()
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    centre: FloatArray = field(default_factory=lambda: np.zeros(0))
    scale: FloatArray = field(default_factory=lambda: np.ones(0))
    offset: float = 0.0
    rows: int = 0
    ridge: float = np.inf

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
    centred = residual - residual.mean()
    ridge, left_out, weights = best_ridge(z, centred)
    formula = np.log(kept.latency)
    gain = rank_correlation(formula + left_out, np.log(seconds)) - rank_correlation(
        formula, np.log(seconds)
    )
    share = np.sum((centred - left_out) ** 2) / np.sum((centred * rows / (rows - 1)) ** 2)
    if gain < RANK_MARGIN or share > ERROR_MARGIN:
        return plain
    return replace(plain, names=names, weights=weights, centre=centre, scale=scale, ridge=ridge)


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
