"""Arithmetic on columns: one number per row, or one for all rows.

What does not vary between rows stays a Python number, so that most of a nest costs nothing; what
does is float32: half the memory traffic of float64, and 1e-7 is far below what a draft knows.

Notation
--------
N      rows
Num    float, or float32 (N,)
Mask   bool, or bool (N,)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pruner_ms.types import BoolArray, FloatArray, IntArray

# float32; numpy's stubs cannot say what a product with a Python float is
Column: TypeAlias = npt.NDArray[Any]
Num: TypeAlias = "float | Column"
Mask: TypeAlias = "bool | BoolArray"
Whole: TypeAlias = "int | IntArray"


def _same(values: npt.NDArray[Any]) -> bool:
    """Whether an array is one value, repeated without memory (`np.broadcast_to`)."""
    return values.strides == (0,) and len(values) > 0


def number(values: npt.NDArray[Any]) -> Num:
    """An array (N,) as a number."""
    return float(values[0]) if _same(values) else values.astype(np.float32)


def whole(values: IntArray) -> Whole:
    """An integer array (N,) as it is, or one integer."""
    return int(values[0]) if _same(values) else values


def magnitude(steps: Whole) -> Whole:
    """Absolute value."""
    return np.abs(steps) if isinstance(steps, np.ndarray) else abs(steps)


def flag(values: BoolArray) -> Mask:
    """A boolean array (N,) as a mask; one that holds everywhere or nowhere is a bool."""
    if _same(values):
        return bool(values[0])
    if not values.any():
        return False
    return True if values.all() else values


def column(value: Num, rows: int) -> FloatArray:
    """A number as float64 (N,)."""
    if isinstance(value, float | int):
        return np.full(rows, float(value))
    return value.astype(np.float64)


def both(a: Mask, b: Mask) -> Mask:
    """`a and b`, row by row."""
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return a & b


def either(a: Mask, b: Mask) -> Mask:
    """`a or b`, row by row."""
    if isinstance(a, bool):
        return True if a else b
    if isinstance(b, bool):
        return True if b else a
    return a | b


def negate(a: Mask) -> Mask:
    """`not a`, row by row."""
    return not a if isinstance(a, bool) else ~a


def possible(a: Mask) -> bool:
    """Whether it holds in some row."""
    # several times faster than `any`, which goes through Python
    return a if isinstance(a, bool) else bool(np.count_nonzero(a))


def truth(a: Any) -> Mask:
    """The outcome of a comparison of numbers as a mask."""
    return a if isinstance(a, np.ndarray) else bool(a)


def select(mask: Mask, a: Num, b: Num) -> Num:
    """`a if mask else b`, row by row."""
    if isinstance(mask, bool):
        return a if mask else b
    if a is b:
        return a
    if isinstance(a, np.ndarray) and isinstance(b, float | int) and b == 0:
        return a * mask
    # `np.where` branches, and costs twenty multiplications on a random mask
    one, other = _bits(a), _bits(b)
    taken = mask.astype(np.int32)
    np.negative(taken, out=taken)
    taken &= one ^ other
    taken ^= other
    return taken.view(np.float32)


def _bits(value: Num) -> Any:
    """The bits of float32 numbers."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float32, copy=False).view(np.int32)
    return np.float32(value).view(np.int32)


def larger(a: Num, b: Num) -> Num:
    """The larger of two numbers, row by row."""
    if isinstance(a, float | int) and isinstance(b, float | int):
        return max(a, b)
    return np.maximum(a, b)


def smaller(a: Num, b: Num) -> Num:
    """The smaller of two numbers, row by row."""
    if isinstance(a, float | int) and isinstance(b, float | int):
        return min(a, b)
    return np.minimum(a, b)


def ceiling(a: Num) -> Num:
    """`ceil(a)`, row by row."""
    return float(np.ceil(a)) if isinstance(a, float | int) else np.ceil(a)


def times(a: Num, b: Num) -> Num:
    """Product that costs nothing when a factor is 1."""
    if isinstance(a, float | int) and a == 1:
        return b
    if isinstance(b, float | int) and b == 1:
        return a
    return a * b


def total(values: Iterable[Num]) -> Num:
    """Sum of numbers; 0.0 of none."""
    found: Num = 0.0
    for value in values:
        found = value if isinstance(found, float) and found == 0.0 else found + value
    return found


def overlapped(times_: Sequence[Num], share: float) -> Num:
    """The largest of several times that run side by side, and a share of the others."""
    longest = times_[0]
    for one in times_[1:]:
        longest = larger(longest, one)
    return longest * (1.0 - share) + total(times_) * share
