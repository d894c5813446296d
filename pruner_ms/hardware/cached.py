"""Files of the user's cache: there whole or not at all, and no reason to stop."""

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
