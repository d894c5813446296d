"""Import TVM's tensor intrinsics without paying 8-16 seconds of `inspect.stack()`.

Every `TuneContext` and, since 0.23, every worker of the stock builder imports `tensor_intrin`, and
its `@T.prim_func` decorators call `inspect.stack()` some 500 times, each reading source files for
every frame. Only the innermost frames are ever looked at, so the others need no source.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType, ModuleType

NAMES = ("tvm.s_tir.tensor_intrin", "tvm.tir.tensor_intrin")
_WITH_SOURCE = 6
"""Frames that keep their source lines: the decorator looks at the fifth at most."""


def _cheap_stack(context: int = 1) -> list[inspect.FrameInfo]:
    frame: FrameType | None = sys._getframe(1)
    found: list[inspect.FrameInfo] = []
    while frame is not None:
        code = frame.f_code
        # `getframeinfo` would look through all of sys.modules for the source; one line is enough
        source = len(found) < _WITH_SOURCE and context > 0
        line = linecache.getline(code.co_filename, frame.f_lineno) if source else ""
        lines, index = ([line], 0) if line else (None, None)
        found.append(
            inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, lines, index)
        )
        frame = frame.f_back
    return found


def _cheap_getmodule(object: object, _filename: str | None = None) -> ModuleType | None:
    """`inspect.getmodule` by name; the original compares the files of all modules each time."""
    if isinstance(object, FrameType):
        return sys.modules.get(object.f_globals.get("__name__", ""))
    name = getattr(object, "__module__", None)
    found = sys.modules.get(name) if isinstance(name, str) else None
    return found or _getmodule(object, _filename)


_getmodule = inspect.getmodule


@contextmanager
def cheap_stack() -> Iterator[None]:
    """Make `inspect` cheap inside the block, and put its functions back at the end."""
    originals = (inspect.stack, inspect.getmodule)
    inspect.stack, inspect.getmodule = _cheap_stack, _cheap_getmodule
    try:
        yield
    finally:
        inspect.stack, inspect.getmodule = originals


def loaded() -> bool:
    """Whether the intrinsics have been imported in this process."""
    return any(name in sys.modules for name in NAMES)


def import_intrinsics() -> None:
    """Import TVM's tensor intrinsics once, cheaply. Imports TVM."""
    if loaded():
        return
    with cheap_stack():
        for name in NAMES:
            try:
                import_module(name)
            except ModuleNotFoundError as error:
                if not name.startswith(error.name or ""):
                    raise
                continue
            return
