"""A finished run, or anybody's database, made faster: coordinate descent from each task's best."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pruner_ms.config import SearchConfig
from pruner_ms.errors import OptionError, require
from pruner_ms.integration.options import TuneOptions
from pruner_ms.records.trials import RunTask, run_tasks
from pruner_ms.session.budget import Budget
from pruner_ms.session.options import TaskSpec
from pruner_ms.session.progress import Observer
from pruner_ms.session.run import tune_session
from pruner_ms.tvm_compat.paths import ms


@dataclass(frozen=True)
class Preset:
    """How a descent is made.

    Attributes
    ----------
    per_task
        Trials of a task at most.
    limit
        `SearchConfig.descent_limit`.
    evaluator
        Keywords of MetaSchedule's `EvaluatorConfig`; empty: its defaults.
    """

    per_task: int
    limit: float
    evaluator: Mapping[str, int]


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "default": Preset(48, 0.05, MappingProxyType({})),
        "droplet": Preset(100, 0.05, MappingProxyType({"number": 2, "repeat": 3})),
    }
)
"""`droplet` has the budget, the test and the repeats of Droplet Search's paper."""


@dataclass(frozen=True)
class Polished:
    """One task before and after.

    Attributes
    ----------
    name
        Of the task.
    before, after
        Seconds of its fastest record.
    trials
        Made by the descent.
    ended
        Why there are no more; None: the budget was spent.
    """

    name: str
    before: float
    after: float
    trials: int
    ended: str | None


def polish(
    run: str | Path,
    *,
    trials: int | None = None,
    time: float | str | None = None,
    preset: str = "default",
    seed: int = 0,
    observer: Observer | None = None,
    stop: threading.Event | None = None,
    **options: Any,
) -> list[Polished]:
    """Measure the neighbours of each task's fastest schedule, until none is faster.

    Records are added to the run's database; tune the model again with the same work-dir to make a
    library of them. Only schedules of our own design spaces have neighbours.

    Parameters
    ----------
    run
        A work-dir, of ours or of MetaSchedule's.
    trials
        Over all tasks; None: as many as the preset gives each.
    time
        Seconds, or text such as "10m"; None: no limit.
    preset
        A name in `PRESETS`.
    seed
        Of all random choices.
    observer, stop
        As in `tune_session`.
    **options
        Of `TuneOptions`: `cost_model`, `builder`, `runner`, `rpc` and so on.

    Returns
    -------
    list[Polished]
        In the order of the run's tasks, without those that have no record.

    Raises
    ------
    DatabaseError
        There is no database.
    OptionError
        An option cannot be used, or no task has a valid record.
    """
    require("preset", preset, PRESETS)
    given = PRESETS[preset]
    every = run_tasks(Path(run))
    tasks = [task for task in every if task.valid]
    if not tasks:
        raise OptionError(f"{run} has no valid record; tune it first")
    target = tasks[0].target
    measured = sum(len(task.records) for task in every)
    wanted = trials if trials is not None else given.per_task * len(tasks)
    config = TuneOptions(time=time, seed=seed, **options).config(len(tasks), target)
    search = SearchConfig(
        donor_share=0.0, descent_share=1.0, descent_after=0, descent_limit=given.limit
    )
    config = replace(
        config,
        budget=Budget(measured + wanted, config.budget.seconds, per_task=given.per_task),
        strategy_options={"config": search},
        space=tasks[0].space,
        untuned=False,
    )
    if given.evaluator and isinstance(config.runner, str):
        evaluator = ms.runner.EvaluatorConfig(**given.evaluator)
        runner = ms.runner.Runner.create(config.runner, evaluator_config=evaluator)
        config = replace(config, runner=runner)
    specs = [TaskSpec(task.name, task.workload.mod) for task in tasks]
    result = tune_session(specs, target, run, config, observer, stop)
    states = {state.name: state for state in result.tasks}
    return [_polished(task, states[task.name]) for task in tasks if task.name in states]


def _polished(task: RunTask, state: Any) -> Polished:
    before = task.valid[0][0]
    after = before if state.best_s is None else min(before, state.best_s)
    return Polished(task.name, before, after, state.trials - state.resumed, state.ended)
