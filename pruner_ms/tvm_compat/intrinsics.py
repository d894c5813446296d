"""Import TVM's tensor intrinsics without paying 8-16 seconds of `inspect.stack()`.

Every `TuneContext` and, since 0.23, every worker of the stock builder imports `tensor_intrin`, and
its `@T.prim_func` decorators call `inspect.stack()` some 500 times, each reading source files for
every frame. Only the innermost frames are ever looked at, so the others need no source.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

NAMES = ("tvm.s_tir.tensor_intrin", "tvm.tir.tensor_intrin")
_WITH_SOURCE = 6
"""Frames that keep their source lines: the decorator looks at the fifth at most."""


def _cheap_stack(context: int = 1) -> list[inspect.FrameInfo]:
    frame: FrameType | None = sys._getframe(1)
    found: list[inspect.FrameInfo] = []
    while frame is not None:
        if len(found) < _WITH_SOURCE:
            found.append(inspect.FrameInfo(frame, *inspect.getframeinfo(frame, context)))
        else:
            code = frame.f_code
            found.append(
                inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None)
            )
        frame = frame.f_back
    return found


@contextmanager
def cheap_stack() -> Iterator[None]:
    """Replace `inspect.stack` by a cheap one inside the block, and put it back at the end."""
    original = inspect.stack
    inspect.stack = _cheap_stack
    try:
        yield
    finally:
        inspect.stack = original


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
