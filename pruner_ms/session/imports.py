"""Another TVM's database, carried over into one that this TVM reads.

0.24 renamed instructions, attributes and node types, 0.26 changed what a buffer is, and every
version hashes programs in its own way. So workloads are made anew from what they consist of
(`tvm_compat.rebuild`), traces are translated and replayed on them, and only what replays is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pruner_ms.errors import DatabaseError, last_line
from pruner_ms.session.database import (
    Stored,
    commit,
    open_database,
    outcome_of_record,
    stored_trials,
    target_text,
)
from pruner_ms.session.files import disk_fault, sync_trials
from pruner_ms.session.merge import TABLES, require_database
from pruner_ms.session.records import (
    Line,
    check_record,
    check_workload,
    read_lines,
    stored_module,
    trace_id,
)
from pruner_ms.session.workdir import WorkDir
from pruner_ms.tensorcore.registration import register_named_in
from pruner_ms.tvm_compat.paths import Schedule, Target, Trace, module_key, plain
from pruner_ms.tvm_compat.rebuild import rebuilt
from pruner_ms.tvm_compat.safe_traces import REFUSALS
from pruner_ms.tvm_compat.traces import translated
from pruner_ms.types import Failed, Ok


@dataclass
class Imported:
    """What was carried over.

    Attributes
    ----------
    workloads, records
        In the source.
    carried
        Records that the destination has now, those of before among them.
    added
        Of those, the ones that it did not have.
    left
        Why records were left behind, and how many for each reason.
    """

    workloads: int = 0
    records: int = 0
    carried: int = 0
    added: int = 0
    left: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """Lines for a person."""
        first = (
            f"{self.carried} of {self.records} records of {self.workloads} workloads carried over, "
            f"{self.added} new"
        )
        return [first, *(f"left behind, {n}: {why}" for why, n in self.left.most_common())]


def carry_over(source: Path, into: Path) -> Imported:
    """Carry a database over into a work-dir; what that holds already stays.

    Parameters
    ----------
    source
        Folder with TVM's two tables, of whatever version; it is only read.
    into
        A work-dir; made where it is missing.

    Raises
    ------
    DatabaseError
        The source holds no database, or records of several targets, or is the destination.
    WorkDirError
        `into` cannot be written, is full, or is in use.
    """
    require_database(source)
    if source.resolve() == into.resolve():
        raise DatabaseError(f"{into} is the source itself; name another --into")
    found = Imported()
    try:
        workloads = read_lines(source / TABLES[0], check_workload)
        trials = read_lines(source / TABLES[1], partial(check_record, workloads=len(workloads)))
    except OSError as error:
        raise disk_fault(source, error, "read") from error
    found.workloads, found.records = len(workloads), len(trials)
    modules = [_module(line) for line in workloads]
    usable = list(_usable(trials, modules, found))
    target = _only_target(source, usable)
    with WorkDir(into) as directory:
        database, _ = open_database(directory)
        stored = stored_trials(directory, target) if target is not None else {}
        before = directory.records.stat().st_size if directory.records.exists() else 0
        for trial in usable:
            try:
                new = _carry(trial, modules[trial.value[0]], target, database, stored)
            except REFUSALS as error:
                found.left[f"the trace does not replay here: {last_line(error)}"] += 1
                continue
            found.carried += 1
            found.added += new
        if found.added:
            sync_trials(directory.workloads, directory.records, before, found.added)
    return found


def _module(line: Line) -> Any:
    """The module of a workload, or the text that says why there is none."""
    if line.reason is not None:
        return f"the workload is damaged: {line.reason}"
    try:
        return rebuilt(stored_module(line.value))
    except ValueError as error:
        return f"the program cannot be made here: {error}"


def _usable(trials: Sequence[Line], modules: Sequence[Any], found: Imported) -> Iterator[Line]:
    """Records with a module and a target that this TVM takes; the others are counted."""
    taken: dict[str, str] = {}
    for line in trials:
        why = f"the record is damaged: {line.reason}" if line.reason is not None else ""
        if not why and isinstance(modules[line.value[0]], str):
            why = modules[line.value[0]]
        if not why:
            text = json.dumps(line.value[1][2], sort_keys=True)
            if text not in taken:
                taken[text] = _why_not(line.value[1][2])
            why = taken[text]
        if why:
            found.left[why] += 1
        else:
            yield line


def _why_not(stored_target: Any) -> str:
    """Why this TVM does not take a target; empty where it does."""
    if stored_target is None:
        return "the record has no target"
    try:
        Target(stored_target)
    except REFUSALS as error:
        return f"this TVM does not take the target: {last_line(error)}"
    return ""


def _only_target(source: Path, usable: Sequence[Line]) -> Any:
    """The one target of some records; None where there is no record."""
    texts = {json.dumps(line.value[1][2], sort_keys=True) for line in usable}
    targets = {target_text(found): found for found in (Target(json.loads(t)) for t in texts)}
    if len(targets) > 1:
        one, other = sorted(targets)[:2]
        raise DatabaseError(
            f"{source} has records for the target {one} and for {other}, and TVM does not tell "
            "them apart: import those of one target, from a database of their own"
        )
    return next(iter(targets.values()), None)


def _carry(line: Line, mod: Any, target: Any, database: Any, stored: Stored) -> bool:
    """Replay a record and commit it; False where the database has it."""
    trace, run_secs, _, _ = line.value[1]
    here = translated(trace)
    register_named_in(json.dumps(here))
    schedule = Schedule(mod)
    Trace.apply_json_to_schedule(here, schedule)
    outcome = outcome_of_record(run_secs)
    name = trace_id(plain(schedule.trace.as_json()))
    known = stored.setdefault(module_key(mod), {})
    if name in known and (isinstance(known[name], Ok) or isinstance(outcome, Failed)):
        return False
    commit(database, mod, schedule, outcome, target)
    known[name] = outcome
    return True
