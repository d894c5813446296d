"""Rankers of a pool: our drafts and models, stock ones, and chance.

A ranker maps a `Case` to a cost for each record to rank (less is faster; infinite for a predicted
invalid schedule) and the seconds per candidate of the ranking, without training.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pruner_ms.draft.calibrate import fit
from pruner_ms.errors import EnvironmentFault
from pruner_ms.model.backend import require_torch
from pruner_ms.model.records import LEAST_RECORDS
from pruner_ms.pools import baselines, verifiers
from pruner_ms.pools.baselines import extracted, workload_features
from pruner_ms.pools.case import Case, Ranked, built
from pruner_ms.pools.describe import Described
from pruner_ms.pools.verifiers import Design
from pruner_ms.tvm_compat.paths import ms
from pruner_ms.types import FloatArray, IntArray

if TYPE_CHECKING:
    from pruner_ms.model.baselines.stock import StockMLP, Task


# TVM's own cost models, of the installed version.
#
# With earlier pools they learn those and the records jointly, separated by task, as their own
# updates would. The time is that of extraction and prediction, without the replay that both need.
# TVM's noise is unseeded, this one is seeded.

Lesson = tuple[Described, IntArray]
"""A pool, and the records of it that are learned."""


def xgb(warm_up: int, case: Case) -> Ranked:
    """TVM's XGBModel on its per-store features; noise below `warm_up` records, and without any."""
    require_xgboost("the model xgb")
    train = case.learned()
    earlier = _whole(case.past.train_from)
    if len(train) + sum(len(rows) for _, rows in earlier) < max(warm_up, 1):
        return case.noise()
    lessons = [*earlier, (case.pool, train)]
    lists = (train, case.pool.latency[train], case.rows)
    key = ("xgb", case.pool.name, *(tuple(values.tolist()) for values in lists))
    # the model depends on the records only, not on the warm-up and the seed of the noise
    cached = partial(case.past.once, key, False) if earlier else partial(case.pool.once, str(key))
    return cached(lambda: _boosted(lessons, case))


def _boosted(lessons: Sequence[Lesson], case: Case) -> Ranked:
    """Costs by an XGBModel that has learned the lessons."""
    model = ms.cost_model.XGBModel(num_warmup_samples=0, num_tuning_cores=1)
    # the Python object itself: candidates are passed as indices, without TVM in between
    stock = getattr(model, "_inst", model)
    lessons = [lesson for lesson in lessons if len(lesson[1])]
    for number, (pool, rows) in enumerate(lessons, 1):
        # it trains when the records have grown by a fifth: force that for the last lesson only
        stock.last_train_size = 0 if number == len(lessons) else 1 << 40
        stock.extractor = Extracted(_stores(pool)[0])
        results = [_result(seconds) for seconds in _relative(pool.latency[rows])]
        stock.update(pool.spaces.context, rows.tolist(), results)
    tensors, seconds = _stores(case.pool)
    stock.extractor = Extracted(tensors)
    index = [int(i) for i in case.rows]
    context = case.pool.spaces.context
    cost, spent = case.timed(lambda: -np.asarray(stock.predict(context, index), np.float64))
    return cost, seconds + spent


def mlp(case: Case) -> Ranked:
    """TVM's torch model on its features with those of the workload; see `model.baselines.stock`."""
    train = case.learned()
    ran = int(np.isfinite(case.pool.latency[train]).sum())
    if not case.past.train_from and ran < LEAST_RECORDS:
        return case.noise()
    arrays, seconds = _rows(case.pool)
    model = _pretrained(case) if case.past.train_from else _new(case.seed)
    if ran >= LEAST_RECORDS:
        task = _task((case.pool, train))
        (model.go_on if case.past.train_from else model.fit)([task])
    cost, spent = case.timed(lambda: -model.score([arrays[i] for i in case.rows]))
    return cost, seconds + spent


def _new(seed: int) -> StockMLP:
    from pruner_ms.model.baselines.stock import StockMLP  # torch: only when a model is made

    return StockMLP(seed)


def _pretrained(case: Case) -> StockMLP:
    """The model that has learned the earlier pools."""

    def make() -> StockMLP:
        model = _new(case.seed)
        model.fit([_task(lesson) for lesson in _whole(case.past.train_from)])
        return model

    return copy.deepcopy(case.past.once(("mlp", case.seed), False, make))


def _task(lesson: Lesson) -> Task:
    from pruner_ms.model.baselines.stock import Task

    pool, index = lesson
    arrays, _ = _rows(pool)
    return Task(pool.task, [arrays[i] for i in index], pool.latency[index])


def _rows(pool: Described) -> tuple[list[np.ndarray], float]:
    tensors, seconds = workload_features(pool)
    return [np.asarray(tensor.numpy(), np.float32) for tensor in tensors], seconds


def _whole(pools: Sequence[Described]) -> list[Lesson]:
    """For each pool, all records that MetaSchedule lets a cost model learn from."""
    return [(pool, built(pool, np.arange(len(pool)))) for pool in pools]


def _stores(pool: Described) -> tuple[list[Any], float]:
    """TVM's features of every record, and seconds per record."""
    tensors: tuple[list[Any], float] = pool.once("stock features", lambda: extracted(pool, False))
    return tensors


def _relative(latency: FloatArray) -> FloatArray:
    """Latencies over the best: platforms that share a module share a group of TVM's model."""
    ran = latency[np.isfinite(latency)]
    return latency / ran.min() if len(ran) else latency


class Extracted:
    """Stands in for the extractor of a stock model: what was extracted once is looked up."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = tensors

    def extract_from(self, _context: Any, candidates: Sequence[int]) -> list[Any]:
        """Features of candidates that are named by their index."""
        return [self.tensors[int(i)] for i in candidates]


def require_xgboost(purpose: str) -> None:
    """Raise an EnvironmentFault where xgboost is not installed."""
    if find_spec("xgboost") is None:
        raise EnvironmentFault(f"{purpose} needs xgboost; pip install xgboost-cpu")


def _result(latency: float) -> Any:
    if np.isfinite(latency):
        return ms.runner.RunnerResult([float(latency)], None)
    return ms.runner.RunnerResult(None, "failed when it was measured")


Ranker: TypeAlias = Callable[[Case], Ranked]


@dataclass(frozen=True)
class Traits:
    """Requirements of a model.

    Attributes
    ----------
    needs
        Raises where its package is not installed.
    earlier
        Earlier pools that it can learn: "none" where it does not learn; "alone" where it learns the
        pool's records only; "own" those of `--train-from`, if given; "all" those of
        `--platform-from`, too, and it needs some.
    ablation
        Whether it is an ablation of ours, not among the default models.
    """

    needs: Callable[[str], None] | None = None
    earlier: str = "none"
    ablation: bool = False


def _drafted(variant: str, case: Case) -> Ranked:
    """An uncalibrated formula: interpretation of the decisions and arithmetic on arrays."""
    scored, seconds = case.pool.draft(variant)
    return scored.latency[case.rows], seconds


def _calibrated(case: Case) -> Ranked:
    """The calibrated draft."""
    scored, seconds = case.pool.draft("ours")
    calibration = fit(scored.take(case.train), case.pool.latency[case.train])
    cost, spent = case.timed(lambda: calibration.latency(scored.take(case.rows)))
    return cost, seconds + spent


def _random(case: Case) -> Ranked:
    return case.timed(lambda: np.random.default_rng([case.seed, 1]).random(len(case.rows)))


_LATER = Design(transfer=True)
_PUBLISHED = Design(arch="published", recipe="published", later="published-finetune")

DESIGNS: Mapping[str, Design] = MappingProxyType(
    {
        "pacm": Design(),
        "published": _PUBLISHED,
        "pacm-offline": Design(mode="offline", transfer=True),
        "pacm-finetune": _LATER,
        "moa-pacm": Design(mode="moa", transfer=True),
        "moa-m0": Design(mode="moa", m=0.0, transfer=True),
        "pacm-statement": Design(view=verifiers.statements_only),
        "pacm-tokens": Design(view=verifiers.tokens_only),
        "pacm-no-order": Design(view=verifiers.without_order),
        "pacm-no-shares": Design(view=verifiers.without_shares),
        "pacm-no-calibration": Design(calibrates=False),
        "pacm-no-draft": Design(corrects=False, view=verifiers.without_shares),
    }
)
"""Our networks, by the values of `--model`. `moa-m0` has no momentum: the source is the last
target. `calibrated` is the part of `pacm` without a network."""

RANKERS: Mapping[str, Ranker] = MappingProxyType(
    {
        "draft": partial(_drafted, "ours"),
        "released": partial(_drafted, "released"),
        "paper": partial(_drafted, "paper"),
        "calibrated": _calibrated,
        **{name: partial(verifiers.ranked, design) for name, design in DESIGNS.items()},
        "xgb": partial(xgb, 0),
        "xgb-stock": partial(xgb, 100),
        "mlp": mlp,
        "tensetmlp": partial(baselines.ranked, "tensetmlp"),
        "tlp": partial(baselines.ranked, "tlp"),
        "mtl-tlp": partial(baselines.multi_platform, "mtl-tlp"),
        "random": _random,
    }
)
"""By the values of `pruner-ms pool eval --model`."""

_OWN, _ALL = Traits(require_torch, "own"), Traits(require_torch, "all")
_PART = Traits(require_torch, "own", ablation=True)

TRAITS: Mapping[str, Traits] = MappingProxyType(
    {
        "calibrated": Traits(earlier="alone"),
        "pacm": _OWN,
        "published": _OWN,
        "pacm-offline": _ALL,
        "pacm-finetune": _ALL,
        "moa-pacm": _ALL,
        "moa-m0": Traits(require_torch, "all", ablation=True),
        "pacm-statement": _PART,
        "pacm-tokens": _PART,
        "pacm-no-order": _PART,
        "pacm-no-shares": _PART,
        "pacm-no-calibration": _PART,
        "pacm-no-draft": _PART,
        "xgb": Traits(require_xgboost, "own"),
        "xgb-stock": Traits(require_xgboost, "own"),
        "mlp": _OWN,
        "tensetmlp": _OWN,
        "tlp": _OWN,
        "mtl-tlp": _ALL,
    }
)
"""Traits of the models that are not just formulas."""


def traits(model: str) -> Traits:
    """Traits of a model of `RANKERS`."""
    return TRAITS.get(model, Traits())
