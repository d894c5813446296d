"""What an archive may hold, and what is refused before it does harm. No TVM here."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from pruner_ms.errors import DatabaseError
from pruner_ms.records import RECORDS, WORKLOADS, archive
from pruner_ms.records.archive import META, read_files, write_archive

from .conftest import pack

NEEDED = [(tarfile.TarInfo(WORKLOADS), b"[]\n"), (tarfile.TarInfo(RECORDS), b"[]\n")]


def _info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_what_is_packed_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "half"
    folder.mkdir()
    content = {WORKLOADS: b"1\n", RECORDS: b"2\n", META: json.dumps({"a": 1}).encode()}
    for name, text in {**content, "notes.txt": b"mine"}.items():
        (folder / name).write_bytes(text)
    path = tmp_path / "a.b.random.tar.xz"
    write_archive(folder, path)
    assert read_files(path) == content == read_files(folder)
    assert not path.with_name(path.name + ".part").exists()


@pytest.mark.parametrize("name", ["./" + META, "a.b.random/" + META])
def test_a_folder_in_front_is_fine(tmp_path: Path, name: str) -> None:
    members = [*NEEDED, (_info("./", tarfile.DIRTYPE), b""), (_info(name), b"{}")]
    assert read_files(pack(tmp_path / "a.tar.xz", members))[META] == b"{}"


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (_info("../" + META), "leads out"),
        (_info("/etc/" + META), "leads out"),
        (_info("a/../../b"), "leads out"),
        (_info("a\\" + META), "leads out"),
        (_info(META, tarfile.SYMTYPE, "/etc/passwd"), "link"),
        (_info(META, tarfile.LNKTYPE, WORKLOADS), "link"),
        (_info("x", tarfile.FIFOTYPE), "device"),
        (_info("x", tarfile.CHRTYPE), "device"),
        (_info(WORKLOADS), "twice"),
    ],
)
def test_hostile_members(tmp_path: Path, member: tarfile.TarInfo, words: str) -> None:
    path = pack(tmp_path / "a.tar.xz", [*NEEDED, (member, b"")])
    with pytest.raises(DatabaseError, match=words) as caught:
        read_files(path)
    assert str(path) in str(caught.value)
    assert "pool record" in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.xz"]


def test_a_huge_member_is_refused_by_its_header(tmp_path: Path) -> None:
    info = _info(META)
    info.size = archive.MEMBER_BYTES + 1
    raw = info.tobuf() + bytes(1024)
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(raw))
    with pytest.raises(DatabaseError, match="256 MiB"):
        read_files(path)


def test_a_bomb_is_stopped_and_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "TOTAL_BYTES", 8 << 20)
    info = _info("padding")
    info.size = 64 << 20
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(info.tobuf() + bytes(64 << 20)))
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(DatabaseError, match="expands to more than 8 MiB"):
        read_files(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


def test_a_bomb_in_a_header_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "TOTAL_BYTES", 4 << 20)
    info = _info("././@PaxHeader", tarfile.XHDTYPE)
    info.size = 64 << 20
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(info.tobuf() + bytes(64 << 20)))
    with pytest.raises(DatabaseError, match="refused"):
        read_files(path)


def test_many_members_are_refused(tmp_path: Path) -> None:
    members = [(_info(f"f{i}"), b"") for i in range(archive.MEMBERS + 1)]
    with pytest.raises(DatabaseError, match="more than 64 members"):
        read_files(pack(tmp_path / "a.tar.xz", members))


def _truncated() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
        for info, content in NEEDED:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()[:-40]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "refused"),
        (b"hello" * 99, "no .tar.xz archive"),
        (lzma.compress(b"hello" * 300), "no .tar.xz archive"),
        (_truncated(), "ends in the middle"),
        (lzma.compress(b""), "has no database_workload.json|no .tar.xz"),
    ],
    ids=["empty", "text", "no tar", "cut", "empty tar"],
)
def test_damaged_files(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.tar.xz"
    path.write_bytes(content)
    with pytest.raises(DatabaseError, match=words):
        read_files(path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"there is no pool .*nowhere"):
        read_files(tmp_path / "nowhere")
    with pytest.raises(DatabaseError, match=f"it has no {WORKLOADS}"):
        read_files(tmp_path)
