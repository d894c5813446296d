"""The tasks and trials of a run, read from its work-dir without touching it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pruner_ms.errors import DatabaseError, OptionError, last_line
from pruner_ms.session.database import workload_hash
from pruner_ms.session.files import strict_loads
from pruner_ms.session.records import check_record, check_workload
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
        That of the untuned function, which is none of the trials; None: there is none.
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
        timed = [(valid_latency(record[1]), record) for record in self.records]
        return sorted(((s, r) for s, r in timed if s is not None), key=lambda pair: pair[0])

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
        found = []
        for seconds, record in self.valid:
            try:
                found.append((seconds, self.trace(record)))
            except REFUSALS as error:
                log.warning("a record of task %s is passed over: %s", self.name, last_line(error))
        return found


def run_tasks(run: Path) -> list[RunTask]:
    """The tasks of a run with their trials.

    Lines of the database that cannot be used are left out.

    Raises
    ------
    DatabaseError
        The path is not the work-dir of a run.
    """
    workloads, records = run / "database_workload.json", run / "database_tuning_record.json"
    if not workloads.is_file() or not records.is_file():
        raise DatabaseError(
            f"{run} holds no database_*.json; give the --work-dir of a `pruner-ms tune`"
        )
    lines = _parsed(workloads)
    hashes = [_hash(line) for line in lines]
    known, space = _manifest(run / "manifest.json")
    if not known:  # a run of an older version, or of `tune_tir` alone
        known = [(f"task {i}", name) for i, name in enumerate(dict.fromkeys(hashes)) if name]
    found = []
    for index, (name, wanted) in enumerate(known):
        place = hashes.index(wanted) if wanted in hashes else None
        workload = None if place is None else ms.database.Workload.from_json(lines[place])
        found.append(RunTask(index, name, workload, space))
    by_hash = {wanted: task for task, (_, wanted) in zip(found, known, strict=True)}
    # traces that name intrinsics of ours cannot be read without them
    register_named_in(records.read_text(encoding="utf-8", errors="replace"))
    for line in _parsed(records):
        try:
            check_record(line, len(hashes))
        except ValueError:
            continue
        task = by_hash.get(hashes[line[0]])
        if task is None:
            continue
        if marks_untuned(line[1][0]):
            task.zero = line[1]
        else:
            task.records.append(line[1])
    return found


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


def _parsed(path: Path) -> list[Any]:
    """A file's lines; None for one that is damaged."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(strict_loads(line))
        except ValueError:
            found.append(None)
    return found


def _hash(line: Any) -> str:
    """The structural hash of a workload line; empty when it is damaged."""
    try:
        check_workload(line)
        return workload_hash(line)
    except ValueError:
        return ""


def _manifest(path: Path) -> tuple[list[tuple[str, str]], str]:
    """(name, workload hash) of each task, and the space generator's name."""
    try:
        found = strict_loads(path.read_bytes())
        tasks = [(str(t["name"]), str(t["workload"])) for t in found["tasks"]]
    except (OSError, ValueError, KeyError, TypeError):
        return [], DEFAULT_SPACE
    return tasks, str(found.get("space") or DEFAULT_SPACE)
