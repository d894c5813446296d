"""A pool's folder for temporary files, and the removal of those that killed tuners left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "pruner-ms-"
_NEW = "new-pruner-ms-"
_LOCK = "lock"


class Home:
    """A folder that is its owner's as long as the owner lives: it holds a lock on a file in it.

    The kernel lets go of the lock when the owner dies, so the next tuner of the same user can tell
    an abandoned folder and removes it.

    Attributes
    ----------
    path
        The folder.
    scratch
        A folder in it, for the workers' `TMPDIR`.
    """

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir())
        sweep(root)
        fresh = Path(tempfile.mkdtemp(prefix=_NEW))  # not swept under this name: no lock yet
        self._lock = os.open(fresh / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = fresh.rename(root / fresh.name.removeprefix("new-"))
        self.scratch = self.path / "tmp"
        self.scratch.mkdir()

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)
        self._lock = -1


def sweep(root: Path) -> list[Path]:
    """Remove this user's folders in `root` whose owner is dead; return them."""
    found: list[Path] = []
    for folder in root.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or alive: the lock is held
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                found.append(folder)
            finally:
                os.close(lock)
    return found
