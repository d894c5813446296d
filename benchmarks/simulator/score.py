"""What a simulated tuning was worth: curves, trials to the pool's best, and means over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pruner_ms.types import FloatArray, IntArray

WITHIN = {"3%": 1.03, "10%": 1.10}
"""How near to the pool's best, by the name of the figure."""

RESAMPLES = 2000
INTERVAL = (2.5, 97.5)
"""Of the bootstrap, percentiles."""

SMALLEST = 1e-12
_REGRETS = ("area", "last", "measured")

Row = Mapping[str, Any]


def curve(latency: FloatArray, chosen: IntArray, trials: int) -> FloatArray:
    """Log of the best latency so far over the pool's best, (trials,).

    Parameters
    ----------
    latency
        Of the whole pool, (n,); infinite for failed trials, which count as its slowest that ran.
    chosen
        Candidates as they were measured; where the search ended early the last value stands.
    """
    regrets = regrets_of(latency)[chosen]
    rest = np.full(trials - len(chosen), np.inf)
    best_regrets: FloatArray = np.minimum.accumulate(np.concatenate([regrets, rest]))
    return best_regrets


def regrets_of(latency: FloatArray) -> FloatArray:
    """Log of every candidate's latency over the pool's best, (n,); of failed ones the highest."""
    ran = latency[np.isfinite(latency)]
    regrets: FloatArray = np.log(np.minimum(latency, ran.max()) / ran.min())
    return regrets


def figures(latency: FloatArray, chosen: IntArray, trials: int) -> dict[str, float | int | None]:
    """Figures of one tuning; parameters as for `curve`.

    Returns
    -------
    Trials to within so much of the pool's best (None where it never came), the area under the curve
    and its last value, and "measured": the mean regret of everything that was measured, a steadier
    figure than that of the best.
    """
    regret = curve(latency, chosen, trials)
    result: dict[str, float | int | None] = {"measured": float(regrets_of(latency)[chosen].mean())}
    for name, factor in WITHIN.items():
        places = np.flatnonzero(regret <= np.log(factor) + SMALLEST)
        result[f"trials_{name}"] = int(places[0]) + 1 if len(places) else None
    return result | {"area": float(regret.mean()), "last": float(regret[-1])}


def summary(rows: Sequence[Row], against: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Means of every tuner over pools and seeds, and how it compares, by tuner.

    Parameters
    ----------
    rows
        Figures with "pool", "seed", "tuner", "trials", "seconds" and "seen".
    against
        Tuners to compare with, as far as they are there.
    """
    by_tuner: dict[str, dict[tuple[str, int], Row]] = {}
    for row in rows:
        by_tuner.setdefault(row["tuner"], {})[row["pool"], row["seed"]] = row
    means = {}
    for tuner, own in by_tuner.items():
        compared = {
            other: _compared(own, by_tuner[other])
            for other in against
            if other in by_tuner and other != tuner
        }
        means[tuner] = _means(list(own.values())) | {
            f"against_{other}": said for other, said in compared.items() if said
        }
    return means


def _means(rows: Sequence[Row]) -> dict[str, Any]:
    """Of one tuner; trials are geometric means, in which what was never reached counts as bound."""
    trials = sum(row["trials"] for row in rows)
    means: dict[str, Any] = {"runs": len(rows)}
    for name in WITHIN:
        means[f"trials_{name}"] = float(np.exp(np.mean([_log_trials(r, name) for r in rows])))
        means[f"unreached_{name}"] = sum(row[f"trials_{name}"] is None for row in rows)
    for name in (*_REGRETS, "seen"):
        means[name] = float(np.mean([row[name] for row in rows]))
    means["seconds_per_10000"] = 1e4 * sum(row["seconds"] for row in rows) / trials
    return means


def _compared(
    own: Mapping[tuple[str, int], Row], other: Mapping[tuple[str, int], Row]
) -> dict[str, Any]:
    """Factors by which a tuner is better, over the pools and seeds that both have."""
    pairs = [(own[key], other[key]) for key in sorted(own.keys() & other.keys())]
    if not pairs:
        return {}
    logs = {
        f"trials_{name}_x": [_log_trials(b, name) - _log_trials(a, name) for a, b in pairs]
        for name in WITHIN
    }
    logs |= {f"{name}_x": [b[name] - a[name] for a, b in pairs] for name in _REGRETS}
    return {name: geometric(np.array(values)) for name, values in logs.items()}


def _log_trials(row: Row, name: str) -> float:
    """Log of the trials to within; where it never came, one more than there were."""
    trials = row[f"trials_{name}"]
    return float(np.log(row["trials"] + 1 if trials is None else trials))


def geometric(logs: FloatArray) -> dict[str, float]:
    """Geometric mean of paired factors, and its bootstrap interval; their logarithms, (n,)."""
    drawn = np.random.default_rng(0).integers(len(logs), size=(RESAMPLES, len(logs)))
    low, high = np.percentile(logs[drawn].mean(axis=1), INTERVAL)
    return {
        "mean": float(np.exp(logs.mean())),
        "low": float(np.exp(low)),
        "high": float(np.exp(high)),
    }
