"""The folder of the tables: its single writer, its manifest, and what reached the disk."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from pruner_ms.errors import DatabaseError, WorkDirError
from pruner_ms.files import disk_fault, free_bytes, strict_loads, whole_lines, write_json
from pruner_ms.records import RECORDS, WORKLOADS

SCHEMA = 1
"""Version of the manifest and of the journal; a newer one than this is refused."""

MANIFEST = "manifest.json"

_PROBE_BYTES = 64 * 1024

_PROGRAM = re.compile(rb"\[\s*(\d+)")
"""How a line of TVM's table of records begins: with the number of its program's line."""


class WorkDir:
    """A directory that one session owns.

    Use it as a context manager, or call `close`. Opening creates the directory, tries whether it
    can be written, and takes the lock; nothing else is written until asked for.

    Parameters
    ----------
    path
        The directory; made with its parents when it is missing.

    Attributes
    ----------
    root
        Its absolute path.
    fresh
        Whether it was missing, and has been made.

    Raises
    ------
    WorkDirError
        Not a directory, not writable, no space, or owned by another process.
    """

    def __init__(self, path: str | Path) -> None:
        self.root = expanded(path)
        self.fresh = _make(self.root)
        _probe(self.root)
        self._lock = FileLock(str(self.root / ".lock"))
        owner = self.root / ".owner"
        self._acquire(owner)
        try:
            owner.write_text(f"{os.getpid()}\n", encoding="utf-8")
            self.logs.mkdir(exist_ok=True)
        except OSError as error:
            self._lock.release()
            raise disk_fault(Path(error.filename or self.root), error) from error

    def _acquire(self, owner: Path) -> None:
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            pid = "unknown"
            with suppress(OSError, ValueError):
                pid = owner.read_text(encoding="utf-8").strip() or pid
            raise WorkDirError(
                f"{self.root} is in use by process {pid}; wait for it, or give another --work-dir"
            ) from error
        except OSError as error:
            raise disk_fault(self.root / ".lock", error, "lock") from error

    def discard(self) -> None:
        """Remove the directory if opening it made it, unless something was measured in it."""
        held = (self.workloads, self.records, self.journal)
        if self.fresh and not any(path.exists() for path in held):
            shutil.rmtree(self.root, ignore_errors=True)

    @property
    def workloads(self) -> Path:
        """TVM's table of workloads."""
        return self.root / WORKLOADS

    @property
    def records(self) -> Path:
        """TVM's table of tuning records."""
        return self.root / RECORDS

    @property
    def journal(self) -> Path:
        """Every trial, written before anything else learns of it."""
        return self.root / "journal.jsonl"

    @property
    def manifest_path(self) -> Path:
        """What this directory was tuned for, and with what."""
        return self.root / MANIFEST

    @property
    def summary(self) -> Path:
        """The last run's summary."""
        return self.root / "summary.json"

    @property
    def logs(self) -> Path:
        """Log files."""
        return self.root / "logs"

    @property
    def log_file(self) -> Path:
        """The session's own log, with tracebacks."""
        return self.logs / "session.log"

    def manifest(self) -> dict[str, Any]:
        """The manifest, empty when there is none or it is damaged.

        Raises
        ------
        DatabaseError
            A newer version of this package wrote it.
        """
        manifest = read_manifest(self.root)
        schema = manifest.get("schema", SCHEMA)
        if not isinstance(schema, int) or schema > SCHEMA:
            raise DatabaseError(
                f"{self.manifest_path} has schema {schema}, this version knows up to {SCHEMA}; "
                "upgrade pruner-ms or give another --work-dir"
            )
        return manifest

    def update_manifest(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Set some of the manifest's values and write it; the whole manifest."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        merged = {"schema": SCHEMA, "created": now, **self.manifest(), **values, "updated": now}
        write_json(self.manifest_path, merged)
        return merged

    def close(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> WorkDir:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a work-dir, owned or not; empty when there is none or it is damaged."""
    try:
        manifest = strict_loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def expanded(path: str | Path) -> Path:
    """The directory that a user names, `~` being the home folder.

    Raises
    ------
    WorkDirError
        There is no such home folder, or no current folder that the path could start from.
    """
    try:
        return Path(path).expanduser().absolute()
    except (OSError, RuntimeError) as error:
        raise WorkDirError(f"{path} leads nowhere ({error}); give another --work-dir") from error


def _make(root: Path) -> bool:
    """Make the directory; whether it was missing."""
    try:
        fresh = not root.exists()
        if not fresh and not root.is_dir():
            raise WorkDirError(f"{root} is a file, not a directory; give another --work-dir")
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_fault(root, error, "create") from error
    return fresh


def _probe(root: Path) -> None:
    """Write and sync a small file: permissions, read-only mounts, quotas and full disks show."""
    probe = root / f".probe.{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise disk_fault(root, error, "write to") from error
    finally:
        with suppress(OSError):
            probe.unlink()


@contextmanager
def reaching_disk(database: Any) -> Iterator[None]:
    """At the end, check that what was committed within is on disk.

    Parameters
    ----------
    database
        A `JSONDatabase`.

    Raises
    ------
    WorkDirError
        See `sync_trials`.
    """
    workloads, records = (
        Path(str(path)) for path in (database.path_workload, database.path_tuning_record)
    )
    before, held = records.stat().st_size if records.exists() else 0, len(database)
    yield
    if len(database) > held:
        sync_trials(workloads, records, before, len(database) - held)


def sync_trials(workloads: Path, records: Path, before: int, expected: int) -> None:
    """Bring records that TVM appended to disk, with their programs, and check that all are there.

    TVM's database reports no error when the disk is full. A partial last line is cut off.

    Parameters
    ----------
    workloads, records
        TVM's two tables; a record names its program by the line.
    before
        Size of the second, in bytes, before the records were appended.
    expected
        How many were appended.

    Raises
    ------
    WorkDirError
        Lines are missing or torn, of either file.
    """
    added = _synced(records, before)
    lost = expected - added.count(b"\n")
    if lost or not _is_whole(added):
        whole_lines(records)
        raise WorkDirError(
            f"{lost} of {expected} records did not reach {records} ({free_bytes(records)} bytes "
            "free there); they are in the journal: free some space and run the same command again"
        )
    programs = [_PROGRAM.match(line) for line in added.splitlines()]
    needed = max((int(one[1]) + 1 for one in programs if one), default=0)
    table = _synced(workloads)
    if table.count(b"\n") < needed or not _is_whole(table):
        whole_lines(workloads)
        raise WorkDirError(
            f"a program did not reach {workloads} ({free_bytes(workloads)} bytes free there); its "
            "records are in the journal: free some space and run the same command again"
        )


def _synced(path: Path, start: int = 0) -> bytes:
    """A file from a byte on, after it was brought to disk."""
    with path.open("rb") as file:
        file.seek(start)
        content = file.read()
        os.fsync(file.fileno())
    return content


def _is_whole(lines: bytes) -> bool:
    return not lines or lines.endswith(b"\n")
