"""Corrections of the draft during a run: build time and acceptance rate per design space.

Pure: counts and seconds in, factors out. All are shrunk towards "as the draft says", so that a few
outliers change little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pruner_ms.types import FloatArray, IntArray

BUILD_STRENGTH = 8.0
"""Builds that the draft's own prediction counts as."""

BUILD_BOUNDS = (0.2, 5.0)
"""Bounds of the factor: this machine against the one that the prediction was fitted on."""

BUILD_STEP = 0.35
"""Step to which the factor's logarithm is rounded, so that noise in build seconds does not change
the drafts between two runs with one seed."""

REFUSAL_STRENGTH = 8.0
"""Prior: accepted replays that a design space starts with."""

LEAST_SHARE = 0.1
"""Least share of a design space, even one with refusals only: it may be bad luck."""


def build_factor(predicted: FloatArray, measured: FloatArray) -> float:
    """Measured over predicted build seconds.

    The geometric mean of the ratios, with outliers clipped, shrunk towards 1.

    Parameters
    ----------
    predicted, measured
        Seconds, (N,); of a build that timed out, the limit.
    """
    good = np.isfinite(predicted) & np.isfinite(measured) & (predicted > 0) & (measured > 0)
    if not good.any():
        return 1.0
    ratios = np.log(measured[good] / predicted[good])
    middle = float(np.median(ratios))
    held = np.clip(ratios, middle - 1.0, middle + 1.0)
    weight = len(held) / (len(held) + BUILD_STRENGTH)
    factor = np.exp(np.round(weight * held.mean() / BUILD_STEP) * BUILD_STEP)
    return float(np.clip(factor, *BUILD_BOUNDS))


def acceptance(tried: IntArray, refused: IntArray) -> FloatArray:
    """Share of the replays of each design space that pass, (S,), optimistic while few are known."""
    accepted = tried - refused + REFUSAL_STRENGTH
    out: FloatArray = accepted / (tried + REFUSAL_STRENGTH)
    return out


def shares(tried: Mapping[int, int], refused: Mapping[int, int]) -> dict[int, float]:
    """Relative quota of each design space, 1 for the best of them.

    Parameters
    ----------
    tried, refused
        Replays by design space, and those that a postprocessor refused.
    """
    places = sorted(tried)
    if not places:
        return {}
    accepted = acceptance(
        np.array([tried[p] for p in places], np.int64),
        np.array([refused.get(p, 0) for p in places], np.int64),
    )
    relative = np.maximum(accepted / accepted.max(), LEAST_SHARE)
    return {place: float(value) for place, value in zip(places, relative, strict=True)}


def quotas(places: Sequence[int], wanted: int, given: Mapping[int, float]) -> dict[int, int]:
    """Most drafts to keep of each design space; `wanted` where it has no share given."""
    return {p: max(1, round(wanted * given.get(p, 1.0))) for p in places}
