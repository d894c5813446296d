"""Load a built candidate: its objects are linked by the linker itself, in two milliseconds.

TVM's loader starts the C++ compiler for that, which takes twenty. What the bare linker leaves open
(a function of libgcc or of the C++ library, say) is noticed when the library is opened, since all
symbols are bound then; such an archive goes TVM's way, as everything else does.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_TIMEOUT_SECONDS = 10.0


def load(artifact: str, load_module: Callable[[str], Any]) -> Any:
    """The module of an artifact.

    Parameters
    ----------
    artifact
        Path of what the builder wrote.
    load_module
        TVM's loader.
    """
    if artifact.endswith(".tar"):
        with TemporaryDirectory(prefix="link-", ignore_cleanup_errors=True) as folder:
            library = linked(artifact, Path(folder))
            if library is not None:
                with suppress(Exception):  # of any kind: TVM's own way tells what is wrong
                    return load_module(str(library))
    return load_module(artifact)


def linked(artifact: str, folder: Path) -> Path | None:
    """A shared library in a folder, of an archive of objects; None where that does not work."""
    linker = _linker()
    if linker is None:
        return None
    try:
        with tarfile.open(artifact) as archive:
            names = archive.getnames()
            if not names or not all(name.endswith(".o") for name in names):
                return None
            archive.extractall(folder, filter="data")
        library = folder / "candidate.so"
        objects = [str(folder / name) for name in names]
        subprocess.run(
            [linker, "-shared", "-z", "now", "-o", str(library), *objects],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, tarfile.TarError, subprocess.SubprocessError):
        return None
    return library


@cache
def _linker() -> str | None:
    return shutil.which("ld")
