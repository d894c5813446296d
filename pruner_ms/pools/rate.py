"""`pool rate`: drafts per second on one core, and the time of one later search round and stock's.

Nothing is built or measured, so that a CUDA target needs no GPU. The 128 records of the round have
synthetic latencies, the draft's times a random factor: the time of a round does not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.errors import NoValidScheduleError, OptionError, TargetError
from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.pools.drafted import count_drafts
from pruner_ms.pools.machine import this_machine
from pruner_ms.pools.spaces import Spaces, make_spaces
from pruner_ms.pools.workloads import DEFAULT, TENSORCORE, parse_workload
from pruner_ms.records.database import commit
from pruner_ms.search.task import TaskFacts, TaskRun
from pruner_ms.tvm_compat.paths import Target, TuneContext, ms
from pruner_ms.tvm_compat.targets import attrs_of, parse_target
from pruner_ms.types import FloatArray, Ok

# One later round of a search, timed: ours and stock's, in the same state, on one thread.
#
# The state is 128 measured records and a cost model that has learned them. The time starts after
# generating the design spaces, measuring and training, and ends with 64 candidates to build.

RECORDS, CANDIDATES = 128, 64
SPREAD = 0.3
"""Standard deviation of the log of the synthetic measurements around the draft."""


@dataclass(frozen=True, eq=False)
class TaskRecords:
    """Records of a task: candidates, and their synthetic latencies in seconds, (n,)."""

    candidates: list[Any]
    latency: FloatArray

    def database(self, mod: Any, target: Any) -> Any:
        """A new database of the records."""
        database = ms.database.MemoryDatabase()
        for candidate, seconds in zip(self.candidates, self.latency, strict=True):
            commit(database, mod, candidate.sch, Ok((float(seconds),)), target)
        return database

    def results(self) -> list[Any]:
        """The records as results of a runner."""
        return [ms.runner.RunnerResult([float(seconds)], None) for seconds in self.latency]


@dataclass(frozen=True)
class Round:
    """One round.

    Attributes
    ----------
    seconds, cpu_seconds
        Wall and processor time.
    candidates
        Their number; 64 unless the design space is small.
    model
        Name of the cost model.
    replayed, rejected
        Candidates replayed, and those that a postprocessor refused; None: unknown.
    stages
        Wall seconds by stage.
    """

    seconds: float
    cpu_seconds: float
    candidates: int
    model: str
    replayed: int | None = None
    rejected: int | None = None
    stages: dict[str, float] | None = None

    @property
    def pass_share(self) -> float | None:
        """Share of the replayed candidates that pass all postprocessors."""
        if not self.replayed or self.rejected is None:
            return None
        return round(1 - self.rejected / self.replayed, 4)

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        stages = {k: round(v, 4) for k, v in (self.stages or {}).items()}
        return {
            "cpu_seconds": round(self.cpu_seconds, 4),
            "candidates": self.candidates,
            "model": self.model,
            "replayed": self.replayed,
            "rejected": self.rejected,
            **({"stages": stages} if stages else {}),
        }


def _task(
    spaces: Spaces,
    hardware: HardwareSpec,
    seed: int,
    batch: int,
    database: Any = None,
    model: Any = None,
) -> TaskRun:
    context = spaces.context
    postprocs = tuple(context.space_generator.postprocs or ())
    return TaskRun(
        facts=TaskFacts("rate", context.mod, context.target, postprocs, 1, seed),
        config=SearchConfig(opening_trials=batch, untuned=False),  # schedules are proposed
        hardware=hardware,
        design_spaces=list(context.generate_design_space()),
        database=database,
        cost_model=model,
        max_trials=1 << 30,
        batch=batch,
    )


def records_for(spaces: Spaces, hardware: HardwareSpec, seed: int) -> TaskRecords:
    """A first batch of candidates with synthetic latencies.

    Raises
    ------
    NoValidScheduleError
        Fewer candidates than a model can learn from pass the postprocessors.
    """
    run = _task(spaces, hardware, seed, RECORDS)
    candidates = run.ask() or []
    if len(candidates) < RECORDS // 4:
        raise NoValidScheduleError(
            f"a round cannot be timed: {len(candidates)} candidates pass the postprocessors, "
            f"{RECORDS // 4} are needed"
        )
    drafted = np.array([candidate.latency for candidate in run.pending])
    drafted[~np.isfinite(drafted)] = np.nanmax(np.where(np.isfinite(drafted), drafted, np.nan))
    noise = np.random.default_rng([seed, 3]).normal(0.0, SPREAD, len(drafted))
    return TaskRecords(candidates, drafted * np.exp(noise))


def our_round(
    spaces: Spaces,
    hardware: HardwareSpec,
    records: TaskRecords,
    seed: int,
    say: Callable[[str], None],
) -> Round:
    """Explore, verify, replay, postprocess."""
    context = spaces.context
    model = _our_model(seed, say)
    database = records.database(context.mod, context.target)
    run = _task(spaces, hardware, seed + 1, CANDIDATES, database, model)
    if model is not None:
        model.ready()  # learns the records of the database
    start, cpu = time.perf_counter(), time.process_time()
    candidates = run.ask() or []
    spent, used = time.perf_counter() - start, time.process_time() - cpu
    funnel = run.funnel
    name = "none" if model is None else "pacm"
    stages = {k: v for k, v in funnel.seconds.items() if k != "reuse"}
    return Round(spent, used, len(candidates), name, funnel.replayed, funnel.rejected, stages)


def _our_model(seed: int, say: Callable[[str], None]) -> Any | None:
    if find_spec("torch") is None:
        say("torch is not installed: the round is timed without a cost model")
        return None
    from pruner_ms.model.cost_model import PaCMModel

    return PaCMModel(seed=seed)


def stock_round(spaces: Spaces, records: TaskRecords, seed: int) -> Round:
    """Evolutionary search with XGBModel, both with their defaults."""
    context = TuneContext(
        spaces.context.mod,
        target=spaces.context.target,
        space_generator=spaces.name,
        search_strategy="evolutionary",
        num_threads=1,
        rand_state=seed + 1,
    )
    model = ms.cost_model.CostModel.create("xgb", num_tuning_cores=1, tree_method="auto")
    model.update(context, records.candidates, records.results())
    context.pre_tuning(
        max_trials=1 << 20,
        num_trials_per_iter=CANDIDATES,
        database=records.database(context.mod, context.target),
        cost_model=model,
    )
    start, cpu = time.perf_counter(), time.process_time()
    candidates = context.generate_measure_candidates() or []
    spent, used = time.perf_counter() - start, time.process_time() - cpu
    context.post_tuning()
    return Round(spent, used, len(candidates), "xgb")


_CUDA = {
    "kind": "cuda",
    "arch": "sm_80",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}
TARGETS: dict[str, tuple[dict[str, Any], str]] = {
    "llvm": ({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}, DEFAULT),
    "cuda": (_CUDA, "cuda"),
    "cuda-tensorcore": (_CUDA, TENSORCORE),
}
"""Targets by short name, the same on every machine, and the generator of their design spaces."""


def rate(
    workload: str,
    target: str,
    drafts: int,
    *,
    rounds: bool = True,
    stock: bool = True,
    seed: int = 0,
    say: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Measure drafts per second, and the time of a round of our search and of stock's.

    Parameters
    ----------
    workload
        A name of `workloads.WORKLOADS` or an operator's specification.
    target
        A name of `TARGETS`, or an argument of `parse_target`.
    drafts
        Distinct drafts to score.
    rounds, stock
        Whether to time our round, and stock's.
    say
        Called with a sentence on what is not closed-form or could not be timed.

    Raises
    ------
    OptionError, TargetError
        A parameter cannot be used.
    """
    if drafts < 1:
        raise OptionError(f"--drafts {drafts} cannot be used; give at least 1")
    spaces = _spaces(workload, target, seed)
    hardware = hardware_for(attrs_of(spaces.context.target), use_host=False)
    for sketch in spaces.space:
        if not sketch.closed:
            say(f"design space {sketch.index} has no closed form: {sketch.reason}")
    drafted = count_drafts(spaces, hardware, drafts, seed, say)
    ours, theirs = None, None
    if rounds:
        ours, theirs = _rounds(spaces, hardware, stock, seed, say)
    return {
        "workload": workload,
        "target": target,
        "drafts_per_second": round(drafted.count / drafted.seconds, 1),
        "round_seconds": None if ours is None else round(ours.seconds, 4),
        "stock_round_seconds": None if theirs is None else round(theirs.seconds, 4),
        "postproc_pass_share": None if ours is None else ours.pass_share,
        "peak_mb": round(drafted.peak / 1e6, 1),
        "machine": this_machine(),
        "drafts": drafted.count,
        "valid_drafts": drafted.valid,
        "drafted_by": drafted.by,
        "closed_spaces": f"{len(spaces.space.closed)} of {len(spaces.space)}",
        "drafts_per_cpu_second": round(drafted.count / drafted.cpu_seconds, 1),
        "warm_up_seconds": round(drafted.warm_up_seconds, 4),
        "round": None if ours is None else ours.facts(),
        "stock_round": None if theirs is None else theirs.facts(),
    }


def _spaces(workload: str, target: str, seed: int) -> Spaces:
    described = parse_workload(workload)
    if target in TARGETS:
        config, generator = TARGETS[target]
        parsed = Target(config)
    else:
        parsed, generator = parse_target(target), described.space
    try:
        return make_spaces(described.func(), parsed, generator, seed + 1)
    except (ValueError, RuntimeError, TypeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]
        raise TargetError(f"{workload} has no design space for {target}: {first}") from error


def _rounds(
    spaces: Spaces, hardware: HardwareSpec, stock: bool, seed: int, say: Callable[[str], None]
) -> tuple[Round | None, Round | None]:
    try:
        records = records_for(spaces, hardware, seed)
    except NoValidScheduleError as verdict:
        say(str(verdict))
        return None, None
    ours = our_round(spaces, hardware, records, seed, say)
    return ours, stock_round(spaces, records, seed) if stock else None
