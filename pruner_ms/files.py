"""Writing files so that a kill or a full disk never leaves half of one behind."""

from __future__ import annotations

import json
import math
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from pruner_ms.errors import WorkDirError


def disk_fault(path: Path, error: OSError, doing: str = "write") -> WorkDirError:
    """The error of a failed write: what, why, how many bytes are free, and what to do."""
    reason = error.strerror or str(error)
    return WorkDirError(
        f"cannot {doing} {path}: {reason} ({free_bytes(path)} bytes free there); "
        "free some space or give another --work-dir"
    )


def free_bytes(path: Path) -> str:
    """How many bytes are free where a file is or would be, in words."""
    for place in (path, *path.parents):
        with suppress(OSError):
            return f"{shutil.disk_usage(place).free:,}"
    return "an unknown number of"


def atomic_write(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole: temporary file beside it, fsync, rename.

    Raises
    ------
    WorkDirError
        The file system refuses; the old file is as it was.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise disk_fault(path, error) from error


def write_json(path: Path, value: Any) -> None:
    """`atomic_write` of a JSON value; NaN and infinity are refused with a ValueError."""
    atomic_write(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:24]} is out of range")
    return value


def strict_loads(text: str | bytes) -> Any:
    """Parse JSON as the standard has it: bare NaN and Infinity are errors.

    Numbers that a float cannot hold are errors, too: they could not be written again.

    Raises
    ------
    ValueError
        Not JSON, not UTF-8 (without a mark at the beginning), or nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")  # `json` would guess the encoding
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def whole_lines(path: Path) -> int:
    """Cut a torn last line off a file of lines; the number of bytes cut."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end == len(data):
        return 0
    with path.open("r+b") as file:
        file.truncate(end)
    return len(data) - end
