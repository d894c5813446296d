"""The tasks and trials of a run, read from its work-dir without touching it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from pruner_ms.errors import DatabaseError, OptionError, last_line
from pruner_ms.records import RECORDS, TABLES
from pruner_ms.records.database import workload_hash, workload_of
from pruner_ms.records.tables import fastest_first, read_tables
from pruner_ms.records.workdir import read_manifest
from pruner_ms.tensorcore.registration import register_named_in
from pruner_ms.tvm_compat.marks import marks_untuned
from pruner_ms.tvm_compat.paths import Target, ms
from pruner_ms.tvm_compat.safe_traces import REFUSALS
from pruner_ms.types import valid_latency

log = logging.getLogger(__name__)

DEFAULT_SPACE = "post-order-apply"


@dataclass
class RunTask:
    """A task of a run.

    Attributes
    ----------
    index, name
        Place in the run (as in `logs/...task_N_NAME.log`) and name.
    workload
        TVM's workload; None while nothing of the task was measured.
    space
        Name of the space generator.
    records
        Parsed lines of its trials: trace, seconds, target, arguments.
    zero
        Line of the untuned function, which is not a trial; None: there is none.
    """

    index: int
    name: str
    workload: Any
    space: str
    records: list[Any] = field(default_factory=list)
    zero: Any = None

    @property
    def valid(self) -> list[tuple[float, Any]]:
        """(mean seconds, record) of the trials that ran, fastest first."""
        return fastest_first(self.records, itemgetter(1))

    @property
    def untuned(self) -> tuple[float, Any] | None:
        """(mean seconds, trace) of the untuned function; None where it was not measured."""
        if self.zero is None or (seconds := valid_latency(self.zero[1])) is None:
            return None
        return seconds, self.trace(self.zero)

    @property
    def target(self) -> Any:
        """The target of its trials."""
        return Target(self.valid[0][1][2])

    def trace(self, record: Any) -> Any:
        """The trace of a record."""
        return ms.database.TuningRecord.from_json(record, self.workload).trace

    def usable(self) -> list[tuple[float, Any]]:
        """(mean seconds, trace) of the trials that ran and that TVM replays, fastest first."""
        pairs = []
        for seconds, record in self.valid:
            try:
                pairs.append((seconds, self.trace(record)))
            except REFUSALS as error:
                log.warning("a record of task %s is passed over: %s", self.name, last_line(error))
        return pairs


def run_tasks(run: Path) -> list[RunTask]:
    """The tasks of a run with their trials.

    Lines of the database that cannot be used are left out.

    Raises
    ------
    DatabaseError
        The path is not the work-dir of a run.
    """
    if not all((run / name).is_file() for name in TABLES):
        raise DatabaseError(
            f"{run} holds no database_*.json; give the --work-dir of a `pruner-ms tune`"
        )
    tables = read_tables(run, workload_hash)
    workloads = {name: tables.workloads[place].value for place, name in tables.names.items()}
    listed, space = _manifest(run)
    if not listed:  # a run of an older version, or of `tune_tir` alone
        listed = [(f"task {number}", name) for number, name in enumerate(workloads)]
    tasks = []
    for index, (name, wanted) in enumerate(listed):
        workload = workload_of(workloads[wanted]) if wanted in workloads else None
        tasks.append(RunTask(index, name, workload, space))
    by_hash = {wanted: task for task, (_, wanted) in zip(tasks, listed, strict=True)}
    # traces that name intrinsics of ours cannot be read without them
    register_named_in((run / RECORDS).read_text(encoding="utf-8", errors="replace"))
    for place, record in tables.usable():
        task = by_hash.get(tables.names[place])
        if task is None:
            continue
        if marks_untuned(record[0]):
            task.zero = record
        else:
            task.records.append(record)
    return tasks


def task_of(tasks: list[RunTask], wanted: str) -> RunTask:
    """The task of that number or name.

    Raises
    ------
    OptionError
        There is none, or nothing of it ran yet.
    """
    named = [t for t in tasks if t.name == wanted or str(t.index) == wanted]
    if not named:
        listed = ", ".join(f"{t.index} ({t.name})" for t in tasks[:8])
        more = ", ..." if len(tasks) > 8 else ""
        raise OptionError(f"there is no task {wanted!r}; the run has {listed or 'none'}{more}")
    if not named[0].valid:
        failed = len(named[0].records)
        raise OptionError(
            f"task {wanted!r} has no valid trial yet ({failed} failed); tune it first"
            if failed
            else f"task {wanted!r} has no trial yet; tune it first"
        )
    return named[0]


def _manifest(run: Path) -> tuple[list[tuple[str, str]], str]:
    """(name, workload hash) of each task, and the space generator's name."""
    manifest = read_manifest(run)
    try:
        tasks = [(str(t["name"]), str(t["workload"])) for t in manifest["tasks"]]
    except (KeyError, TypeError):
        return [], DEFAULT_SPACE
    return tasks, str(manifest.get("space") or DEFAULT_SPACE)
