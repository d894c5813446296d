"""The best schedules of each task, measured again in turns: the fastest of many is partly lucky.

Trials of a task are spread over minutes, and what else a machine does meanwhile slows some of them
down. The few that were fastest are therefore run one after another, from the first to the last and
back: what disturbs one then disturbs its neighbours, too.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pruner_ms.integration.records import Ranked, replayed
from pruner_ms.integration.relax import TaskInfo
from pruner_ms.tvm_compat.paths import ms
from pruner_ms.tvm_compat.processors import usable
from pruner_ms.tvm_compat.targets import device_type
from pruner_ms.tvm_compat.untuned import is_untuned
from pruner_ms.types import FloatArray, valid_latency

log = logging.getLogger(__name__)

FINALISTS = 4
_WITHIN = 1.3
"""Largest latency of a finalist, as a multiple of the fastest one."""
_FEWEST_RECORDS = 12
"""Records that a task must have; with fewer, luck decides little."""
_LEAST_SHARE = 0.005
"""Least share of the network's time that a task must have."""
_TURNS, _TURN_MS = 7, 20
LIMIT = 0.1
"""Share of the search's seconds that the finals may take; the heaviest tasks come first."""

Race = Callable[[Sequence[Any]], FloatArray]
"""Seconds of some records' schedules in each turn, (turns, records); NaN where one fails."""


def order(seconds: FloatArray) -> list[int]:
    """Columns from the fastest to the slowest, by median time relative to the mean of a turn.

    Parameters
    ----------
    seconds
        (turns, candidates); NaN where one failed.
    """
    works = np.logical_not(np.isnan(seconds).any(axis=0))  # what failed once may fail again
    slowness = np.full(len(works), np.inf)
    if works.any():
        logs = np.log(seconds[:, works])
        slowness[works] = np.median(logs - logs.mean(axis=1, keepdims=True), axis=0)
    return [int(place) for place in np.argsort(slowness, kind="stable")]


def finalists(records: Sequence[Any]) -> list[Any]:
    """The records of a task that could be its fastest; fewer than two: there is nothing to see."""
    if len(records) < _FEWEST_RECORDS or is_untuned(records[0].trace):
        return []
    best = valid_latency(records[0].run_secs) or 0.0
    near = [one for one in records if (valid_latency(one.run_secs) or np.inf) <= _WITHIN * best]
    return [one for one in near if not is_untuned(one.trace)][:FINALISTS]


def settled(
    tasks: Sequence[TaskInfo], ranked: Ranked, race: Race, goes_on: Callable[[], bool]
) -> Ranked:
    """Records with the finalists of each task in front, the fastest in turns first.

    Parameters
    ----------
    tasks
        Of the program.
    ranked
        Their records.
    race
        Runs some in turns.
    goes_on
        Whether another race may be started.
    """
    costs = {
        task.hash: task.weight * (valid_latency(records[0].run_secs) or 0.0)
        for task in tasks
        if (records := ranked.records.get(task.hash))
    }
    least = _LEAST_SHARE * sum(costs.values())
    ordered, changed = dict(ranked.records), 0
    for key in sorted(costs, key=lambda key: -costs[key]):
        several = finalists(ordered[key])
        if costs[key] < least or not goes_on():
            break
        if len(several) > 1:
            places = order(race(several))
            changed += places[0] != 0
            others = [one for one in ordered[key] if all(one is not other for other in several)]
            ordered[key] = [*(several[place] for place in places), *others]
    log.info("another schedule is the fastest in turns: %d tasks", changed)
    return replace(ranked, records=ordered)


class Racer:
    """Runs schedules in turns, in a worker of its own.

    Parameters
    ----------
    target
        Of the records.
    cold
        Whether all arguments but the first start outside the caches, as a network's weights do.
    """

    def __init__(self, target: Any, cold: bool = False) -> None:
        self._target, self._stack = target, ExitStack()
        config = ms.runner.EvaluatorConfig(
            number=1, repeat=1, min_repeat_ms=0 if cold else _TURN_MS, enable_cpu_cache_flush=cold
        )
        builder = ms.builder.Builder.create("persistent", max_workers=usable())
        runner = ms.runner.Runner.create("persistent", evaluator_config=config, adaptive=False)
        self._builder, self._runner = (
            self._stack.enter_context(closing(part)) for part in (builder, runner)
        )

    def __enter__(self) -> Racer:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def __call__(self, records: Sequence[Any]) -> FloatArray:
        """Seconds of each in each turn, (turns, records)."""
        seconds = np.full((_TURNS, len(records)), np.nan)
        try:
            inputs = [ms.builder.BuilderInput(replayed(one), self._target) for one in records]
        except Exception:  # TVM raises half a dozen classes for a trace that it does not take
            log.warning("a record cannot be replayed: no finals", exc_info=True)
            return seconds
        built = self._builder.build(inputs)
        try:
            for turn in range(_TURNS):
                places = [i for i, one in enumerate(built) if one.artifact_path is not None]
                for place in places if turn % 2 else reversed(places):
                    seconds[turn, place] = self._seconds(built[place], records[place])
        finally:
            for one in built:
                if one.artifact_path is not None:
                    shutil.rmtree(Path(str(one.artifact_path)).parent, ignore_errors=True)
        return seconds

    def _seconds(self, built: Any, record: Any) -> float:
        device = device_type(self._target)
        item = ms.runner.RunnerInput(str(built.artifact_path), device, record.args_info)
        (future,) = self._runner.run([item])
        return valid_latency(future.result().run_secs) or np.nan
