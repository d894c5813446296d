"""TVM's table of global functions and of error classes, reachable while `import tvm` is under way.

`paths` needs a whole TVM; what runs inside TVM's own import (the registry's hook) needs only this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def get_global(name: str) -> Any:
    """The global function of that name, None when there is none."""
    try:
        from tvm_ffi import get_global_func
    except ImportError:
        from tvm._ffi import get_global_func
    return get_global_func(name, allow_missing=True)


def set_global(name: str, function: Callable[..., Any]) -> None:
    """Register a global function, in the place of the one that has the name."""
    try:
        from tvm_ffi import register_global_func
    except ImportError:
        from tvm._ffi import register_func as register_global_func
    register_global_func(name, function, override=True)


def register_error_class(name: str, cls: type[Exception]) -> None:
    """Keep an exception's class on its way through TVM's C++ (RuntimeError otherwise)."""
    try:
        from tvm_ffi import register_error
    except ImportError:
        return
    register_error(name, cls)
