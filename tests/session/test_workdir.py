from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pruner_ms import files
from pruner_ms.errors import DatabaseError, WorkDirError
from pruner_ms.files import (
    atomic_write,
    whole_lines,
    write_json,
)
from pruner_ms.records.workdir import WorkDir, expanded, sync_trials


def test_a_missing_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    with WorkDir(tmp_path / "a" / "b") as work:
        assert work.logs.is_dir()
        assert sorted(p.name for p in work.root.iterdir()) == [".lock", ".owner", "logs"]


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(WorkDirError, match=r"file, not a directory; give another") as caught:
        WorkDir(path)
    assert caught.value.exit_code == 5
    with pytest.raises(WorkDirError, match="cannot create"):
        WorkDir(path / "below")


def test_a_file_system_that_refuses_is_named_with_its_free_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WorkDirError, match=r"No space left on device \([\d,]+ bytes free there\)"):
        WorkDir(tmp_path)
    assert not list(tmp_path.glob(".probe*"))


def test_proc_cannot_be_written() -> None:
    with pytest.raises(WorkDirError, match=r"cannot (create|write to) /proc"):
        WorkDir("/proc/pruner-ms")


def test_a_second_process_is_told_who_owns_it(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pruner_ms.records.workdir import WorkDir\n"
        "w = WorkDir(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        with pytest.raises(WorkDirError, match=f"in use by process {owner.pid}"):
            WorkDir(tmp_path)
        owner.kill()
        owner.wait()
    WorkDir(tmp_path).close()


def test_the_lock_holds_within_a_process_too(tmp_path: Path) -> None:
    with WorkDir(tmp_path), pytest.raises(WorkDirError, match="in use"):
        WorkDir(tmp_path)
    WorkDir(tmp_path).close()


def test_manifest_keeps_what_it_is_not_told_to_change(tmp_path: Path) -> None:
    with WorkDir(tmp_path) as work:
        first = work.update_manifest({"target": "t", "seed": 1})
        second = work.update_manifest({"seed": 2})
        assert second["created"] == first["created"]
        assert (second["target"], second["seed"], second["schema"]) == ("t", 2, 1)
        assert json.loads(work.manifest_path.read_text()) == second
        work.manifest_path.write_text("{torn")
        assert work.manifest() == {}
        work.manifest_path.write_text('{"schema": 99}')
        with pytest.raises(DatabaseError, match="schema 99"):
            work.manifest()


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})

    def full(fd: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WorkDirError, match="quota"):
        atomic_write(path, "new")
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_torn_tails_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert whole_lines(path) == 0
    path.write_bytes(b"one\ntwo\nthr")
    assert whole_lines(path) == 3
    assert path.read_bytes() == b"one\ntwo\n"
    path.write_bytes(b"torn")
    assert whole_lines(path) == 4
    assert path.read_bytes() == b""


def test_lines_that_another_writer_lost_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    workloads = tmp_path / "workloads"
    workloads.write_bytes(b"")
    path.write_bytes(b"one\n")
    sync_trials(workloads, path, 4, 0)
    path.write_bytes(b"one\ntwo\n")
    sync_trials(workloads, path, 4, 1)
    with pytest.raises(WorkDirError, match="1 of 2 records did not reach"):
        sync_trials(workloads, path, 4, 2)
    path.write_bytes(b"one\ntwo\nthr")
    with pytest.raises(WorkDirError, match="1 of 2 records"):
        sync_trials(workloads, path, 4, 2)
    assert path.read_bytes() == b"one\ntwo\n"


def test_strict_json() -> None:
    for bad in ("NaN", "[Infinity]", "nan", "[1,", "[" * 100_000):
        with pytest.raises(ValueError):
            files.strict_loads(bad)
    assert files.strict_loads(b"[1, 2.5]") == [1, 2.5]


def test_what_opening_made_is_discarded_and_nothing_that_was_there_or_was_measured(
    tmp_path: Path,
) -> None:
    with WorkDir(tmp_path / "new") as work:
        work.discard()
    assert work.fresh and not work.root.exists()
    (tmp_path / "old").mkdir()
    with WorkDir(tmp_path / "old") as work:
        work.discard()
    assert not work.fresh and work.root.is_dir()
    for name in ("journal", "records", "workloads"):
        with WorkDir(tmp_path / name) as work:
            held: Path = getattr(work, name)
            held.write_text("measured")
            work.discard()
        assert held.read_text() == "measured"


def test_the_home_folder_is_found_or_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/run") == tmp_path / "run"
    with WorkDir("~/run") as work:
        assert work.root == tmp_path / "run" and work.fresh
    with WorkDir("~/run") as work:
        assert not work.fresh
    with pytest.raises(WorkDirError, match=r"leads nowhere .*give another --work-dir"):
        WorkDir("~nobody-of-that-name/run")


@pytest.mark.parametrize(("name", "words"), [(".owner", "Is a directory"), ("logs", "File exists")])
def test_what_is_in_the_way_is_a_sentence_and_the_lock_is_given_back(
    tmp_path: Path, name: str, words: str
) -> None:
    path = tmp_path / name
    if name == ".owner":
        path.mkdir()
    else:
        path.write_text("")
    with pytest.raises(WorkDirError, match=f"{name}: {words}.*give another --work-dir"):
        WorkDir(tmp_path)
    path.rename(tmp_path / "aside")
    WorkDir(tmp_path).close()


def test_a_lock_of_another_user_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: object, timeout: float) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / ".lock"))

    monkeypatch.setattr("pruner_ms.records.workdir.FileLock.acquire", refused)
    with pytest.raises(WorkDirError, match=r"cannot lock .*\.lock: Permission denied"):
        WorkDir(tmp_path)


def test_programs_that_tvm_lost_are_noticed(tmp_path: Path) -> None:
    workloads, records = tmp_path / "workloads", tmp_path / "records"
    workloads.write_bytes(b'["1","x"]\n["2","y"]\n')
    records.write_bytes(b"[0,[]]\n")
    before = records.stat().st_size
    records.write_bytes(b"[0,[]]\n[1,[]]\n[ 1,[]]\n")
    sync_trials(workloads, records, before, 2)
    with pytest.raises(WorkDirError, match="1 of 3 records did not reach"):
        sync_trials(workloads, records, before, 3)
    workloads.write_bytes(b'["1","x"]\n["2","')
    with pytest.raises(WorkDirError, match="a program did not reach"):
        sync_trials(workloads, records, before, 2)
    assert workloads.read_bytes() == b'["1","x"]\n'
    with pytest.raises(WorkDirError, match="a program did not reach"):
        sync_trials(workloads, records, before, 2)
