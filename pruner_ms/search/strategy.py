"""`PrunerSearch`: the MetaSchedule search strategy, an adapter of the ask/tell core.

MetaSchedule makes a strategy, clones it for its task, initialises the clone (more than once), then
calls `pre_tuning`, and `generate_measure_candidates` and `notify_runner_results` alternately. The
context is not stored: a strategy that holds its `TuneContext` is never freed.

An exception that leaves one of these methods ends the tuning of all tasks. Only errors that a user
can correct (`PrunerError`) leave them; any other ends the search of its own task, whose
measurements stay.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pruner_ms.config import SearchConfig, option_names
from pruner_ms.errors import OptionError, PrunerError, last_line
from pruner_ms.hardware import HardwareSpec
from pruner_ms.records.exchange import fastest
from pruner_ms.records.workdir import expanded
from pruner_ms.search.task import TaskFacts, TaskRun
from pruner_ms.search.tasklog import task_logger
from pruner_ms.tvm_compat.paths import derived_object, ms, open_parameters, prim_func

_log = logging.getLogger(__name__)


@lru_cache(maxsize=16)
def _folder(path: Path) -> Any:
    return fastest(path)


def _opened(donor: Any) -> Any:
    """A database; if the folder that holds it was given, it is opened."""
    return _folder(expanded(donor).resolve()) if isinstance(donor, str | Path) else donor


class _PrunerSearch(ms.search_strategy.PySearchStrategy):
    """Draft-then-verify search (Pruner, ASPLOS'25) as a MetaSchedule strategy.

    `strategy="pruner"` makes one with the defaults. It works with every MetaSchedule cost model;
    one of this package (`cost_model="pacm"`) ranks drafts before they are replayed.

    Parameters
    ----------
    config
        The settings; None: the defaults.
    hardware
        The device's figures; None: looked up by the target.
    warm_start
        Databases, or folders that hold one, of other tasks, devices or runs: their best schedules,
        fitted to this task, are candidates of its first rounds (`donor_share`). So are those of the
        other tasks in the tuning's own database.
    **knobs
        Single fields of `SearchConfig`, over `config`.

    Raises
    ------
    OptionError
        There is no such knob, or its value cannot be used.
    DatabaseError
        A folder of `warm_start` holds no database.

    Attributes
    ----------
    fault
        Why the search of its task ended early; None: it has not.
    """

    def __init__(
        self,
        config: SearchConfig | None = None,
        hardware: HardwareSpec | None = None,
        warm_start: Sequence[Any] = (),
        **knobs: Any,
    ) -> None:
        super().__init__()
        unknown = sorted(set(knobs) - {f.name for f in fields(SearchConfig)})
        if unknown:
            names = ", ".join(option_names(SearchConfig))
            raise OptionError(f"PrunerSearch has no option {unknown[0]!r}; it has {names}")
        self.config = replace(config or SearchConfig(), **knobs)
        self.hardware = hardware
        self.warm_start = tuple(map(_opened, warm_start))
        self._facts: TaskFacts | None = None
        self._run: TaskRun | None = None
        self.fault: str | None = None

    def _initialize_with_tune_context(self, context: Any) -> None:
        self._facts = TaskFacts.of(context)

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Any,
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        """Read the design spaces, and the task's records in the database."""
        if self._facts is None:
            raise OptionError("PrunerSearch was not given a TuneContext; make one with it")
        if self._run is not None:
            raise OptionError("pre_tuning was called twice; call post_tuning in between")
        still_open = open_parameters(prim_func(self._facts.mod))
        if still_open:
            self.fault = f"the shape of {', '.join(still_open)} is open"
            _log.warning(
                "%s is skipped: %s, and only programs of fixed shapes can be measured; bind it "
                "(relax.transform.BindSymbolicVars)",
                self._facts.name,
                self.fault,
            )
            return
        with self._ending_the_task():
            self._run = TaskRun(
                facts=self._facts,
                config=self.config,
                hardware=self.hardware,
                design_spaces=list(design_spaces),
                database=database,
                cost_model=cost_model,
                max_trials=int(max_trials),
                batch=int(num_trials_per_iter),
                donors=self.warm_start,
            )

    def post_tuning(self) -> None:
        """Release the task."""
        self._run, self.fault = None, None

    def generate_measure_candidates(self) -> Any:
        """The next batch of MeasureCandidates, or None when the trials or the space are used up.

        None, too, for a program with open shapes and after a fault, which is logged.
        """
        if self.fault is None:
            with self._ending_the_task():
                return self._running().ask()
        return None

    def notify_runner_results(self, measure_candidates: Any, results: Any) -> None:
        """Learn from a measured batch, failures included."""
        if self.fault is None:
            with self._ending_the_task():
                self._running().tell(list(results))

    @contextmanager
    def _ending_the_task(self) -> Iterator[None]:
        try:
            yield
        except PrunerError:
            raise
        except Exception as error:
            self.fault = f"{type(error).__name__}: {last_line(error)}"
            name = "a task" if self._facts is None else self._facts.name
            what = "the search of %s has ended, what was measured of it stays: %s"
            task_logger(name).error(what, name, self.fault, exc_info=error)

    def clone(self) -> Any:
        """A new strategy with the same settings."""
        return PrunerSearch(self.config, self.hardware, self.warm_start)

    def __str__(self) -> str:
        return "PrunerSearch"

    def _running(self) -> TaskRun:
        if self._run is None:
            raise OptionError("the search has not begun; call pre_tuning first")
        return self._run


PrunerSearch: Any = derived_object(_PrunerSearch)
