"""Read the files of a pool's half from a .tar.xz or a folder, and pack them. No archive is trusted.

Nothing is ever unpacked to disk. Members are read into memory one after the other, each checked
first; what the archive expands to is bounded, whatever its headers say.
"""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, cast

from pruner_ms.errors import DatabaseError
from pruner_ms.records import RECORDS, TABLES

TRIALS, REJECTED, META = "trials.jsonl", "rejected.jsonl", "meta.json"
FILES = (*TABLES, TRIALS, REJECTED, META)
"""What a half may hold; the first two are needed."""

SUFFIX = ".tar.xz"

MIB = 1 << 20
MEMBER_BYTES, TOTAL_BYTES, MEMBERS = 256 * MIB, 512 * MIB, 64
"""A half of 10,000 TensorCore records has 150 MiB."""

DICTIONARY_BYTES = 128 * MIB
"""Memory the xz decoder may take; `xz -9` needs 65 MiB."""

_CHUNK = 1 << 16


class _Expanded:
    """The expanded bytes of an .xz file, as a tar stream reads them; more than `limit` is refused.

    Raises
    ------
    DatabaseError
        The limit is passed, or the file ends too early.
    """

    def __init__(self, file: IO[bytes], path: Path, limit: int) -> None:
        self._file, self._path, self._left = file, path, limit
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DICTIONARY_BYTES)

    def read(self, size: int = _CHUNK) -> bytes:
        """At most `size` bytes; empty at the end."""
        while not self._decoder.eof:
            piece = self._file.read(_CHUNK) if self._decoder.needs_input else b""
            if not piece and self._decoder.needs_input:
                raise refused(self._path, "it ends in the middle")
            data = self._decoder.decompress(piece, size)
            if data:
                self._left -= len(data)
                if self._left < 0:
                    raise refused(self._path, f"it expands to more than {TOTAL_BYTES // MIB} MiB")
                return data
        return b""


def refused(path: Path, reason: str) -> DatabaseError:
    """The error of a pool that cannot be used."""
    return DatabaseError(
        f"{path} is refused: {reason}; give a pool as `pruner-ms pool record` writes it"
    )


def halves_at(path: Path) -> list[Path]:
    """The path itself if it is a half, else the archives in the folder."""
    inside = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else []
    return [path] if (path / RECORDS).exists() or not inside else inside


def read_files(path: Path) -> dict[str, bytes]:
    """The files of a half by name.

    Parameters
    ----------
    path
        A .tar.xz, or a folder that holds the files.

    Raises
    ------
    DatabaseError
        It is neither, damaged, hostile (links, devices, names that lead out, huge members) or
        lacks one of the two files of the database.
    """
    if not path.exists():
        raise DatabaseError(f"there is no pool {path}; give a .tar.xz file or a folder")
    try:
        files = _of_folder(path) if path.is_dir() else _of_archive(path)
    except (tarfile.TarError, lzma.LZMAError, EOFError, UnicodeError, ValueError) as error:
        reason = f"it is no {SUFFIX} archive ({str(error)[:120] or type(error).__name__})"
        raise refused(path, reason) from error
    except OSError as error:
        raise refused(path, f"it cannot be read ({error.strerror or error})") from error
    for name in TABLES:
        if name not in files:
            raise refused(path, f"it has no {name}")
    return files


def _of_folder(path: Path) -> dict[str, bytes]:
    files = {}
    for name in FILES:
        file = path / name
        if not file.is_file():
            continue
        if file.stat().st_size > MEMBER_BYTES:
            raise refused(path, f"{name} has more than {MEMBER_BYTES // MIB} MiB")
        files[name] = file.read_bytes()
    return files


def _of_archive(path: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    with path.open("rb") as file:
        stream = cast("IO[bytes]", _Expanded(file, path, TOTAL_BYTES))
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for number, member in enumerate(tar):
                if number >= MEMBERS:
                    raise refused(path, f"it has more than {MEMBERS} members")
                name = _checked(path, member)
                if name is None:
                    continue
                if name in files:
                    raise refused(path, f"it holds {name} twice")
                content = tar.extractfile(member)
                files[name] = b"" if content is None else content.read()
        while stream.read(_CHUNK):
            pass  # to the end, where the checksum is
    return files


_RULES: tuple[tuple[str, Callable[[tarfile.TarInfo], bool]], ...] = (
    (
        "whose name leads out of it",
        lambda m: (
            PurePosixPath(m.name).is_absolute()
            or ".." in PurePosixPath(m.name).parts
            or "\\" in m.name
        ),
    ),
    (
        "which is a link, a device or a sparse file",
        lambda m: m.issparse() or not (m.isreg() or m.isdir()),
    ),
    (f"of more than {MEMBER_BYTES // MIB} MiB", lambda m: m.size > MEMBER_BYTES),
)


def _checked(path: Path, member: tarfile.TarInfo) -> str | None:
    """The name of a member that is wanted, None for one that is not."""
    for what, broken in _RULES:
        if broken(member):
            raise refused(path, f"it holds {member.name[:80]!r}, {what}")
    name = PurePosixPath(member.name).name
    return name if member.isreg() and name in FILES else None


def write_archive(folder: Path, path: Path) -> None:
    """Pack the files of a half; the archive appears whole or not at all.

    Parameters
    ----------
    folder
        Where the files are; other files in it are left out.
    path
        The archive to write; an existing one is replaced.
    """
    part = path.with_name(path.name + ".part")
    with tarfile.open(part, "w:xz") as tar:
        for name in sorted(FILES):
            if (folder / name).is_file():
                tar.add(folder / name, name)
    part.replace(path)
