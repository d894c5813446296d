"""Measure callbacks: store records in the database, count trials, update the cost model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pruner_ms.records.database import commit
from pruner_ms.records.workdir import reaching_disk
from pruner_ms.session.interrupt import raise_if_pressed_twice
from pruner_ms.session.measure import outcome_of
from pruner_ms.session.model_state import ModelState
from pruner_ms.session.strategy import Guarded
from pruner_ms.tvm_compat.paths import derived_object, module_key, ms

log = logging.getLogger(__name__)


class _RecordTrials(ms.measure_callback.PyMeasureCallback):
    """Stores each new trial once, checks that it reached the disk, and counts it.

    Stands in for TVM's AddToDatabase, which stores a trial again when it is answered from the
    journal, and does not notice a full disk.

    Parameters
    ----------
    tasks
        The guarded tasks, by task number.
    modules
        The tasks' modules.
    database
        Stores the records.
    target
        Target of the records.
    """

    def __init__(
        self, tasks: Sequence[Guarded], modules: Sequence[Any], database: Any, target: Any
    ) -> None:
        super().__init__()
        self.tasks = tasks
        self.modules = modules
        self.database = database
        self.target = target

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Any,
        builder_results: Any,
        runner_results: Any,
    ) -> None:
        """Store and count a batch of results."""
        guarded, mod = self.tasks[int(task_id)], self.modules[int(task_id)]
        with guarded.ledger.guard(), reaching_disk(self.database):
            for candidate, result in zip(measure_candidates, runner_results, strict=True):
                outcome = outcome_of(result.run_secs, result.error_msg)
                if guarded.ledger.store(module_key(candidate.sch.mod), outcome):
                    commit(self.database, mod, candidate.sch, outcome, self.target)
            guarded.task.in_flight = 0


class _LearnFromTrials(ms.measure_callback.PyMeasureCallback):
    """TVM's UpdateCostModel, except that the search continues when a model fails.

    Parameters
    ----------
    progress
        Receives the warning.
    state
        Saves the model's state.
    """

    def __init__(self, progress: Any, state: ModelState) -> None:
        super().__init__()
        self.progress, self.state = progress, state
        self.stock = ms.measure_callback.UpdateCostModel()

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Any,
        builder_results: Any,
        runner_results: Any,
    ) -> None:
        """Update the cost model."""
        try:
            self.stock.apply(
                task_scheduler, task_id, measure_candidates, builder_results, runner_results
            )
            self.state.save()
        except Exception as error:  # a model may raise anything
            raise_if_pressed_twice()
            log.error("the cost model could not be updated", exc_info=error)
            first = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            self.progress.note(f"the cost model could not be updated: {first[:200]}")


RecordTrials: Any = derived_object(_RecordTrials)
LearnFromTrials: Any = derived_object(_LearnFromTrials)
