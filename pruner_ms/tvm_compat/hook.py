"""Run code around the import of a module, without importing it. Needs no TVM."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

META_SCHEDULE = ("tvm.s_tir.meta_schedule", "tvm.meta_schedule")
"""What the package is called: 0.24 and later, and before."""

Around = Callable[[ModuleType], AbstractContextManager[None]]


class ImportHook(MetaPathFinder):
    """A finder that finds nothing itself: it lets the others find, and wraps the loading.

    Parameters
    ----------
    around
        For each full module name, a context manager (given the empty module) inside which the
        module's code is executed.
    """

    def __init__(self, around: Mapping[str, Around]) -> None:
        self._around = dict(around)

    def install(self) -> None:
        """Put the hook first, once."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Take the hook away; modules that are loaded stay as they are."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, its loader wrapped; None for modules of no interest."""
        if fullname not in self._around:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find else None
            if spec is not None:
                _wrap(spec, self._around[fullname])
                return spec
        return None


def _wrap(spec: ModuleSpec, around: Around) -> None:
    """Shadow `exec_module` on the loader's instance: its class, and what asks for it, stay."""
    loader: Any = spec.loader
    if loader is None or isinstance(loader, type):
        return
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        with around(module):
            execute(module)

    loader.exec_module = exec_module
