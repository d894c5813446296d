"""One tuning session: tasks and a budget in, a database with the best schedules out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pruner_ms.errors import OptionError, PrunerError, last_line
from pruner_ms.records.database import (
    UNTUNED,
    Stored,
    open_database,
    recover,
    stored_trials,
    target_text,
)
from pruner_ms.records.tables import Repair
from pruner_ms.records.workdir import WorkDir
from pruner_ms.registry.notebooks import without_tables
from pruner_ms.search import funnels
from pruner_ms.session import logs
from pruner_ms.session.budget import batch_size
from pruner_ms.session.callbacks import LearnFromTrials, RecordTrials
from pruner_ms.session.interrupt import CtrlC, raise_if_pressed_twice
from pruner_ms.session.journal import Journal, uninformative_workloads
from pruner_ms.session.ledger import Announced, Ledger
from pruner_ms.session.measure import Artifacts, JournaledBuilder, JournaledRunner
from pruner_ms.session.model_state import ModelState
from pruner_ms.session.options import TaskSpec, TuneConfig
from pruner_ms.session.parts import Task, parts, prepared
from pruner_ms.session.progress import CurvePoint, Observer, Progress, TaskState
from pruner_ms.session.strategy import Guarded, GuardedStrategy
from pruner_ms.session.untuned import Due, TrialZero
from pruner_ms.tvm_compat.intrinsics import enough_for
from pruner_ms.tvm_compat.paths import (
    MS_NAME,
    VERSION,
    TuneContext,
    ms,
)
from pruner_ms.types import Funnel, Measurement

# Trials of earlier runs of a work-dir.


def earlier_trials(
    directory: WorkDir,
    opened: tuple[Any, Repair],
    journal: Journal,
    tasks: Sequence[Task],
    target: Any,
) -> tuple[Stored, str]:
    """The trials of an opened database, including those of the journal.

    Tasks whose trials all failed are left out, and dropped from the journal: the machine was the
    cause, and their trials are made again.

    Parameters
    ----------
    directory, opened, journal
        Of the session: its work-dir, the result of `open_database`, its journal. Trials missing in
        the database are committed to it.
    tasks
        The session's tasks; trials of other workloads are not judged.
    target
        Target of the trials.

    Returns
    -------
    tuple
        The trials by workload, and a note on those left out; empty: none are.

    Raises
    ------
    DatabaseError
        The database holds records of another target.
    """
    database, repaired = opened
    stored = stored_trials(directory.root, repaired.tables, target)
    modules = {task.workload: task.mod for task in tasks}
    trials = [(one.workload, one.trace, one.measurement) for one in journal.entries.values()]
    recovered = recover(database, stored, trials, modules, target)
    if recovered:
        log.info("%d trials were in the journal only", recovered)
    failed = uninformative_workloads({name: stored.get(name, {}).values() for name in modules})
    count = sum(len(stored.pop(name, {}).keys() - {UNTUNED}) for name in failed)
    journal.forget(failed)
    return stored, _note_on_failed(
        count, [t.state.name for t in tasks if t.workload in failed], tasks
    )


def _note_on_failed(count: int, names: Sequence[str], tasks: Sequence[Task]) -> str:
    if not count:
        return ""
    whose = "" if len(names) == len(tasks) else f" of {', '.join(names)}"
    return f"all {count} earlier trials{whose} failed; they are made again"


log = logging.getLogger(__name__)

_NO_LIMIT = 1 << 20
"""TVM's limits on trials; the guarded strategy ends the tasks."""
_LARGEST_BATCH = {"local": 64}
"""The stock builder restarts its workers for every batch, so it gets fewer, larger ones."""


@dataclass
class SessionResult:
    """Result of a session.

    Attributes
    ----------
    database
        TVM's database, with all records of the work-dir.
    tasks
        States in the order of importance (weight times operations).
    curve
        Improvements of this run.
    funnel
        Counts by task, as far as the strategy publishes them.
    interrupted
        Whether the user pressed Ctrl-C.
    failures
        Task name -> why it has no schedule, or why its search ended early; "session" for a
        failure of the scheduler.
    seconds
        Wall seconds of this run, pauses not counted.
    notes
        Notes for the user.
    cost_model
        Name of the cost model of the last run that tuned; for one of ours also the mode, the
        network and the weights used (None: from scratch).
    error
        Why TVM ended the tuning early; None: it did not.
    """

    database: Any
    tasks: list[TaskState]
    curve: list[CurvePoint]
    funnel: dict[str, Funnel]
    interrupted: bool
    failures: dict[str, str]
    seconds: float
    notes: list[str] = field(default_factory=list)
    cost_model: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def trials(self) -> int:
        """Trials of all tasks, earlier runs included."""
        return sum(task.trials for task in self.tasks)

    @property
    def resumed(self) -> int:
        """Trials that earlier runs made."""
        return sum(task.resumed for task in self.tasks)


def tune_session(
    tasks: Sequence[TaskSpec],
    target: Any,
    work_dir: WorkDir | str | Path,
    config: TuneConfig,
    observer: Observer | None = None,
    stop: threading.Event | None = None,
) -> SessionResult:
    """Tune tasks with any MetaSchedule strategy.

    Trials in the work-dir count towards the budget and are not measured again. Ctrl-C once ends the
    session after the batch in flight, twice raises KeyboardInterrupt.

    Parameters
    ----------
    tasks
        Tasks to tune; those with the same module are merged.
    target
        TVM `Target`.
    work_dir
        A directory, or a `WorkDir` that the caller has opened.
    config
        Options.
    observer
        Called at each change, in the thread that tunes.
    stop
        Set by the caller to end the session; without it, Ctrl-C is handled here.

    Returns
    -------
    SessionResult
        Also when a task, or all of them, failed.

    Raises
    ------
    OptionError
        No tasks, or a name that does not exist.
    WorkDirError, DatabaseError
        The work-dir cannot be used, or the disk is full. All measurements are in the journal.
    """
    config.check_names()
    if not tasks:
        raise OptionError("there is nothing to tune; give at least one task")
    with ExitStack() as stack:
        directory = work_dir
        if not isinstance(directory, WorkDir):
            directory = stack.enter_context(WorkDir(directory))
        if stop is None:
            stop = threading.Event()
            stack.enter_context(CtrlC(stop.set, second=None))
        stack.enter_context(without_tables())
        stack.enter_context(logs.to_file([MS_NAME], directory.logs / "metaschedule.log"))
        return _Session(tasks, target, directory, config, observer, stop).run()


class _Session:
    """One session."""

    def __init__(
        self,
        tasks: Sequence[TaskSpec],
        target: Any,
        directory: WorkDir,
        config: TuneConfig,
        observer: Observer | None,
        stop: threading.Event,
    ) -> None:
        self.target, self.directory, self.config = target, directory, config
        self.tasks = prepared(tasks)
        self.progress = Progress([t.state for t in self.tasks], config.budget, observer, stop)
        opened = open_database(directory, config.module_equality)
        self.database, repaired = opened
        if repaired.count:
            self.progress.note(repaired.line())
        self.journal = Journal(directory.journal, f"{VERSION} {target_text(target)}")
        if self.journal.damaged:
            self.progress.note(self.journal.line())
        self.error: str | None = None
        stored, told = earlier_trials(directory, opened, self.journal, self.tasks, target)
        if told:
            self.progress.note(told)
        for task in self.tasks:
            for trace, outcome in stored.get(task.workload, {}).items():
                adopt = self.progress.untuned if trace == UNTUNED else self.progress.adopt
                adopt(task.state, outcome)
        self.ledger = Ledger(self.journal, stored, self._count)
        self.zero = TrialZero(target, self.database, self.ledger)
        directory.update_manifest(
            {
                "tvm": VERSION,
                "target": target_text(target),
                "seed": config.seed,
                "space": config.space if isinstance(config.space, str) else None,
                "tasks": [{"name": t.spec.name, "workload": t.workload} for t in self.tasks],
            }
        )

    def _count(self, trial: Announced, outcome: Measurement) -> None:
        task = next(t for t in self.tasks if t.workload == trial.workload)
        count = self.progress.untuned if trial.trace_id == UNTUNED else self.progress.record
        count(task.state, outcome)

    def run(self) -> SessionResult:
        funnels.reset()
        try:
            if self.progress.over() is None:
                self._tune()
            elif not self.progress.stop.is_set() and self._untuned_due():
                self._complete()
        finally:
            self.journal.close()
        for task in self.tasks:
            self.progress.end(task.state, self.progress.over() or "stopped")
        return self._result()

    def _tune(self) -> None:
        if self.config.ready is not None:
            self.config.ready()
        with parts(self.config, self.target) as (builder, runner, cost_model):
            with enough_for(self.target):
                live = [(task, context) for task in self.tasks if (context := self._context(task))]
            building, measuring = self._journaled(builder, runner)
            if live:
                self._search(live, building, measuring, cost_model)
            self._measure_untuned(building, measuring)

    def _journaled(self, builder: Any, runner: Any) -> tuple[Any, Any]:
        artifacts = Artifacts()
        building = JournaledBuilder(builder, self.ledger, artifacts)
        return building, JournaledRunner(runner, self.ledger, artifacts)

    def _search(
        self, live: Sequence[tuple[Task, Any]], building: Any, measuring: Any, cost_model: Any
    ) -> None:
        """Tune tasks by TVM's `tune_tasks`."""
        guarded = [self._guarded(task) for task, _ in live]
        mods = [task.mod for task, _ in live]
        name = _name(self.config.cost_model)
        state = ModelState(cost_model, name, self.directory.root, self.progress)
        state.resume()
        try:
            ms.tune.tune_tasks(
                tasks=[context for _, context in live],
                task_weights=[task.state.weight for task, _ in live],
                work_dir=str(self.directory.root),
                max_trials_global=_NO_LIMIT,
                max_trials_per_task=self.config.budget.per_task or _NO_LIMIT,
                num_trials_per_iter=self._batch(len(live)),
                builder=building,
                runner=measuring,
                database=self.database,
                cost_model=cost_model,
                measure_callbacks=[
                    RecordTrials(guarded, mods, self.database, self.target),
                    ms.measure_callback.RemoveBuildArtifact(),
                    LearnFromTrials(self.progress, state),
                ],
                task_scheduler=self.config.task_scheduler,
                module_equality=self.config.module_equality,
            )
            raise_if_pressed_twice()
        except Exception as error:  # TVM raises anything; results are on disk
            self._failed(error)
        finally:
            measuring.journal_finished()
            state.publish_notes()
            self.directory.update_manifest({"cost_model": state.facts()})

    def _untuned_due(self) -> Due:
        if not self.config.untuned:
            return []
        return self.zero.due(self.tasks, self.progress.stop.is_set())

    def _measure_untuned(self, building: Any, measuring: Any) -> None:
        start = self.progress.seconds
        try:
            due = self._untuned_due()
            self.zero.measure(due, building, measuring)
            raise_if_pressed_twice()
            spent = self.progress.seconds - start
            log.info("untuned functions of %d tasks took %.1f s", len(due), spent)
        except Exception as error:  # TVM raises anything; results are on disk
            self._failed(error)

    def _complete(self) -> None:
        """Measure missing untuned functions after a complete search, e.g. of an older version.

        The device may be absent, if the search was made elsewhere.
        """
        try:
            if self.config.ready is not None:
                self.config.ready()
            with parts(replace(self.config, cost_model="none")) as (builder, runner, _):
                self._measure_untuned(*self._journaled(builder, runner))
        except PrunerError as error:
            if self.ledger.fault is not None:
                raise
            log.warning("the untuned functions are not measured: %s", error)

    def _failed(self, error: Exception) -> None:
        raise_if_pressed_twice()
        if self.ledger.fault is not None:
            raise self.ledger.fault from error
        if isinstance(error, PrunerError):
            raise error
        log.error("the task scheduler failed", exc_info=error)
        self.error = last_line(error)
        again = "what was measured is saved, the same call goes on from there"
        self.progress.note(f"the tuning ended early: {self.error}; {again}")

    def _batch(self, tasks: int) -> int:
        largest = _LARGEST_BATCH.get(str(self.config.builder), 16)
        left = self.config.budget.trials - self.progress.trials
        return self.config.batch or batch_size(left, tasks, largest)

    def _guarded(self, task: Task) -> Guarded:
        return Guarded(task.state, task.workload, self.progress, self.ledger)

    def _context(self, task: Task) -> Any:
        """The task's TuneContext, None when it has no design space (which ends the task)."""
        index = self.tasks.index(task)
        entropy = [self.config.seed, index, task.state.resumed]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0]) % (2**31 - 2) + 1
        try:
            inner = self.config.strategy
            if isinstance(inner, str):
                create = ms.search_strategy.SearchStrategy.create
                inner = create(inner, **self._strategy_options(inner))
            else:
                inner = inner.clone()
            context = TuneContext(
                task.mod,
                target=self.target,
                space_generator=self.config.space,
                search_strategy=GuardedStrategy(inner, self._guarded(task)),
                task_name=task.spec.name,
                rand_state=seed,
                num_threads=self.config.num_threads or "physical",
                logger=logging.getLogger(f"{MS_NAME}.tasks"),
            )
            if not list(context.generate_design_space()):
                raise ValueError("the design space is empty")
        except PrunerError:
            raise
        except Exception as error:  # TVM raises anything; the others go on
            log.error("task %s cannot be tuned", task.spec.name, exc_info=error)
            self.progress.end(task.state, "no design space", last_line(error))
            return None
        return context

    def _strategy_options(self, name: str) -> dict[str, Any]:
        """Options of a strategy by name; ours leaves untuned functions to the session."""
        ours = {"untuned": False} if name == "pruner" else {}
        return {**self.config.strategy_options, **ours}

    def _result(self) -> SessionResult:
        failures = {t.state.name: why for t in self.tasks if (why := _failure(t.state))}
        if self.error is not None:
            failures["session"] = self.error
        return SessionResult(
            database=self.database,
            tasks=[t.state for t in self.tasks],
            curve=self.progress.curve,
            funnel=funnels.snapshot(),
            interrupted=self.progress.stop.is_set(),
            failures=failures,
            seconds=self.progress.seconds,
            notes=self.progress.notes,
            cost_model=self.directory.manifest().get("cost_model") or {},
            error=self.error,
        )


def _name(part: Any) -> str:
    # a derived object wraps the Python object of the user's class
    return part if isinstance(part, str) else type(getattr(part, "_inst", part)).__name__


def _failure(task: TaskState) -> str:
    """Why a task has no schedule, or why its search ended early; empty without a failure."""
    if task.message:
        return task.message
    if task.best_s is None and task.trials:
        return f"no valid schedule in {task.trials} trials"
    return ""
