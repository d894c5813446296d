"""Import TVM's tensor intrinsics without paying 8-16 seconds of `inspect.stack()`.

Every `TuneContext` and, since 0.23, every worker of the stock builder imports `tensor_intrin`, and
its `@T.prim_func` decorators call `inspect.stack()` some 500 times, each reading source files for
every frame. Only the innermost frames are ever looked at, so the others need no source.

What is left, two seconds and more, is nearly all for GPUs. An x86 CPU uses the intrinsics of x86
alone; those of the others are left for whoever imports the package by itself, or for another
target. Those that have been read once on a machine are kept (`script_cache`).
"""

from __future__ import annotations

import inspect
import linecache
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from pruner_ms.tvm_compat import script_cache

NAMES = ("tvm.s_tir.tensor_intrin", "tvm.tir.tensor_intrin")
_X86, _X86_MACHINES = "x86", ("x86_64", "amd64", "i686", "i386")
_STANDS_IN = "__pruner_ms_stands_in__"
_WITH_SOURCE = 6
"""Frames that keep their source lines: the decorator looks at the fifth at most."""
_BETWEEN = script_cache.__file__
"""File of the frames between a decorated function and its decorator, which counts frames."""


def _cheap_stack(context: int = 1) -> list[inspect.FrameInfo]:
    frame: FrameType | None = sys._getframe(1)
    frames: list[inspect.FrameInfo] = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _BETWEEN:
            frame = frame.f_back
            continue
        # `getframeinfo` would look through all of sys.modules for the source; one line is enough
        source = len(frames) < _WITH_SOURCE and context > 0
        line = linecache.getline(code.co_filename, frame.f_lineno) if source else ""
        lines, index = ([line], 0) if line else (None, None)
        frames.append(
            inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, lines, index)
        )
        frame = frame.f_back
    return frames


def _cheap_getmodule(object: object, _filename: str | None = None) -> ModuleType | None:
    """`inspect.getmodule` by name; the original compares the files of all modules each time."""
    if isinstance(object, FrameType):
        return sys.modules.get(object.f_globals.get("__name__", ""))
    name = getattr(object, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    return module or _getmodule(object, _filename)


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


_LOCK = threading.RLock()
"""Keeps uses of a stand-in apart from imports of the whole package in another thread."""


def loaded() -> bool:
    """Whether the intrinsics of all devices have been imported in this process."""
    modules = (sys.modules.get(name) for name in NAMES)
    return any(module is not None and not hasattr(module, _STANDS_IN) for module in modules)


def import_intrinsics() -> None:
    """Import TVM's tensor intrinsics once, cheaply. Imports TVM."""
    if loaded():
        return
    with _LOCK, cheap_stack():
        for name in NAMES:
            try:
                spec = find_spec(name)
            except ModuleNotFoundError as error:
                if not name.startswith(error.name or ""):
                    raise
                continue
            if spec is not None:
                with script_cache.cached_scripts(
                    _words(), name, script_cache.ScriptCache("intrinsics", _sources(spec))
                ):
                    import_module(name)
                return


def _sources(spec: ModuleSpec) -> list[Path]:
    """Files of a package."""
    folders = spec.submodule_search_locations or ()
    return [path for folder in folders for path in Path(folder).glob("*.py")]


def _words() -> Any:
    """The module that the intrinsics' sources call `T`."""
    script = import_module("tvm.script")
    return script.tirx if hasattr(script, "tirx") else script.tir


def for_x86(target: Any) -> bool:
    """Whether a `Target` is an x86 CPU, which has no use for other devices' intrinsics."""
    kind = getattr(getattr(target, "kind", None), "name", None)
    if str(kind) != "llvm":
        return False
    triple = str(dict(target.attrs).get("mtriple", "")) or platform.machine()
    return triple.partition("-")[0].lower() in _X86_MACHINES


@contextmanager
def enough_for(target: Any) -> Iterator[None]:
    """Import the intrinsics that a target uses; inside the block the package has only these.

    For an x86 CPU, a module with x86's intrinsics stands in under the package's name until the end
    of the block; then the package can be imported. For other targets it is imported as a whole.
    """
    with _LOCK:
        yield from _enough_for(target)


def _enough_for(target: Any) -> Iterator[None]:
    name = next((n for n in NAMES if n.rpartition(".")[0] in sys.modules), None)
    if hasattr(sys.modules.get(name or ""), _STANDS_IN):  # this thread is inside the block
        if for_x86(target):
            yield
            return
        del sys.modules[str(name)]
    spec = find_spec(name) if name is not None and not loaded() and for_x86(target) else None
    if name is None or spec is None:
        import_intrinsics()
        yield
        return
    stand_in = ModuleType(name)
    setattr(stand_in, _STANDS_IN, True)
    stand_in.__spec__ = spec
    stand_in.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[name] = stand_in
    try:
        with cheap_stack():
            import_module(f"{name}.{_X86}")
        yield
    finally:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]


def adopt(package: ModuleType) -> None:
    """Make submodules that were imported before their package its attributes."""
    prefix = package.__name__ + "."
    for name, module in list(sys.modules.items()):
        tail = name.removeprefix(prefix)
        if name != tail and "." not in tail and not hasattr(package, tail):
            setattr(package, tail, module)
