"""TVM's per-store features of replayed candidates, the input of TenSetMLP: 164 + 10 a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pruner_ms.features.ragged import Ragged, ragged
from pruner_ms.tvm_compat.paths import ms

SCHEMA = 1
"""Version of the columns. Raised whenever a column changes its meaning, place or scale."""

STORE, WORKLOAD = 164, 10
"""Numbers of a store statement, and of the workload that it belongs to."""

WIDTH = STORE + WORKLOAD


def store_rows(context: Any, candidates: Sequence[Any], extractor: Any | None = None) -> Ragged:
    """Features of measure candidates; W = `WIDTH`.

    The workload's numbers are TVM's: eight flags for words in the names of its blocks (softmax,
    max or min, add, matmul, ...). differs: TenSet's list has ten; the last two columns are 0.

    Parameters
    ----------
    context
        The `TuneContext` of the task.
    candidates
        `MeasureCandidate`s, replayed with their postprocessors.
    extractor
        A `PerStoreFeature` with workload features to use; None: a new one.
    """
    source = extractor or ms.feature_extractor.PerStoreFeature(extract_workload=True)
    arrays = [np.asarray(array.numpy()) for array in source.extract_from(context, candidates)]
    return widened(arrays)


def widened(arrays: Sequence[np.ndarray]) -> Ragged:
    """Arrays of TVM's extractor, (rows, at most `WIDTH`) each, padded with zeros to `WIDTH`."""
    return ragged([np.pad(a, [(0, 0), (0, WIDTH - a.shape[1])]) for a in arrays], WIDTH)
