"""Rankers of a pool: the cost models of other papers, trained on the same records as ours.

With too few records a model returns random costs, as stock `xgb` without any. The time is that of
extraction and prediction, without the replay that both need.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pruner_ms.features.ragged import Ragged
from pruner_ms.features.stores import widened
from pruner_ms.model.baselines.cost_model import token_rows
from pruner_ms.model.records import LEAST_RECORDS, Measured
from pruner_ms.pools.case import Case, Ranked, built
from pruner_ms.pools.describe import Described
from pruner_ms.search.verify import measure_candidate
from pruner_ms.tvm_compat.paths import ms
from pruner_ms.types import IntArray

if TYPE_CHECKING:
    from pruner_ms.model.baselines.ranker import Baseline


def ranked(name: str, case: Case) -> Ranked:
    """A baseline of `model.baselines` as its paper trains it: from scratch, or pretrained.

    After a pretraining it continues from the weights, as `cost_model=` does with weights.
    """
    train = case.learned()
    ran = int(np.isfinite(case.pool.latency[train]).sum())
    if case.past.train_from:
        model = copy.deepcopy(_pretrained(name, case))
        model.observe(measured(name, case.pool, train))
        model.learn(least=1)
    elif ran >= LEAST_RECORDS:
        model = _new(name, case.seed)
        model.fit([measured(name, case.pool, train)])
    else:
        return case.noise()
    return _scored(name, model, case)


def multi_platform(name: str, case: Case) -> Ranked:
    """One trunk with a head per platform, trained jointly on all platforms and the records.

    This is no pretraining: the few records of the platform are learned together with the many of
    the others.
    """
    train = case.learned()
    if len(train):
        return _scored(name, joint(name, case, train), case)
    # without the pool's records: the same model for all pools of the platform
    key = (name, case.seed, case.pool.platform)
    return _scored(name, case.past.once(key, True, lambda: joint(name, case, train)), case)


def joint(name: str, case: Case, train: IntArray) -> Baseline:
    """A model with a head per platform, trained on all of them; its records are dropped."""
    platform = case.pool.platform
    model = _new(name, case.seed, heads=[platform], target=platform)
    records = [measured(name, case.pool, train)] if len(train) else []
    model.fit(records + _earlier(name, case.past.pools(transfer=True)))
    model.forget()
    return model


def _new(name: str, seed: int, **options: Any) -> Baseline:
    from pruner_ms.model.baselines.ranker import Baseline  # torch: only when a model is made

    return Baseline(name, seed, **options)


def _pretrained(name: str, case: Case) -> Baseline:
    """A baseline trained on the earlier pools; its records are dropped."""

    def make() -> Baseline:
        model = _new(name, case.seed)
        model.fit(_earlier(name, case.past.train_from))
        model.forget()
        return model

    return case.past.once((name, case.seed), False, make)


def _earlier(name: str, pools: Sequence[Described]) -> list[Measured[Ragged]]:
    return [measured(name, pool, built(pool, np.arange(len(pool)))) for pool in pools]


def _scored(name: str, model: Baseline, case: Case) -> Ranked:
    seen, seconds = rows_of(name, case.pool)
    cost, spent = case.timed(lambda: -model.score(seen.rows(case.rows)))
    return cost, seconds + spent


def measured(name: str, pool: Described, index: IntArray) -> Measured[Ragged]:
    """Some records of a pool with a baseline's features."""
    seen, _ = rows_of(name, pool)
    rows, seconds = seen.rows(index), pool.latency[index]
    return Measured(pool.task, rows, seconds, platform=pool.platform)


def rows_of(name: str, pool: Described) -> tuple[Ragged, float]:
    """A baseline's features of every record, and seconds per record."""
    if name == "tensetmlp":
        tensors, seconds = workload_features(pool)
        made = pool.once("store rows", lambda: widened([np.asarray(t.numpy()) for t in tensors]))
        return made, seconds
    return pool.once("token rows", lambda: _tokens(pool))


def workload_features(pool: Described) -> tuple[list[Any], float]:
    """TVM's features of every record with those of the workload, and seconds per record."""
    make = partial(extracted, pool, True)
    tensors: tuple[list[Any], float] = pool.once("stock features with workload", make)
    return tensors


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
    tokens = token_rows(None, candidates)
    return tokens, (time.perf_counter() - start) / len(pool)
