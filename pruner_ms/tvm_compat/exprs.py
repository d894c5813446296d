"""Numbers out of TVM's integer expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from pruner_ms.tvm_compat.paths import structural_equal

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
    """Type of an expression, "float32x8" (`ty` from 0.27 on); empty where it has none."""
    return str(expr.dtype if hasattr(expr, "dtype") else getattr(expr, "ty", ""))


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


def is_variable(expr: Any) -> bool:
    """Whether an integer expression is a variable, and nothing more."""
    return type(expr).__name__ in ("Var", "SizeVar")


_WITHOUT = ("Add", "Sub", "Mul", "Min", "Max")


def has_quotient(expr: Any) -> bool:
    """Whether there may be a quotient or a remainder in an integer expression."""
    kind = type(expr).__name__
    if kind == "Cast":
        return has_quotient(expr.value)
    if kind in _WITHOUT:
        return has_quotient(expr.a) or has_quotient(expr.b)
    return kind != "IntImm" and not is_variable(expr)


def same_place(load: Any, store: Any) -> bool:
    """Whether a load is of the element that a statement stores, by its indices."""
    stored = getattr(store, "indices", ())
    return len(stored) == len(load.indices) and all(map(structural_equal, stored, load.indices))
