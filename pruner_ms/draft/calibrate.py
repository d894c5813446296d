"""Re-fit the draft to what was measured, in milliseconds, shrunk towards the formula.

The formula's latency L and its terms t_j give an estimate
    log latency = log L + w_0 + sum_j w_j * z_j,        z_j = standardised log(t_j / L + FLOOR)
whose weights are a ridge regression on log(measured / L). With no data, or where leave-one-out
says that the weights do not help, they are 0 and the estimate is the formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pruner_ms.draft.score import Draft
from pruner_ms.types import FloatArray

FLOOR = 1e-2
"""A term below this share of the latency says nothing by its exact size."""

RIDGES = tuple(float(r) for r in np.geomspace(0.3, 300, 10))
"""Strengths of the shrinkage that leave-one-out chooses from."""

MARGIN = 0.97
"""Share of the formula's squared error that the fit must stay under to be used."""

LEAST = 6
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
    ridge, error, weights = _best_ridge(z, residual - residual.mean())
    alone = float(np.mean(((residual - residual.mean()) * rows / (rows - 1)) ** 2))
    if not error < MARGIN * alone:
        return plain
    return replace(plain, names=names, weights=weights, centre=centre, scale=scale, ridge=ridge)


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


def _best_ridge(z: FloatArray, y: FloatArray) -> tuple[float, float, FloatArray]:
    """Strength with the least leave-one-out error, that error, and its weights.

    With the hat matrix H of a ridge fit (the mean is fitted too, hence 1/N), the error of
    leaving row i out is (y_i - yhat_i) / (1 - H_ii): no refit.
    """
    u, s, vt = np.linalg.svd(z, full_matrices=False)
    best = (np.inf, np.inf, np.zeros(z.shape[1]))
    for ridge in RIDGES:
        shrink = s**2 / (s**2 + ridge)
        hat = (u**2) @ shrink + 1.0 / len(y)
        error = float(np.mean(((y - u @ (shrink * (u.T @ y))) / np.maximum(1 - hat, 1e-3)) ** 2))
        if error < best[1]:
            best = (ridge, error, vt.T @ ((s / (s**2 + ridge)) * (u.T @ y)))
    return best
