"""What a latency is made of: the terms of a draft as shares of it, the same columns for any device.

A share has no unit and no size, so that what a model learns of it holds for other workloads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pruner_ms.draft.cpu import CPU_TERMS
from pruner_ms.draft.gpu import GPU_TERMS
from pruner_ms.draft.score import Draft
from pruner_ms.types import FloatArray

FLOOR = 1e-2
"""A term below this share of the latency says nothing by its exact size."""

TERM_NAMES: tuple[str, ...] = tuple(
    dict.fromkeys(term.name for terms in (CPU_TERMS, GPU_TERMS) for term in terms)
)
"""Terms of all devices; a term that two of them have is one column."""


def log_share(seconds: FloatArray, latency: FloatArray) -> FloatArray:
    """log(seconds / latency + FLOOR), (N,)."""
    found: FloatArray = np.log(seconds / latency + FLOOR)
    return found


def log_shares(drafted: Draft, names: Sequence[str] = TERM_NAMES) -> FloatArray:
    """`log_share` of every term less log FLOOR, float64 (N, len(names)).

    0 for a term that the device has not, or of a schedule that is not valid.
    """
    out = np.zeros((len(drafted), len(names)))
    for column, name in enumerate(names):
        if name in drafted.terms:
            out[:, column] = log_share(drafted.terms[name], drafted.latency) - np.log(FLOOR)
    return out


def drafted_from(
    shares: FloatArray, latency: FloatArray, names: Sequence[str] = TERM_NAMES
) -> Draft:
    """The draft that `log_shares` was taken of, but for what a build takes.

    Parameters
    ----------
    shares
        (N, len(names)).
    latency
        The draft's seconds, (N,): infinite or NaN where it is not valid, or not known.

    Returns
    -------
    With those terms only that some row has.
    """
    valid = np.isfinite(latency)
    seconds = np.where(valid, latency, 0.0)
    parts = np.maximum(np.exp(shares + np.log(FLOOR)) - FLOOR, 0.0) * seconds[:, None]
    terms = {name: parts[:, j] for j, name in enumerate(names) if shares[:, j].any()}
    return Draft(latency, valid, np.zeros(len(latency)), terms)
