"""`feature_extractor="pattern-aware"`: our features for any MetaSchedule cost model.

Works inside stock `XGBModel(extractor=PatternAwareExtractor())`. Reads the replayed schedule of a
candidate (the oracle), so it serves every design space and target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pruner_ms.features.pack import HEADER, PACKED_WIDTH, SCHEMA, FeatureBatch, features_of, pack
from pruner_ms.symbolic.lowered import read
from pruner_ms.tvm_compat.paths import as_tensor, derived_object, ms
from pruner_ms.types import FloatArray


def candidate_features(target: Any, candidates: Sequence[Any]) -> list[FeatureBatch]:
    """Features of measure candidates, one batch of one row each, read off their schedules."""
    return [features_of(read(candidate.sch.mod, target)) for candidate in candidates]


@derived_object
class PatternAwareExtractor(ms.feature_extractor.PyFeatureExtractor):
    """One packed float64 array (`pruner_ms.features.pack`) per candidate."""

    def extract_from(self, context: Any, candidates: Sequence[Any]) -> list[Any]:
        """Packed features, one TVM tensor (rows, 3 + W) per candidate."""
        return [
            as_tensor(_nonempty(pack(batch)[0]))
            for batch in candidate_features(context.target, candidates)
        ]

    def __str__(self) -> str:
        return "PatternAwareExtractor()"


def _nonempty(array: FloatArray) -> FloatArray:
    # XGBModel drops a candidate without rows from an update but not from a prediction
    if len(array):
        return array
    blank = np.zeros((1, HEADER + PACKED_WIDTH))
    blank[0, 0] = SCHEMA
    return blank
