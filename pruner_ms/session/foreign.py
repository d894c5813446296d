"""Making a database loadable, unless another TVM wrote it: a repair would empty that one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pruner_ms.errors import DatabaseError
from pruner_ms.session.files import disk_fault
from pruner_ms.session.records import Repair, check_workload, read_lines, repair
from pruner_ms.session.workdir import WorkDir
from pruner_ms.tvm_compat.paths import VERSION


def mended(work_dir: WorkDir, identity: Callable[[Any], str]) -> Repair:
    """Repair a work-dir's database, or refuse it as it is.

    Parameters
    ----------
    work_dir
        The directory, owned.
    identity
        As for `records.repair`.

    Returns
    -------
    Repair
        What was set aside.

    Raises
    ------
    DatabaseError
        This TVM reads no workload of it because another version wrote it. No file has changed.
    WorkDirError
        The files cannot be read or written.
    """
    try:
        _refuse_foreign(work_dir, identity)
        return repair(work_dir.workloads, work_dir.records, identity)
    except OSError as error:
        raise disk_fault(work_dir.records, error, "read") from error


def _refuse_foreign(work_dir: WorkDir, identity: Callable[[Any], str]) -> None:
    """Raise a DatabaseError for a database of which this TVM reads no workload."""
    writer = work_dir.manifest().get("tvm")
    if writer == VERSION:
        return
    whole = 0

    def check(value: Any) -> None:
        nonlocal whole
        check_workload(value)
        whole += 1
        identity(value)

    lines = read_lines(work_dir.workloads, check)
    if not lines or any(line.reason is None for line in lines):
        return
    if isinstance(writer, str):
        by = f"TVM {writer}"
    elif whole:
        by = "another TVM"
    else:
        return  # nothing says that another TVM was here: every line is torn or garbled
    raise DatabaseError(
        f"{work_dir.root} was written by {by}, and this TVM ({VERSION}) can read no workload of "
        f"it; carry it over with `pruner-ms db import {work_dir.root} --into OTHER`"
    )
