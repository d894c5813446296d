"""`effort="instant"`: of each task the schedule that would be measured first, unmeasured.

Draft and cost model choose it. A task that was measured before keeps its best record.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.errors import PrunerError, last_line
from pruner_ms.integration.records import Ranked
from pruner_ms.integration.relax import TaskInfo
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.session.options import TuneConfig
from pruner_ms.session.parts import cost_model
from pruner_ms.session.progress import TaskState
from pruner_ms.session.run import SessionResult
from pruner_ms.tvm_compat.paths import TuneContext, ms
from pruner_ms.tvm_compat.processors import usable

log = logging.getLogger(__name__)


def drafted(
    tasks: Sequence[TaskInfo],
    target: Any,
    config: TuneConfig,
    measured: Ranked,
    stop: threading.Event,
) -> tuple[SessionResult, Ranked]:
    """What a session that measures nothing leaves, and a record of each task.

    Parameters
    ----------
    tasks, target
        Of the program.
    config
        Of the session that would measure.
    measured
        Records of earlier runs.
    stop
        Set to end it: what is drafted until then is used.
    """
    records, failures = dict(measured.records), {}
    model = None if config.cost_model == "none" else cost_model(config, usable())
    search = config.strategy_options.get("config", SearchConfig())
    search = replace(search, first_trials=1, opening_trials=1, explore_share=0.0, untuned=False)
    for number, task in enumerate(tasks):
        if stop.is_set():
            break
        if task.hash in records:
            continue
        try:
            records[task.hash] = [_first(task, target, config, search, model, number)]
        except PrunerError:
            raise
        except Exception as error:  # TVM raises anything; the others go on
            log.error("task %s cannot be drafted", task.name, exc_info=error)
            failures[task.name] = f"it cannot be drafted ({last_line(error)})"
    states = [TaskState(task.name, task.weight, task.flops) for task in tasks]
    session = SessionResult(None, states, [], {}, stop.is_set(), failures, 0.0)
    return session, replace(measured, records=records)


def _first(
    task: TaskInfo,
    target: Any,
    config: TuneConfig,
    search: SearchConfig,
    model: Any,
    number: int,
) -> Any:
    """The candidate that a search would measure first, as a record without a latency."""
    seed = int(np.random.SeedSequence([config.seed, number]).generate_state(1)[0]) % (2**31 - 2)
    context = TuneContext(
        task.mod,
        target=target,
        space_generator=config.space,
        search_strategy=PrunerSearch(
            config=search, warm_start=config.strategy_options.get("warm_start", ())
        ),
        task_name=task.name,
        rand_state=seed + 1,
        num_threads="physical",
    )
    database = ms.database.MemoryDatabase()
    context.pre_tuning(1, 1, context.generate_design_space(), database, model)
    try:
        candidates = context.generate_measure_candidates()
    finally:
        context.post_tuning()
    if not candidates:
        raise ValueError("the search gives no candidate")
    workload = database.commit_workload(context.mod)
    best = candidates[0]
    return ms.database.TuningRecord(best.sch.trace, workload, None, target, best.args_info)
