"""The global functions that Relax's passes `MetaScheduleTuneIRMod` and `MetaScheduleTuneTIR` call.

C++ (`relax/transform/meta_schedule.cc`) looks them up once and keeps them, and passes positional
arguments only, so names cannot be given there. A dispatcher takes the place of each; it calls the
stock function when nothing is set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from pruner_ms.tvm_compat.ffi import get_global, set_global

Settings = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Entry:
    """One global function.

    Attributes
    ----------
    name
        The global function's last name, which is also the public function's.
    module
        Submodule of the public function.
    parameters
        What C++ passes, in order.
    keywords
        Where the stock global function differs from the public one's defaults.
    """

    name: str
    module: str
    parameters: tuple[str, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)


_KEPT = "pruner_ms"
"""Prefix of the names under which functions are kept alive."""
_COMMON = ("target", "work_dir", "max_trials_global")
ENTRIES = (
    Entry(
        "tune_relax",
        "relax_integration",
        ("mod", "params", *_COMMON, "max_trials_per_task", "op_names"),
    ),
    Entry("tune_tir", "tir_integration", ("mod", *_COMMON), {"task_scheduler": "round-robin"}),
)


class PassFunctions:
    """The dispatchers, and the stock functions that they stand before.

    Both are also kept under names of ours for as long as the process lives. C++ may hold either in
    a static variable. If that were the last reference, it would be dropped after Python's end, and
    the process would crash at exit.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stock: dict[str, Any] = {}

    def install(self, ms: ModuleType) -> None:
        """Take the place of the stock functions, once."""
        prefix = "tvm." + ms.__name__.removeprefix("tvm.")
        for entry in ENTRIES:
            name = f"{prefix}.{entry.name}"
            stock = None if name in self._stock else get_global(name)
            if stock is not None:
                self._stock[name] = stock
                if get_global(f"{_KEPT}.{name}") is None:
                    set_global(f"{_KEPT}.stock.{name}", stock)
                    set_global(f"{_KEPT}.{name}", _dispatcher(entry, ms, stock, self._settings))
                set_global(name, get_global(f"{_KEPT}.{name}"))

    def remove(self) -> None:
        """Put the stock functions back. A dispatcher that C++ holds forwards to them."""
        for name, stock in self._stock.items():
            set_global(name, stock)
        self._stock.clear()


def _dispatcher(entry: Entry, ms: ModuleType, stock: Any, settings: Settings) -> Callable[..., Any]:
    def dispatch(*args: Any) -> Any:
        if not settings():
            return stock(*args)
        from pruner_ms.tvm_compat.paths import as_int  # needs the whole of TVM: not at install

        given = dict(zip(entry.parameters, args, strict=False)) | dict(entry.keywords)
        for name in ("max_trials_global", "max_trials_per_task"):
            if given.get(name) is not None:
                given[name] = as_int(given[name])
        getattr(sys.modules[f"{ms.__name__}.{entry.module}"], entry.name)(**given)
        return args[0]

    return dispatch
