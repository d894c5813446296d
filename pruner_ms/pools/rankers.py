"""What a pool can be ranked by: our drafts and models, stock ones, and chance.

A ranker takes the pool, the records to learn from, those to rank, and a seed; it gives a cost for
each record to rank (less is faster; infinite where it calls the schedule invalid) and the seconds
per candidate that the ranking takes, training not included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from pruner_ms.draft.calibrate import fit
from pruner_ms.errors import EnvironmentFault
from pruner_ms.model.backend import require_torch
from pruner_ms.model.baselines.records import LEAST_RECORDS
from pruner_ms.pools import baselines
from pruner_ms.pools.baselines import Ranked
from pruner_ms.pools.describe import Described
from pruner_ms.tvm_compat.paths import ms
from pruner_ms.types import IntArray

Ranker: TypeAlias = Callable[[Described, IntArray, IntArray, int], Ranked]


def _drafted(variant: str, pool: Described, _train: IntArray, rows: IntArray, _seed: int) -> Ranked:
    """A formula as it is: the interpretation of the decisions and arithmetic on arrays."""
    scored, seconds = pool.draft(variant)
    return scored.latency[rows], seconds


def _calibrated(pool: Described, train: IntArray, rows: IntArray, _seed: int) -> Ranked:
    """The draft with its weights re-fitted."""
    scored, seconds = pool.draft("ours")
    calibration = fit(scored.take(train), pool.latency[train])
    start = time.perf_counter()
    cost = calibration.latency(scored.take(rows))
    return cost, seconds + (time.perf_counter() - start) / len(rows)


def _pacm(pool: Described, train: IntArray, rows: IntArray, seed: int) -> Ranked:
    """The pattern-aware model as the search uses it: it corrects the draft."""
    from pruner_ms.model.verifier import Verifier  # torch: only when a model is made

    features, feature_seconds = pool.features()
    scored, draft_seconds = pool.draft("ours")
    verifier = Verifier(seed=seed)
    if len(train):
        prior = scored.latency[train]
        verifier.observe(pool.task, features.rows(train), pool.latency[train], prior)
        verifier.learn(least=1)
    start = time.perf_counter()
    scores = verifier.score(pool.task, features.rows(rows), scored.latency[rows])
    spent = (time.perf_counter() - start) / len(rows)
    # the interpretation is in both
    seconds = feature_seconds + draft_seconds - pool.interpret_seconds + spent
    return -scores, seconds


def _xgb(warm_up: int, pool: Described, train: IntArray, rows: IntArray, seed: int) -> Ranked:
    """TVM's XGBModel on its per-store features; noise below `warm_up` records, and without any.

    The time is that of extraction and prediction; the replay that they need comes on top. TVM's
    noise is unseeded, this one is of the seed.
    """
    known = baselines.learned(pool, train)
    if len(known) < max(warm_up, 1):
        return baselines.noise(rows, seed)
    # of the same records the same is learned, whatever the warm-up
    return baselines.once_for(pool, "xgb", known, rows, lambda: _boosted(pool, known, rows))


def _boosted(pool: Described, known: IntArray, rows: IntArray) -> Ranked:
    """What XGBModel says of some records when it has learned others."""
    require_xgboost("the model xgb")
    tensors, seconds = pool.once("stock features", lambda: baselines.extracted(pool, False))
    model = ms.cost_model.XGBModel(num_warmup_samples=0, num_tuning_cores=1)
    # the Python object itself: candidates then pass as indices, without TVM in between
    stock = getattr(model, "_inst", model)
    stock.extractor = baselines.Extracted(tensors)
    context = pool.spaces.context
    stock.update(context, known.tolist(), [_result(pool.latency[i]) for i in known])
    start = time.perf_counter()
    scores = np.asarray(stock.predict(context, [int(i) for i in rows]), np.float64)
    return -scores, seconds + (time.perf_counter() - start) / len(rows)


def _mlp(pool: Described, train: IntArray, rows: IntArray, seed: int) -> Ranked:
    """TVM's torch model on its features with those of the workload; see `model.baselines.stock`."""
    known = baselines.learned(pool, train)
    if np.isfinite(pool.latency[known]).sum() < LEAST_RECORDS:
        return baselines.noise(rows, seed)
    from pruner_ms.model.baselines.stock import stock_mlp  # torch: only when a model is made

    tensors, seconds = baselines.workload_features(pool)
    arrays = [np.asarray(tensor.numpy(), np.float32) for tensor in tensors]
    score = stock_mlp([arrays[i] for i in known], pool.latency[known], pool.task, seed)
    start = time.perf_counter()
    scores = score([arrays[i] for i in rows])
    return -scores, seconds + (time.perf_counter() - start) / len(rows)


def require_xgboost(purpose: str) -> None:
    """Raise an EnvironmentFault where xgboost is not installed."""
    if find_spec("xgboost") is None:
        raise EnvironmentFault(f"{purpose} needs xgboost; pip install xgboost-cpu")


def _result(latency: float) -> Any:
    if np.isfinite(latency):
        return ms.runner.RunnerResult([float(latency)], None)
    return ms.runner.RunnerResult(None, "failed when it was measured")


def _random(_pool: Described, _train: IntArray, rows: IntArray, seed: int) -> Ranked:
    start = time.perf_counter()
    cost = np.random.default_rng([seed, 1]).random(len(rows))
    return cost, (time.perf_counter() - start) / len(rows)


RANKERS: Mapping[str, Ranker] = MappingProxyType(
    {
        "draft": partial(_drafted, "ours"),
        "released": partial(_drafted, "released"),
        "paper": partial(_drafted, "paper"),
        "calibrated": _calibrated,
        "pacm": _pacm,
        "xgb": partial(_xgb, 0),
        "xgb-stock": partial(_xgb, 100),
        "mlp": _mlp,
        "tensetmlp": partial(baselines.ranked, "tensetmlp"),
        "tlp": partial(baselines.ranked, "tlp"),
        "random": _random,
    }
)
"""By the names that `pruner-ms pool eval --model` takes."""

NEEDS: Mapping[str, Callable[[str], None]] = MappingProxyType(
    {
        "pacm": require_torch,
        "xgb": require_xgboost,
        "xgb-stock": require_xgboost,
        "mlp": require_torch,
        "tensetmlp": require_torch,
        "tlp": require_torch,
    }
)
"""What raises where a model's package is not installed."""
