"""Rankers of a pool: the cost models of other papers, trained on the same rows as ours.

Below the records that a model needs it is noise of the seed, as stock `xgb` without any. The time
is that of extraction and prediction, the replay that both need comes on top.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from pruner_ms.features.ragged import Ragged
from pruner_ms.features.stores import widened
from pruner_ms.model.baselines.cost_model import token_rows
from pruner_ms.model.baselines.records import LEAST_RECORDS, Measured
from pruner_ms.pools.describe import Described
from pruner_ms.search.verify import measure_candidate
from pruner_ms.tvm_compat.paths import ms
from pruner_ms.types import FloatArray, IntArray

Ranked: TypeAlias = tuple[FloatArray, float]


def learned(pool: Described, train: IntArray) -> IntArray:
    """Those of the records that MetaSchedule lets a cost model learn from: what was built."""
    known = [int(i) for i in train if np.isfinite(pool.latency[i]) or pool.built(int(i))]
    return np.array(known, np.int64)


def noise(rows: IntArray, seed: int) -> Ranked:
    """What a model without records says."""
    start = time.perf_counter()
    said = np.random.default_rng([seed, 3]).random(len(rows))
    return said, (time.perf_counter() - start) / len(rows)


def once_for(
    pool: Described, name: str, known: IntArray, rows: IntArray, make: Callable[[], Ranked]
) -> Ranked:
    """What was learned of the same records before, if it was."""
    key = f"{name} {known.tolist()} {pool.latency[known].tolist()} {rows.tolist()}"
    found: Ranked = pool.once(key, make)
    return found


def ranked(name: str, pool: Described, train: IntArray, rows: IntArray, seed: int) -> Ranked:
    """A baseline of `model.baselines`, trained from scratch as its paper trains it."""
    known = learned(pool, train)
    if np.isfinite(pool.latency[known]).sum() < LEAST_RECORDS:
        return noise(rows, seed)
    from pruner_ms.model.baselines.ranker import Baseline  # torch: only when a model is made

    seen, seconds = rows_of(name, pool)
    model = Baseline(name, seed)
    model.fit([Measured(pool.task, seen.take(known), pool.latency[known])])
    start = time.perf_counter()
    scores = model.score(seen.take(rows))
    return -scores, seconds + (time.perf_counter() - start) / len(rows)


def rows_of(name: str, pool: Described) -> tuple[Ragged, float]:
    """What a baseline sees of every record, and seconds per record."""
    if name == "tensetmlp":
        tensors, seconds = workload_features(pool)
        made = pool.once("store rows", lambda: widened([np.asarray(t.numpy()) for t in tensors]))
        return made, seconds
    return pool.once("token rows", lambda: _tokens(pool))


def workload_features(pool: Described) -> tuple[list[Any], float]:
    """TVM's features of every record with those of the workload, and seconds per record."""
    make = partial(extracted, pool, True)
    found: tuple[list[Any], float] = pool.once("stock features with workload", make)
    return found


def extracted(pool: Described, workload: bool) -> tuple[list[Any], float]:
    """TVM's features of every record, and seconds per record."""
    candidates = [measure_candidate(schedule) for schedule in pool.schedules]
    extractor = ms.feature_extractor.PerStoreFeature(extract_workload=workload)
    start = time.perf_counter()
    tensors = list(extractor.extract_from(pool.spaces.context, candidates))
    return tensors, (time.perf_counter() - start) / len(pool)


def _tokens(pool: Described) -> tuple[Ragged, float]:
    candidates = [measure_candidate(schedule) for schedule in pool.schedules]
    start = time.perf_counter()
    found = token_rows(None, candidates)
    return found, (time.perf_counter() - start) / len(pool)


class Extracted:
    """Stands in for the extractor of a stock model: what was extracted once is looked up."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = tensors

    def extract_from(self, _context: Any, candidates: Sequence[int]) -> list[Any]:
        """Features of candidates that are named by their index."""
        return [self.tensors[int(i)] for i in candidates]
