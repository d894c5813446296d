"""What a pool can be ranked by: our drafts and models, stock ones, and chance.

A ranker takes a `Case` and gives a cost for each record to rank (less is faster; infinite where it
calls the schedule invalid) and the seconds per candidate that the ranking takes, training not
included.
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


# Rankers of a pool: TVM's own cost models, of whatever version is installed.
#
# With earlier pools they learn those and the records together, as their own updates would, tasks
# apart. The time is that of extraction and prediction, the replay that both need comes on top.
# TVM's noise is unseeded, this one is of the seed.


Lesson = tuple[Described, IntArray]
"""A pool, and the records of it that are learned."""


def xgb(warm_up: int, case: Case) -> Ranked:
    """TVM's XGBModel on its per-store features; noise below `warm_up` records, and without any."""
    require_xgboost("the model xgb")
    known = case.learned()
    earlier = _whole(case.past.own)
    if len(known) + sum(len(rows) for _, rows in earlier) < max(warm_up, 1):
        return case.noise()
    lessons = [*earlier, (case.pool, known)]
    lists = (known, case.pool.latency[known], case.rows)
    key = ("xgb", case.pool.name, *(tuple(values.tolist()) for values in lists))
    # of the same records the same is learned, whatever the warm-up and the seed of the noise
    kept = partial(case.past.once, key, False) if earlier else partial(case.pool.once, str(key))
    return kept(lambda: _boosted(lessons, case))


def _boosted(lessons: Sequence[Lesson], case: Case) -> Ranked:
    """What XGBModel says when it has learned the lessons."""
    model = ms.cost_model.XGBModel(num_warmup_samples=0, num_tuning_cores=1)
    # the Python object itself: candidates then pass as indices, without TVM in between
    stock = getattr(model, "_inst", model)
    lessons = [lesson for lesson in lessons if len(lesson[1])]
    for number, (pool, rows) in enumerate(lessons, 1):
        # it trains when the records have grown by a fifth since the last time: only at the last
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
    known = case.learned()
    ran = int(np.isfinite(case.pool.latency[known]).sum())
    if not case.past.own and ran < LEAST_RECORDS:
        return case.noise()
    arrays, seconds = _rows(case.pool)
    model = _pretrained(case) if case.past.own else _new(case.seed)
    if ran >= LEAST_RECORDS:
        own = _task((case.pool, known))
        (model.go_on if case.past.own else model.fit)([own])
    cost, spent = case.timed(lambda: -model.score([arrays[i] for i in case.rows]))
    return cost, seconds + spent


def _new(seed: int) -> StockMLP:
    from pruner_ms.model.baselines.stock import StockMLP  # torch: only when a model is made

    return StockMLP(seed)


def _pretrained(case: Case) -> StockMLP:
    """The model that has learned the earlier pools."""

    def make() -> StockMLP:
        model = _new(case.seed)
        model.fit([_task(lesson) for lesson in _whole(case.past.own)])
        return model

    return copy.deepcopy(case.past.once(("mlp", case.seed), False, make))


def _task(lesson: Lesson) -> Task:
    from pruner_ms.model.baselines.stock import Task

    pool, known = lesson
    arrays, _ = _rows(pool)
    return Task(pool.task, [arrays[i] for i in known], pool.latency[known])


def _rows(pool: Described) -> tuple[list[np.ndarray], float]:
    tensors, seconds = workload_features(pool)
    return [np.asarray(tensor.numpy(), np.float32) for tensor in tensors], seconds


def _whole(pools: Sequence[Described]) -> list[Lesson]:
    """All records of some pools that MetaSchedule lets a cost model learn from."""
    return [(pool, built(pool, np.arange(len(pool)))) for pool in pools]


def _stores(pool: Described) -> tuple[list[Any], float]:
    """TVM's features of every record, and seconds per record."""
    found: tuple[list[Any], float] = pool.once("stock features", lambda: extracted(pool, False))
    return found


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
    """What a model is besides its ranking.

    Attributes
    ----------
    needs
        What raises where its package is not installed.
    earlier
        What it learns from before the pool's own records: "none" where it learns nothing, or
        formulas; "alone" where it learns and can have no earlier pools; "own" of `--train-from` if
        given; "all" of `--platform-from` too, and it needs some.
    ablation
        Whether it is ours with a part left out, for those who ask for it by name.
    """

    needs: Callable[[str], None] | None = None
    earlier: str = "none"
    ablation: bool = False


def _drafted(variant: str, case: Case) -> Ranked:
    """A formula as it is: the interpretation of the decisions and arithmetic on arrays."""
    scored, seconds = case.pool.draft(variant)
    return scored.latency[case.rows], seconds


def _calibrated(case: Case) -> Ranked:
    """The draft with its weights re-fitted."""
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
"""Our networks, by the names that `--model` takes. No momentum is `moa-m0`: the source becomes what
was learned last. `calibrated` is that part of `pacm` which needs no network."""

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
        "mtl-tlp": partial(baselines.several, "mtl-tlp"),
        "random": _random,
    }
)
"""By the names that `pruner-ms pool eval --model` takes."""

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
"""Of those that are more than a formula."""


def traits(model: str) -> Traits:
    """Traits of a model of `RANKERS`."""
    return TRAITS.get(model, Traits())
