"""The terms of a draft as shares of its latency: dimensionless features, one set for all devices.

Shares do not depend on the workload's size, so that a model transfers to other workloads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pruner_ms.draft.cpu.latency import CPU_TERMS
from pruner_ms.draft.gpu.latency import GPU_TERMS
from pruner_ms.draft.score import Draft
from pruner_ms.types import FloatArray

FLOOR = 1e-2
"""Share below which the exact size of a term does not matter."""

TERM_NAMES: tuple[str, ...] = tuple(
    dict.fromkeys(term.name for terms in (CPU_TERMS, GPU_TERMS) for term in terms)
)
"""Terms of all devices; a term that two of them have is one column."""


def log_share(seconds: FloatArray, latency: FloatArray) -> FloatArray:
    """log(seconds / latency + FLOOR), (N,)."""
    logs: FloatArray = np.log(seconds / latency + FLOOR)
    return logs


def log_shares(drafted: Draft, names: Sequence[str] = TERM_NAMES) -> FloatArray:
    """`log_share` of every term less log FLOOR, float64 (N, len(names)).

    0 for a term that the device does not have, and for a schedule that is not valid.
    """
    out = np.zeros((len(drafted), len(names)))
    for column, name in enumerate(names):
        if name in drafted.terms:
            out[:, column] = log_share(drafted.terms[name], drafted.latency) - np.log(FLOOR)
    return out


def drafted_from(
    shares: FloatArray, latency: FloatArray, names: Sequence[str] = TERM_NAMES
) -> Draft:
    """The inverse of `log_shares`: a draft, without seconds of builds.

    Parameters
    ----------
    shares
        (N, len(names)).
    latency
        The draft's seconds, (N,): infinite or NaN where it is not valid, or not known.

    Returns
    -------
    A draft with only those terms that are nonzero in some row.
    """
    valid = np.isfinite(latency)
    seconds = np.where(valid, latency, 0.0)
    parts = np.maximum(np.exp(shares + np.log(FLOOR)) - FLOOR, 0.0) * seconds[:, None]
    terms = {name: parts[:, j] for j, name in enumerate(names) if shares[:, j].any()}
    return Draft(latency, valid, np.zeros(len(latency)), terms)
