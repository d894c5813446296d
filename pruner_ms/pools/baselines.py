"""Rankers of a pool: the cost models of other papers, trained on the same rows as ours.

Below the records that a model needs it is noise of the seed, as stock `xgb` without any. The time
is that of extraction and prediction, the replay that both need comes on top.
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
    """A baseline of `model.baselines` as its paper trains it: from scratch, or on from others.

    After a pretraining it goes on from its weights, as `cost_model=` does with weights.
    """
    known = case.learned()
    ran = int(np.isfinite(case.pool.latency[known]).sum())
    if case.past.own:
        model = copy.deepcopy(_pretrained(name, case))
        model.observe(measured(name, case.pool, known))
        model.learn(least=1)
    elif ran >= LEAST_RECORDS:
        model = _new(name, case.seed)
        model.fit([measured(name, case.pool, known)])
    else:
        return case.noise()
    return _scored(name, model, case)


def several(name: str, case: Case) -> Ranked:
    """One trunk with a head per platform, trained on all platforms and the records together.

    It is no pretraining that goes on: what few records the platform has are learned beside the
    others' many.
    """
    known = case.learned()
    if len(known):
        return _scored(name, joint(name, case, known), case)
    # nothing of the pool itself: the same for all pools of the platform
    key = (name, case.seed, case.pool.platform)
    return _scored(name, case.past.once(key, True, lambda: joint(name, case, known)), case)


def joint(name: str, case: Case, known: IntArray) -> Baseline:
    """A model with a head per platform that has learned all of them, without their records."""
    here = case.pool.platform
    model = _new(name, case.seed, heads=[here], target=here)
    own = [measured(name, case.pool, known)] if len(known) else []
    model.fit(own + _earlier(name, case.past.pools(transfer=True)))
    model.forget()
    return model


def _new(name: str, seed: int, **options: Any) -> Baseline:
    from pruner_ms.model.baselines.ranker import Baseline  # torch: only when a model is made

    return Baseline(name, seed, **options)


def _pretrained(name: str, case: Case) -> Baseline:
    """A baseline that has learned the earlier pools, without their records."""

    def make() -> Baseline:
        model = _new(name, case.seed)
        model.fit(_earlier(name, case.past.own))
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
    """Some records of a pool, as a baseline sees them."""
    seen, _ = rows_of(name, pool)
    rows, seconds = seen.rows(index), pool.latency[index]
    return Measured(pool.task, rows, seconds, platform=pool.platform)


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
