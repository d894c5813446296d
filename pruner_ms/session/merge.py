"""Several tuners' databases as one.

Which records come out depends on which go in and on nothing else: not on the order of the sources,
nor on how often one is given. So shards can be merged again and again while their tuners go on.
What the destination held keeps its place, and the rest follows in an order of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pruner_ms.errors import DatabaseError
from pruner_ms.session.files import atomic_write, disk_fault
from pruner_ms.session.foreign import mended
from pruner_ms.session.records import Line, check_record, check_workload, line_of, read_lines
from pruner_ms.session.workdir import WorkDir

TABLES = ("database_workload.json", "database_tuning_record.json")
"""TVM's names of the two tables."""


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
class _Pool:
    """Workloads by identity, and records by workload and content."""

    identity: Callable[[Any], str]
    target: Callable[[Any], str]
    workloads: dict[str, bytes] = field(default_factory=dict)
    records: set[tuple[str, bytes]] = field(default_factory=set)
    targets: dict[str, Path] = field(default_factory=dict)
    rejected: int = 0

    def take(self, folder: Path) -> None:
        """Add a database."""
        places: dict[int, str] = {}
        try:
            lines = read_lines(folder / TABLES[0], self._named)
            trials = read_lines(folder / TABLES[1], partial(check_record, workloads=len(lines)))
        except OSError as error:
            raise disk_fault(folder, error, "read") from error
        for index, line in enumerate(lines):
            if line.reason is None:
                places[index] = self.identity(line.value)
                # equal workloads may be written differently: the same one wins in any order
                known = self.workloads.get(places[index], line.raw)
                self.workloads[places[index]] = min(known, line.raw)
        for line in self._usable(trials, places):
            index, record = line.value
            if record[2] is not None:
                self.targets.setdefault(self.target(record[2]), folder)
            self.records.add((places[index], line_of(record)))
        self.rejected += sum(line.reason is not None for line in (*lines, *trials))

    def _named(self, value: Any) -> None:
        check_workload(value)
        self.identity(value)

    def _usable(self, trials: Sequence[Line], places: dict[int, str]) -> list[Line]:
        usable = [line for line in trials if line.reason is None]
        kept = [line for line in usable if line.value[0] in places]
        self.rejected += len(usable) - len(kept)
        return kept

    def tables(self, held: Sequence[str]) -> tuple[bytes, bytes]:
        """The two files, those workloads first."""
        names = [*held, *sorted(self.workloads.keys() - set(held))]
        place = {name: index for index, name in enumerate(names)}
        workloads = b"".join(self.workloads[name] + b"\n" for name in names)
        records = b"".join(
            b"[%d,%s]\n" % (place[name], content) for name, content in sorted(self.records)
        )
        return workloads, records


def require_database(folder: Path) -> None:
    """Raise a DatabaseError unless a folder has TVM's tables."""
    if not (folder / TABLES[0]).is_file():
        raise DatabaseError(f"{folder} holds no database; name folders with {' and '.join(TABLES)}")


def merge(
    sources: Sequence[Path],
    into: Path,
    identity: Callable[[Any], str],
    target: Callable[[Any], str],
) -> Merged:
    """Add databases to one, which may hold records already.

    What is damaged in that one is set aside first, as when a session opens it.

    Parameters
    ----------
    sources
        Folders with TVM's two tables: work-dirs of ours or of MetaSchedule's. They are only read,
        and may be in use.
    into
        A work-dir; made where it is missing.
    identity
        Names a parsed workload line, equal for equal workloads; ValueError for one that cannot be
        used (`database.workload_hash`).
    target
        A stored target as text, equal for equal targets (`database.target_of_record`).

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
        pool = _Pool(identity, target)
        pool.take(directory.root)
        held, before = list(pool.workloads), len(pool.records)
        for folder in sources:
            pool.take(folder)
        if len(pool.targets) > 1:
            (one, at), (other, there) = list(pool.targets.items())[:2]
            raise DatabaseError(
                f"{at} is for the target {one}, and {there} for {other}; TVM does not tell their "
                "records apart: merge those of one target"
            )
        workloads, records = pool.tables(held)
        # after a kill in between, the old records still find their workloads in the new table
        atomic_write(directory.workloads, workloads)
        atomic_write(directory.records, records)
    added = len(pool.records) - before
    return Merged(len(pool.workloads), len(pool.records), added, pool.rejected, repaired.count)
