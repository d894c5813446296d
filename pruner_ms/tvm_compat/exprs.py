"""Numbers out of TVM's integer expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Min": min,
    "Max": max,
}


def dtype_of(expr: Any) -> str:
    """Type of an expression (`ty` from 0.26 on): "float32", "float32x8"."""
    ty = getattr(expr, "ty", None)
    return str(expr.dtype if ty is None else ty.dtype)


def number(expr: Any, values: Mapping[Any, int]) -> int | None:
    """Value of an integer expression; None where it hangs on more than the given variables."""
    kind = type(expr).__name__
    if kind == "IntImm":
        return int(expr.value)
    if kind in ("Var", "SizeVar"):
        return values.get(expr)
    if kind == "Cast":
        return number(expr.value, values)
    if kind in _BINARY:
        a, b = number(expr.a, values), number(expr.b, values)
        return None if a is None or b is None else _BINARY[kind](a, b)
    return None
