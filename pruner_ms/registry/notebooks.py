"""In a notebook TVM draws its table of tasks with pandas, which many kernels do not have.

TVM asks the global function `using_ipython` whether to draw it; in a notebook without pandas this
ends the tuning with an error. Our function stands before TVM's: it says yes only where the table
can be drawn, else TVM logs it, as in any other process. During a session, which shows its own
progress, it says no.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from pruner_ms.tvm_compat.ffi import get_global, set_global

_NEEDED = ("pandas", "IPython.display")
"""What `print_interactive_table` imports (tvm `meta_schedule/utils.py`)."""

_sessions = 0


@contextmanager
def without_tables() -> Iterator[None]:
    """Within, TVM draws no tables, in a notebook neither."""
    global _sessions
    _sessions += 1
    try:
        yield
    finally:
        _sessions -= 1


class Tables:
    """The function that stands before TVM's `using_ipython`, and TVM's own."""

    def __init__(self) -> None:
        self._stock: dict[str, Any] = {}

    def install(self, ms: ModuleType) -> None:
        """Take the place of the stock function, once."""
        name = f"{ms.__name__.removeprefix('tvm.')}.using_ipython"
        stock = None if name in self._stock else get_global(name)
        if stock is not None:
            self._stock[name] = stock
            set_global(name, lambda: not _sessions and bool(stock()) and _drawable())

    def remove(self) -> None:
        """Put the stock function back."""
        for name, stock in self._stock.items():
            set_global(name, stock)
        self._stock.clear()


def _drawable() -> bool:
    try:
        for name in _NEEDED:
            import_module(name)
    except Exception:  # a package that is there and broken raises anything; TVM logs the table then
        return False
    return True
