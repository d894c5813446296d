"""`feature_extractor="pattern-aware"`: our features for any MetaSchedule cost model.

Works inside stock `XGBModel(extractor=PatternAwareExtractor())`. Reads the replayed schedule of a
candidate (the oracle), so it serves every design space and target.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.features.pack import HEADER, PACKED_WIDTH, SCHEMA, FeatureBatch, features_of, pack
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.tvm_compat.paths import as_tensor, derived_object, ms
from pruner_ms.types import FloatArray

logger = logging.getLogger(__name__)


def candidate_features(target: Any, candidates: Sequence[Any]) -> list[FeatureBatch | None]:
    """Features of measure candidates, one batch of one row each, read off their schedules.

    None for candidates that TVM cannot lower; they could not be built either.
    """
    return [_features_of(candidate.sch.mod, target) for candidate in candidates]


def _features_of(mod: Any, target: Any) -> FeatureBatch | None:
    try:
        return features_of(read(mod, target))
    except UnsupportedTrace as verdict:
        logger.debug("a candidate cannot be read: %s", verdict)
        return None


@derived_object
class PatternAwareExtractor(ms.feature_extractor.PyFeatureExtractor):
    """One packed float64 array (`pruner_ms.features.pack`) per candidate."""

    def extract_from(self, context: Any, candidates: Sequence[Any]) -> list[Any]:
        """Packed features, one TVM tensor (rows, 3 + W) per candidate."""
        return [
            as_tensor(blank() if batch is None else _nonempty(pack(batch)[0]))
            for batch in candidate_features(context.target, candidates)
        ]

    def __str__(self) -> str:
        return "PatternAwareExtractor()"


def _nonempty(array: FloatArray) -> FloatArray:
    # XGBModel drops a candidate without rows from an update but not from a prediction
    return array if len(array) else blank()


def blank() -> FloatArray:
    """Packed features of a candidate that could not be read, (1, 3 + W)."""
    array = np.zeros((1, HEADER + PACKED_WIDTH))
    array[0, 0] = SCHEMA
    return array
