"""Measurement of the untuned function of each task in a session.

It comes after the search, so that functions that cannot be the best are skipped. It is in journal
and database like any trial, but does not count towards the budget.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pruner_ms.errors import PrunerError
from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.records.database import UNTUNED, commit
from pruner_ms.records.workdir import reaching_disk
from pruner_ms.search.untuned import has_exact_equality, worth_measuring
from pruner_ms.session.interrupt import raise_if_pressed_twice
from pruner_ms.session.ledger import Announced, Ledger
from pruner_ms.session.measure import outcome_of
from pruner_ms.session.parts import Task
from pruner_ms.tvm_compat.paths import ArgInfo, module_key, ms, plain
from pruner_ms.tvm_compat.targets import attrs_of, device_type
from pruner_ms.types import Failed

log = logging.getLogger(__name__)

Due = list[tuple[Task, Any]]
"""Tasks with the schedules of their untuned functions."""


@dataclass
class TrialZero:
    """Measures untuned functions.

    Attributes
    ----------
    target, database, ledger
        Of the session.
    """

    target: Any
    database: Any
    ledger: Ledger

    def due(self, tasks: Sequence[Task], interrupted: bool) -> Due:
        """Untuned functions that were not measured and may be the best.

        Parameters
        ----------
        interrupted
            Whether the user has stopped the session: then only those of tasks with a trial.
        """
        unknown = [
            task
            for task in tasks
            if not self.ledger.holds(task.workload, UNTUNED)
            and (task.state.trials or not interrupted)
            and has_exact_equality(self.database, task.mod)
        ]
        hardware = self._hardware() if unknown else None
        due_tasks = []
        for task in unknown:
            best = task.state.best_s
            schedule = worth_measuring(task.mod, self.target, hardware, best)
            if schedule is not None:
                due_tasks.append((task, schedule))
        return due_tasks

    def _hardware(self) -> HardwareSpec | None:
        try:
            return hardware_for(attrs_of(self.target), measure=True)
        except PrunerError as error:
            log.info("nothing is predicted of untuned functions: %s", error)
            return None

    def measure(self, due: Due, builder: Any, runner: Any) -> None:
        """Build in one batch, and run one after the other.

        Parameters
        ----------
        due
            From `due`.
        builder, runner
            The journaled ones of the session.
        """
        for task, schedule in due:
            trace = plain(schedule.trace.as_json())
            announced = Announced(task.workload, trace, UNTUNED)
            self.ledger.announce(module_key(schedule.mod), announced)
        inputs = [ms.builder.BuilderInput(schedule.mod, self.target) for _, schedule in due]
        built = builder.build(inputs) if inputs else []
        for (task, schedule), result in zip(due, built, strict=True):
            raise_if_pressed_twice()
            self._run(task, schedule, result, runner)

    def _run(self, task: Task, schedule: Any, built: Any, runner: Any) -> None:
        result = built
        if built.error_msg is None:
            path = str(built.artifact_path)
            infos = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
            device = device_type(self.target)
            (future,) = runner.run([ms.runner.RunnerInput(path, device, infos)])
            result = future.result()
            shutil.rmtree(Path(path).parent, ignore_errors=True)
        outcome = outcome_of(getattr(result, "run_secs", None), result.error_msg)
        if isinstance(outcome, Failed):
            log.warning("%s does not run untuned: %s", task.state.name, outcome.message)
        if self.ledger.store(module_key(schedule.mod), outcome):
            with self.ledger.guard(), reaching_disk(self.database):
                commit(self.database, task.mod, schedule, outcome, self.target)
