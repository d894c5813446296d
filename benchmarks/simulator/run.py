"""One tuning over a pool: the product's `TaskRun`, told recorded latencies.

Replaced are what needs TVM: the design spaces (`space.PoolSpace`), the replay, and the interpreter
(draft and features are looked up). Exploration, calibration, the order of a batch, the recall
monitor and the cost model are the product's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.simulator.pool import Tunable
from benchmarks.simulator.space import Records
from benchmarks.simulator.tuners import Tuner
from pruner_ms.config import SearchConfig
from pruner_ms.draft.score import Draft
from pruner_ms.features.pack import FeatureBatch
from pruner_ms.pools.case import Case
from pruner_ms.pools.rankers import RANKERS
from pruner_ms.pools.verifiers import without_shares
from pruner_ms.search import verify
from pruner_ms.search.drafting import Drafting
from pruner_ms.search.replay import Replayed
from pruner_ms.search.task import TaskFacts, TaskRun
from pruner_ms.session.budget import batch_size
from pruner_ms.tvm_compat.paths import ms
from pruner_ms.types import FloatArray, IntArray

SHARE = 3
"""Trials are a third of the pool at most: beyond, chance finds everything."""

POPULATION, KEPT, ELITES = 8, 6, 24
"""Parts of a pool that are a generation, the drafts kept, and the elites: a search sees little of a
design space, so that here it must not see all of a pool."""

LEAST_SCORE = 0.01
"""Of stock's model, which says throughput relative to the best: what it takes for slower."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """One tuning.

    Attributes
    ----------
    chosen
        Candidates in the order in which they were measured, (at most trials,).
    seconds
        Of a processor that the tuner took.
    seen
        Distinct drafts scored per round, as a share of the pool; 0 without exploration.
    batch
        Candidates per round.
    """

    chosen: IntArray
    seconds: float
    seen: float
    batch: int


def scaled(config: SearchConfig, candidates: int, tuner: Tuner) -> SearchConfig:
    """The knobs for a pool of so many candidates, less what a tuner leaves out."""
    return replace(
        config,
        population=max(8, candidates // POPULATION),
        spec_size=max(8, candidates // KEPT),
        elite_size=candidates // ELITES if tuner.elites else 0,
        optimism=config.optimism if tuner.optimism else 0.0,
    )


def warm_up(pool: Tunable, tuners: Iterable[Tuner]) -> None:
    """Do what happens once in a process or for a pool: imports, and stock's features."""
    kinds = {(tuner.guide, bool(tuner.mode)): tuner for tuner in tuners}
    for tuner in kinds.values():
        simulate(pool, tuner, trials=20, seed=0, batch=10)


def trials_of(pool: Tunable, trials: int) -> int:
    """Trials over a pool: those wanted, or as many as it is good for."""
    return min(trials, len(pool) // SHARE)


def simulate(
    pool: Tunable,
    tuner: Tuner,
    trials: int,
    seed: int,
    batch: int | None = None,
    weights: str = "packaged",
) -> Outcome:
    """Tune once.

    Parameters
    ----------
    batch
        Candidates per round; None: as many as a session's with so many trials.
    weights
        What a tuner that is pretrained starts from.
    """
    start = time.process_time()
    size = batch or batch_size(trials, 1)
    if not tuner.guide:
        order = np.random.default_rng([seed, 11]).permutation(len(pool))[:trials]
        return Outcome(order, time.process_time() - start, 0.0, size)
    model = _model(pool, tuner, seed, weights)
    run = PoolRun(pool, tuner, model, trials, size, seed)
    chosen: list[int] = []
    while run.ask():
        picked = [int(candidate.replayed.key) for candidate in run.pending]
        seconds = pool.latency[picked]
        run.tell([_result(s) for s in seconds])
        own = verify.our_model(model)
        if own is not None:
            own.observe(run.key, Records(np.array(picked)), seconds)
            own.verifier.end_replay()
        chosen += picked
    rounds = max(run.funnel.rounds, 1)
    spent = time.process_time() - start
    seen = run.funnel.drafted / rounds / len(pool)
    return Outcome(np.array(chosen, np.int64), spent, seen, size)


class PoolRun(TaskRun):
    """The search over a pool."""

    def __init__(
        self, pool: Tunable, tuner: Tuner, model: Any | None, trials: int, batch: int, seed: int
    ) -> None:
        context = pool.described.spaces.context
        super().__init__(
            facts=TaskFacts(pool.name, context.mod, context.target, (), 1, seed),
            config=scaled(SearchConfig(), len(pool), tuner),
            hardware=pool.described.hardware,
            design_spaces=[],
            database=None,
            cost_model=model,
            max_trials=trials,
            batch=batch,
        )
        self.log = self.monitor.log = logging.getLogger(__name__)
        self.space: Any = pool.space
        self.replayer: Any = _Replayer(pool)
        self.drafting = _Drafting(
            pool.space,  # type: ignore[arg-type]
            pool.described.hardware,
            context.target,
            self.search.config.variant,
            self.search.config.compile_limit,
            pool=pool,
            tuner=tuner,
            seed=seed,
        )
        if model is not None:
            verify.introduce(model, self.key, pool.space)  # type: ignore[arg-type]


class _Replayer:
    """Gives the recorded schedules of records."""

    def __init__(self, pool: Tunable) -> None:
        self._pool = pool

    def stream(
        self, records: Sequence[tuple[int, int]], judged: bool = False
    ) -> Iterator[Replayed | None]:
        """Of (record, seed) pairs."""
        for record, _ in records:
            schedule = self._pool.described.schedules[self._pool.numbers[record]]
            yield Replayed(schedule, str(record))


@dataclass
class _Drafting(Drafting):
    """The draft stage, with a formula that is looked up."""

    pool: Tunable = field(kw_only=True)
    tuner: Tuner = field(kw_only=True)
    seed: int = field(kw_only=True)
    _known: list[int] = field(default_factory=list, kw_only=True)
    _guide: Draft | None = field(default=None, kw_only=True)

    def raw(self, program: Any) -> Draft:
        """What guides the exploration, of some records."""
        if self._guide is None:
            self._guide = self._whole()
        return self._guide.take(program.index)

    def learn(self, program: Any, latencies: Sequence[float]) -> None:
        """Note measured records."""
        self._known += program.index.tolist()
        super().learn(program, latencies)

    def calibrate(self) -> None:
        """Re-fit the draft where that is wanted; another guide is made when it is next asked."""
        if self.tuner.guide != "draft":
            self._guide = None
        elif self.tuner.calibrates:
            super().calibrate()

    def _whole(self) -> Draft:
        """Of all candidates."""
        if self.tuner.guide == "draft":
            return self.pool.drafted
        if self.tuner.guide == "noise":
            rng = np.random.default_rng([self.seed, len(self._known), 13])
            return _plain(np.exp(rng.normal(size=len(self.pool))))
        measured_numbers = self.pool.numbers[np.array(self._known, np.int64)]
        case = Case(self.pool.described, measured_numbers, self.pool.numbers, self.seed)
        score = -RANKERS[self.tuner.guide](case)[0]
        return _plain(1.0 / np.maximum(score, LEAST_SCORE))


def _plain(cost: FloatArray) -> Draft:
    """Costs as a draft of which nothing else is known; no two are near-duplicates."""
    rows = np.arange(len(cost))
    valid = np.ones(len(cost), np.bool_)
    return Draft(cost, valid, np.zeros(len(cost)), {"record": rows})  # type: ignore[dict-item]


class _Priors:
    """Features and draft of records, for a model that would make them of programs."""

    def __init__(self, pool: Tunable, use: bool) -> None:
        self._features = pool.features if use else without_shares(pool.features)
        self._prior = pool.drafted.latency if use else np.full(len(pool), np.nan)

    def features_and_prior(
        self, _task: str, program: Records, _given: FloatArray | None = None
    ) -> tuple[FeatureBatch, FloatArray]:
        """As `model.prior.Priors.features_and_prior`."""
        return self._features.rows(program.index), self._prior[program.index]

    def seconds(self, _task: str, program: Records, _given: FloatArray | None = None) -> FloatArray:
        """As `model.prior.Priors.seconds`."""
        prior: FloatArray = self._prior[program.index]
        return prior


def _model(pool: Tunable, tuner: Tuner, seed: int, weights: str) -> Any | None:
    """The cost model of a tuner; None without one."""
    if not tuner.mode:
        return None
    from pruner_ms.model.cost_model import PaCMModel

    use = tuner.guide == "draft"
    model = PaCMModel(
        weights if tuner.pretrained else None, mode=tuner.mode, seed=seed, use_draft=use
    )
    own: Any = verify.our_model(model)
    own._priors = _Priors(pool, use)  # no program is there to make them of
    own.verifier.recipe = replace(own.verifier.recipe, calibrates=tuner.calibrates)
    return model


def _result(seconds: float) -> Any:
    if np.isfinite(seconds):
        return ms.runner.RunnerResult([float(seconds)], None)
    return ms.runner.RunnerResult(None, "failed when it was recorded")
