"""Files in the user's cache: written completely or not at all; a failure is ignored."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_cached(path: Path, data: bytes) -> None:
    """Write a file for later runs; where that cannot be, nothing is left behind."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
