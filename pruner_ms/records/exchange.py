"""Combine databases: merge those of several tuners, carry over that of another TVM.

Merging
    Which records come out depends on which go in and on nothing else: not on the order of the
    sources, nor on how often one is given. So shards can be merged again and again while their
    tuners go on. What the destination held keeps its place, and the rest follows in an order of its
    own.
Carrying over
    TVM 0.24 renamed instructions, attributes and node types, 0.26 changed what a buffer is, and
    every version hashes programs in its own way. So workloads are built anew from their parts
    (`tvm_compat.rebuild`), traces are translated and replayed on them, and only records that replay
    are carried over.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pruner_ms.errors import DatabaseError, last_line
from pruner_ms.files import atomic_write
from pruner_ms.records.database import (
    Stored,
    commit,
    mended,
    open_database,
    outcome_of_record,
    replayed_json,
    stored_trials,
    target_of,
    target_of_record,
    target_text,
    trace_id,
    workload_hash,
)
from pruner_ms.records.tables import (
    Identity,
    Line,
    Tables,
    line_of,
    read_tables,
    require_database,
    stored_module,
)
from pruner_ms.records.workdir import WorkDir, reaching_disk
from pruner_ms.tvm_compat.marks import marks_untuned
from pruner_ms.tvm_compat.paths import VERSION, module_key, ms, plain
from pruner_ms.tvm_compat.rebuild import rebuilt
from pruner_ms.tvm_compat.safe_traces import REFUSALS
from pruner_ms.tvm_compat.traces import translated
from pruner_ms.types import Failed, Ok

log = logging.getLogger(__name__)

# Merging.


@dataclass(frozen=True)
class Merged:
    """What a merge came to.

    Attributes
    ----------
    workloads, records
        Lines of the merged database.
    added
        Records that it did not hold before.
    rejected
        Damaged lines of the sources; they stay where they are.
    set_aside
        Damaged lines of the destination; they are in its `*.rejected`.
    """

    workloads: int
    records: int
    added: int
    rejected: int
    set_aside: int = 0

    def line(self) -> str:
        """One line for a person."""
        damaged = f"; {self.rejected} damaged lines were passed over" if self.rejected else ""
        aside = f"; {self.set_aside} of its own went to *.rejected" if self.set_aside else ""
        counts = f"{self.records} records of {self.workloads} tasks, {self.added} new"
        return f"{counts}{damaged}{aside}"


@dataclass
class _Union:
    """Workloads by identity, records by workload and content, and a folder of each target."""

    target: Callable[[Any], str]
    workloads: dict[str, bytes] = field(default_factory=dict)
    records: set[tuple[str, bytes]] = field(default_factory=set)
    targets: dict[str, Path] = field(default_factory=dict)
    rejected: int = 0

    def take(self, folder: Path, tables: Tables) -> None:
        """Add a database."""
        for place, name in tables.names.items():
            raw = tables.workloads[place].raw
            # equal workloads may be written differently: the same one wins in any order
            self.workloads[name] = min(self.workloads.get(name, raw), raw)
        for place, record in tables.usable():
            if record[2] is not None:
                self.targets.setdefault(self.target(record[2]), folder)
            self.records.add((tables.names[place], line_of(record)))
        self.rejected += sum(map(len, tables.damaged().values()))

    def tables(self, held: Sequence[str]) -> tuple[bytes, bytes]:
        """The contents of both files; the workloads in `held` come first."""
        names = [*held, *sorted(self.workloads.keys() - set(held))]
        place = {name: index for index, name in enumerate(names)}
        workloads = b"".join(self.workloads[name] + b"\n" for name in names)
        records = b"".join(
            b"[%d,%s]\n" % (place[name], content) for name, content in sorted(self.records)
        )
        return workloads, records


def merge(
    sources: Sequence[Path],
    into: Path,
    identity: Identity = workload_hash,
    target: Callable[[Any], str] = target_of_record,
) -> Merged:
    """Add databases to one, which may hold records already.

    Damaged lines of the destination are set aside first, as when a session opens it.

    Parameters
    ----------
    sources
        Folders with TVM's two tables: work-dirs of ours or of MetaSchedule's. They are only read,
        and may be in use.
    into
        A work-dir; made where it is missing.
    identity
        Names a workload.
    target
        A stored target as text, equal for equal targets.

    Raises
    ------
    DatabaseError
        A source holds no database, or they are of different targets, or another version of TVM
        wrote what `into` holds.
    WorkDirError
        `into` cannot be written, or is in use.
    """
    for source in sources:
        require_database(source)
    with WorkDir(into) as directory:
        repaired = mended(directory, identity)
        union = _Union(target)
        union.take(directory.root, read_tables(directory.root, identity))
        held, before = list(union.workloads), len(union.records)
        for folder in sources:
            union.take(folder, read_tables(folder, identity))
        if len(union.targets) > 1:
            (one, at), (other, there) = list(union.targets.items())[:2]
            raise DatabaseError(
                f"{at} is for the target {one}, and {there} for {other}; TVM does not tell their "
                "records apart: merge those of one target"
            )
        workloads, records = union.tables(held)
        # after a kill in between, the old records still find their workloads in the new table
        atomic_write(directory.workloads, workloads)
        atomic_write(directory.records, records)
    added = len(union.records) - before
    return Merged(len(union.workloads), len(union.records), added, union.rejected, repaired.count)


# Carrying over.


@dataclass
class Imported:
    """What was carried over.

    Attributes
    ----------
    workloads, records
        In the source.
    carried
        Records of the source that the destination has now.
    added
        Those of them that it did not have before.
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
    tables = read_tables(source)
    imported = Imported(len(tables.workloads), len(tables.records))
    usable = list(_usable(tables, imported.left))
    target = _only_target(source, [record for _, record in usable])
    with WorkDir(into) as directory:
        database, opened = open_database(directory)
        stored = {} if target is None else stored_trials(directory.root, opened.tables, target)
        with reaching_disk(database):
            for mod, record in usable:
                try:
                    new = _carry(record, mod, target, database, stored)
                except REFUSALS as error:
                    imported.left[f"the trace does not replay here: {last_line(error)}"] += 1
                    continue
                imported.carried += 1
                imported.added += new
    return imported


def _usable(tables: Tables, left: Counter[str]) -> Iterator[tuple[Any, Any]]:
    """Module and record of each record whose module and target this TVM accepts."""
    modules = {place: _module(tables.workloads[place]) for place in tables.names}
    for line in tables.records:
        if line.reason is not None:
            left[f"the record is damaged: {line.reason}"] += 1
            continue
        place, record = line.value
        mod = modules[place]
        try:
            if isinstance(mod, str):
                raise ValueError(mod)
            target_of(record[2])
        except ValueError as error:
            left[str(error)] += 1
        else:
            yield mod, record


def _module(line: Line) -> Any:
    """The module of a workload, or the text that says why there is none."""
    try:
        return rebuilt(stored_module(line.value))
    except ValueError as error:
        return f"the program cannot be made here: {error}"


def _only_target(source: Path, records: Sequence[Any]) -> Any:
    """The one target of some records; None where there is no record."""
    targets = {target_of_record(record[2]): record[2] for record in records}
    if len(targets) > 1:
        one, other = sorted(targets)[:2]
        raise DatabaseError(
            f"{source} has records for the target {one} and for {other}, and TVM does not tell "
            "them apart: import those of one target, from a database of their own"
        )
    return next(map(target_of, targets.values()), None)


def _carry(record: Any, mod: Any, target: Any, database: Any, stored: Stored) -> bool:
    """Replay a record and commit it; False where the database has it."""
    trace, run_secs, _, _ = record
    schedule = replayed_json(translated(trace), mod)
    outcome = outcome_of_record(run_secs)
    name = trace_id(plain(schedule.trace.as_json()))
    trials = stored.setdefault(module_key(mod), {})
    if name in trials and (isinstance(trials[name], Ok) or isinstance(outcome, Failed)):
        return False
    commit(database, mod, schedule, outcome, target)
    trials[name] = outcome
    return True


def fastest(source: Path) -> Any:
    """The fastest record of each task of a database, of whatever TVM, as a database in memory.

    Parameters
    ----------
    source
        Folder with TVM's two tables; it is only read, and may be in use.

    Raises
    ------
    DatabaseError
        The source holds no database.
    """
    require_database(source)
    database, left = ms.database.MemoryDatabase(), Counter[str]()
    _carry_fastest(source, _usable(read_tables(source), left), left, database, {})
    return database


def keep_fastest(source: Path, store: Path) -> int:
    """Add the fastest record of each task of a database to a store, where it has no faster one.

    Parameters
    ----------
    source
        Folder with TVM's two tables; it is only read.
    store
        Folder of databases, one for each target and version of TVM; made where it is missing.

    Returns
    -------
    int
        Records that were added.

    Raises
    ------
    DatabaseError
        The source holds no database, or records of several targets.
    WorkDirError
        The store cannot be written, or is in use.
    """
    require_database(source)
    left: Counter[str] = Counter()
    usable = list(_usable(read_tables(source), left))
    target = _only_target(source, [record for _, record in usable])
    if target is None:
        return 0
    name = hashlib.sha256(f"{target_text(target)} {VERSION}".encode()).hexdigest()
    with WorkDir(store / f"{target.kind.name}-{name[:12]}") as directory:
        database, opened = open_database(directory)
        stored = stored_trials(directory.root, opened.tables, target)
        with reaching_disk(database):
            return _carry_fastest(source, usable, left, database, stored)


def _carry_fastest(
    source: Path,
    usable: Iterable[tuple[Any, Any]],
    left: Counter[str],
    database: Any,
    stored: Stored,
) -> int:
    """Commit the fastest record of each task to a database that has no faster one.

    Parameters
    ----------
    source
        Where they are from, for the log.
    usable, left
        Modules and records (`_usable`), and why others are not used.
    database, stored
        Where they go, and what that holds.

    Returns
    -------
    int
        Records that were committed.
    """
    by_module: dict[str, list[tuple[float, Any, Any]]] = {}
    for mod, record in usable:
        outcome = outcome_of_record(record[1])
        if isinstance(outcome, Ok) and not marks_untuned(record[0]):
            by_module.setdefault(module_key(mod), []).append((outcome.latency, mod, record))
    added = 0
    for key, trials in by_module.items():
        before = (one.latency for one in stored.get(key, {}).values() if isinstance(one, Ok))
        least = min(before, default=math.inf)
        for latency, mod, record in sorted(trials, key=lambda trial: trial[0]):
            if latency >= least:
                break
            try:
                added += _carry(record, mod, target_of(record[2]), database, stored)
            except REFUSALS as error:
                left[f"the trace does not replay here: {last_line(error)}"] += 1
                continue
            break
    for reason, count in left.most_common():
        log.warning("%s: %d records are not used: %s", source, count, reason)
    return added
