"""Calibration of the draft to measured latencies, shrunk towards the formula.

The formula's latency L and its terms t_j give an estimate
    log latency = log L + w_0 + b * f(z),    z_j = standardised log(t_j / L + FLOOR)
where f is a Gaussian process fitted to log(measured / L) (`process`). The blend b in [0, 1] is
chosen by leave-one-out predictions. If no b > 0 beats the formula significantly in these, by
squared error and by rank, b is 0 and the estimate is the formula (times a constant).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pruner_ms.draft.process import Process, fit_process
from pruner_ms.draft.score import Draft
from pruner_ms.draft.shares import FLOOR, log_share
from pruner_ms.types import FloatArray, IntArray

BLENDS = (1.0, 0.75, 0.5, 0.25)
"""Weights of the fit against the formula."""

MOST = 256
"""Most records in a fit: half are the fastest, the others spread evenly over the rest."""

REACH = 3.0
"""Standard deviations at which regressors are clipped."""

SURE, RANK_MARGIN = 2.0, 0.0
"""The fit is used if its gain in squared error on held-out records is this many standard errors
above 0, and its rank correlation on them is this much above the formula's. Small samples flatter
a fit."""

LEAST = 24
"""Measurements below which the formula is left alone."""

FORMULA = "formula"


@dataclass(frozen=True)
class Calibration:
    """A correction of log latency; the default is the formula itself.

    Attributes
    ----------
    names
        The regressors: terms, and "formula" for log L itself.
    centre, scale
        Mean and standard deviation of each regressor.
    process
        f; None for the formula.
    offset
        w_0: mean of log(measured / L).
    rows
        Measurements it was fitted to.
    blend
        b; 0 for the formula.
    """

    names: tuple[str, ...] = ()
    centre: FloatArray = field(default_factory=lambda: np.zeros(0))
    scale: FloatArray = field(default_factory=lambda: np.ones(0))
    process: Process | None = None
    offset: float = 0.0
    rows: int = 0
    blend: float = 0.0

    def latency(self, drafted: Draft) -> FloatArray:
        """Calibrated seconds, (N,); infinite where the draft is not valid."""
        out = np.full(len(drafted), np.inf)
        good = drafted.valid & np.isfinite(drafted.latency)
        if not good.any():
            return out
        drafts = drafted.take(good)
        correction = np.full(len(drafts), self.offset)
        if self.process is not None:
            columns = regressors(drafts.latency, drafts.terms, self.names)
            correction += self.blend * self.process.predict(
                standardised(columns, self.centre, self.scale)
            )
        out[good] = drafts.latency * np.exp(correction)
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
    drafts, seconds = drafted.take(good), measured[good]
    rows = len(drafts)
    if rows == 0:
        return Calibration()
    fitted_rows = chosen_rows(seconds)
    drafts, seconds = drafts.take(fitted_rows), seconds[fitted_rows]
    residual = np.log(seconds / drafts.latency)
    plain = Calibration(offset=float(residual.mean()), rows=rows)
    if rows < LEAST:
        return plain
    names = (FORMULA, *drafts.terms)
    columns = regressors(drafts.latency, drafts.terms, names)
    used = columns.std(axis=0) > 1e-6
    if not used.any():
        return plain
    columns, names = columns[:, used], tuple(n for n, u in zip(names, used, strict=True) if u)
    centre, scale = columns.mean(axis=0), columns.std(axis=0)
    process, left_out = fit_process(standardised(columns, centre, scale), residual - plain.offset)
    blend = best_blend(left_out, residual - plain.offset, np.log(drafts.latency))
    if blend == 0.0:
        return plain
    return replace(plain, names=names, centre=centre, scale=scale, process=process, blend=blend)


def chosen_rows(seconds: FloatArray) -> IntArray:
    """Indices of the records that are fitted, at most `MOST`, ascending."""
    if len(seconds) <= MOST:
        return np.arange(len(seconds))
    order = np.argsort(seconds, kind="stable")
    fast, rest = order[: MOST // 2], order[MOST // 2 :]
    spread = np.linspace(0, len(rest) - 1, MOST - len(fast)).astype(np.int64)
    return np.sort(np.concatenate([fast, rest[spread]]))


def standardised(columns: FloatArray, centre: FloatArray, scale: FloatArray) -> FloatArray:
    """Regressors in standard deviations from the centre, held at `REACH`, (N, J)."""
    return np.clip((columns - centre) / scale, -REACH, REACH)


def best_blend(left_out: FloatArray, residual: FloatArray, formula: FloatArray) -> float:
    """b: the weight of a fit that gains most on held-out records, 0 where none surely gains.

    Parameters
    ----------
    left_out
        Leave-one-out prediction of each record's residual, (N,).
    residual, formula
        log(measured / L) less its mean, and log L, (N,).
    """
    truth = formula + residual
    least = rank_correlation(formula, truth) + RANK_MARGIN
    best, most = 0.0, 0.0
    for blend in BLENDS:
        gain = residual**2 - (residual - blend * left_out) ** 2
        error = float(gain.std()) / np.sqrt(len(gain))
        sure = gain.mean() > SURE * error
        if (
            sure
            and gain.mean() > most
            and rank_correlation(formula + blend * left_out, truth) > least
        ):
            best, most = blend, float(gain.mean())
    return best


def rank_correlation(a: FloatArray, b: FloatArray) -> float:
    """Spearman's correlation; 0 where one side does not vary."""
    ranks = [np.unique(x, return_inverse=True)[1].astype(np.float64) for x in (a, b)]
    if min(r.std() for r in ranks) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def regressors(
    latency: FloatArray, terms: Mapping[str, FloatArray], names: tuple[str, ...]
) -> FloatArray:
    """Log latency (`FORMULA`) and log shares of terms, not standardised, (N, J).

    A term that `terms` does not have counts as 0 in all rows.
    """
    out = np.full((len(latency), len(names)), np.log(FLOOR))
    for j, name in enumerate(names):
        if name == FORMULA:
            out[:, j] = np.log(latency)
        elif name in terms:
            out[:, j] = log_share(terms[name], latency)
    return out
