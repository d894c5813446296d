"""Which drafts a batch is filled with first."""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.novelty import optimistic
from pruner_ms.types import FloatArray

_SPARE = 2
"""Candidates put in order one by one, per candidate measured: some are rejected."""


def hopeful(scores: FloatArray, left: FloatArray, optimism: float, wanted: int) -> FloatArray:
    """Scores under which those come first that are fast, or unlike all that was measured.

    Parameters
    ----------
    scores
        Of the verify model, (M,), higher is better.
    left
        `novelty.unexplained` of the same schedules, (M, M).
    optimism
        As `novelty.optimistic` takes it.
    wanted
        Candidates of the batch.
    """
    with np.errstate(divide="ignore"):  # the draft's score of what it calls invalid is 0
        logs = np.log(scores)
    first = optimistic(logs, left, optimism, _SPARE * wanted)
    found: FloatArray = scores / max(float(scores.max()), np.finfo(np.float64).tiny)
    found[first] = np.arange(len(first) + 1, 1, -1)
    return found
