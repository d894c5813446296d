"""Which compiler TVM's CUDA code goes through. Needs no TVM.

TVM takes NVRTC unless it is told otherwise (`support/nvcc.py`), and that needs the package
cuda-bindings, which TVM does not ask for: with a toolkit and without the package every build fails.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

MODE = "TVM_CUDA_COMPILE_MODE"
"""Variable by which TVM is told: "nvrtc" or "nvcc"."""

HOMES = ("CUDA_HOME", "CUDA_PATH")
"""Variables that name the toolkit's folder."""

USUAL = Path("/usr/local/cuda")
"""Where TVM looks for a toolkit that no variable names."""


def named() -> list[Path]:
    """Folders that the variables name as a toolkit's."""
    return [Path(os.environ[name]) for name in HOMES if os.environ.get(name)]


def nvcc() -> str | None:
    """Path of nvcc: on PATH, else in a toolkit's folder; None if it is nowhere."""
    places = [None, *(str(home / "bin") for home in (*named(), USUAL))]
    paths = (shutil.which("nvcc", path=place) for place in places)
    return next((path for path in paths if path is not None), None)


def has_bindings() -> bool:
    """Whether `cuda.bindings` can be imported; nothing of it is."""
    # the parent is found by itself: `find_spec` of a name with a dot would import it
    with suppress(ImportError, ValueError):
        parent = find_spec("cuda")
        places = None if parent is None else parent.submodule_search_locations
        if places:
            return PathFinder.find_spec("cuda.bindings", list(places)) is not None
    return False


def compiler() -> str | None:
    """What compiles, "nvrtc" or "nvcc"; None where the one that is asked for is not there."""
    usable = {"nvrtc": has_bindings(), "nvcc": nvcc() is not None}
    asked = os.environ.get(MODE, "").lower()
    wanted = [asked] if asked else list(usable)
    return next((name for name in wanted if usable.get(name)), None)


def choose() -> None:
    """Let TVM take nvcc where it is there and NVRTC cannot be used; processes started later, too.

    Who has set `MODE` has chosen. TVM calls nvcc by its name: its folder is put at the end of PATH
    where it is not on it.
    """
    if os.environ.get(MODE):
        return
    nvcc_path = nvcc()
    if nvcc_path is None or has_bindings():
        return
    _set(MODE, "nvcc")
    if shutil.which("nvcc") is None:
        before = os.environ.get("PATH", os.defpath)
        _set("PATH", os.pathsep.join([before, str(Path(nvcc_path).parent)]))


_changed: dict[str, tuple[str | None, str]] = {}
"""What a variable was before `choose`, and what it was made."""


def _set(name: str, value: str) -> None:
    _changed[name] = (os.environ.get(name), value)
    os.environ[name] = value


def undo() -> None:
    """Put back what `choose` has changed, where nobody has changed it since."""
    while _changed:
        name, (before, ours) = _changed.popitem()
        if os.environ.get(name) != ours:
            continue
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
