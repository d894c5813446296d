"""Databases of another TVM are refused as they are, where a repair would empty them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pruner_ms.errors import DatabaseError
from pruner_ms.records.workdir import WorkDir

W, R = "database_workload.json", "database_tuning_record.json"


def written_by(folder: Path, version: str) -> None:
    with WorkDir(folder) as work:
        work.update_manifest({"tvm": version})


def content(folder: Path) -> dict[str, bytes]:
    """What the directory holds, but for the logs and the lock."""
    files = (p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    return {p.name: p.read_bytes() for p in files}


@pytest.mark.parametrize("version", ["0.1.0", None])
def test_the_directory_and_both_versions_are_named(
    foreign: Path, tvm_paths: Any, version: str | None
) -> None:
    from pruner_ms.records.database import open_database

    if version:
        written_by(foreign, version)
    before = content(foreign)
    with WorkDir(foreign) as work, pytest.raises(DatabaseError) as caught:
        open_database(work)
    assert str(caught.value) == (
        f"{foreign} was written by {f'TVM {version}' if version else 'another TVM'}, and this TVM "
        f"({tvm_paths.VERSION}) can read no workload of it; carry it over with "
        f"`pruner-ms db import {foreign} --into OTHER`"
    )
    assert content(foreign) == before


def test_neither_tuned_nor_imported_into_and_carried_over_afterwards(
    foreign: Path, target: Any, matmul: Any, tmp_path: Path
) -> None:
    from pruner_ms.records.exchange import carry_over
    from pruner_ms.session.budget import Budget
    from pruner_ms.session.options import TaskSpec, TuneConfig
    from pruner_ms.session.run import tune_session

    before = content(foreign)
    with pytest.raises(DatabaseError, match=re.escape("--into OTHER")):
        tune_session([TaskSpec("matmul", matmul)], target, foreign, TuneConfig(Budget(4)))
    other = Path(__file__).parent / "data" / "tvm-0.17"
    with pytest.raises(DatabaseError, match=re.escape("--into OTHER")):
        carry_over(other, foreign)
    assert content(foreign) == before
    assert carry_over(foreign, tmp_path / "other").carried == len(before[R].splitlines())


def test_one_readable_workload_is_reason_enough_for_a_repair(foreign: Path, tuned: Path) -> None:
    from pruner_ms.records.database import open_database

    written_by(foreign, "0.1.0")
    count = (foreign / W).read_bytes().count(b"\n")
    with (foreign / W).open("ab") as file:
        file.write((tuned / W).read_bytes())
    with WorkDir(foreign) as work:
        database, repaired = open_database(work)
    assert len(repaired.rejected[W]) == count
    assert (foreign / W).read_bytes() == (tuned / W).read_bytes()
    assert len(database) == 0


@pytest.mark.parametrize("lines", [b"", b"torn[\n"])
def test_no_workloads_and_torn_ones_say_nothing_of_another_tvm(
    lines: bytes, tmp_path: Path, tvm_paths: Any
) -> None:
    from pruner_ms.records.database import open_database

    (tmp_path / W).write_bytes(lines)
    with WorkDir(tmp_path) as work:
        assert open_database(work)[1].count == lines.count(b"\n")


def test_a_run_of_this_tvm_with_damage_is_repaired(foreign: Path, tvm_paths: Any) -> None:
    from pruner_ms.records.database import open_database

    written_by(foreign, tvm_paths.VERSION)
    with WorkDir(foreign) as work:
        assert open_database(work)[1].count
    assert list(foreign.glob("*.rejected"))


def test_the_torn_line_of_another_version_is_refused(tmp_path: Path, tvm_paths: Any) -> None:
    from pruner_ms.records.database import open_database

    written_by(tmp_path, "0.1.0")
    (tmp_path / W).write_bytes(b"torn[\n")
    with WorkDir(tmp_path) as work, pytest.raises(DatabaseError, match=r"written by TVM 0\.1\.0"):
        open_database(work)
