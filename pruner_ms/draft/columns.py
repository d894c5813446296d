"""Arithmetic on columns: one number per row, or one for all rows.

A value that is the same in all rows stays a Python number, so that most of a nest costs nothing;
others are float32: half the memory traffic of float64, and 1e-7 is far below a draft's accuracy.

Notation
--------
N      rows
Num    float, or float32 (N,)
Mask   bool, or bool (N,) (`symbolic/rows.py`)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pruner_ms.symbolic.program import CHUNK
from pruner_ms.symbolic.rows import Mask
from pruner_ms.types import BoolArray, FloatArray, IntArray

# float32; numpy's stubs cannot say what a product with a Python float is
Column: TypeAlias = npt.NDArray[Any]
Num: TypeAlias = "float | Column"
Int: TypeAlias = "int | IntArray"


def repeated(values: npt.NDArray[Any]) -> bool:
    """Whether an array is one value, repeated without memory (`np.broadcast_to`)."""
    return values.strides == (0,) and len(values) > 0


def number(values: npt.NDArray[Any]) -> Num:
    """An array (N,) as a number."""
    return float(values[0]) if repeated(values) else values.astype(np.float32)


def integer(values: IntArray) -> Int:
    """An integer array (N,) as it is, or one integer."""
    return int(values[0]) if repeated(values) else values


def flag(values: BoolArray) -> Mask:
    """A boolean array (N,) as a mask; one that holds everywhere or nowhere is a bool."""
    if repeated(values):
        return bool(values[0])
    if not values.any():
        return False
    return True if values.all() else values


def column(value: Num, rows: int) -> FloatArray:
    """A number as float64 (N,)."""
    if not isinstance(value, np.ndarray):
        return np.full(rows, float(value))
    return value.astype(np.float64)


def stacked(rows: int, values: Sequence[Num]) -> FloatArray:
    """Numbers as float64 (len(values), N)."""
    out = np.empty((len(values), rows))
    for i, value in enumerate(values):
        out[i] = value
    return out


def truth(a: Any) -> Mask:
    """The outcome of a comparison of numbers as a mask."""
    return a if isinstance(a, np.ndarray) else bool(a)


def select(mask: Mask, a: Num, b: Num) -> Num:
    """`a if mask else b`, row by row."""
    if not isinstance(mask, np.ndarray):
        return a if mask else b
    if a is b:
        return a
    if isinstance(a, np.ndarray) and not isinstance(b, np.ndarray) and b == 0:
        return a * mask
    # `np.where` branches, and costs twenty multiplications on a random mask
    one, other = _bits(a), _bits(b)
    apart = one ^ other
    if isinstance(apart, np.ndarray):
        apart *= mask
    else:
        apart = apart * mask
    apart ^= other
    selected: Column = apart.view(np.float32)
    return selected


def split_by(mask: Mask, a: Num) -> tuple[Num, Num]:
    """A number split in two columns: where the mask holds, and where not; each is 1 elsewhere."""
    if not isinstance(mask, np.ndarray) or not isinstance(a, np.ndarray):
        return select(mask, a, 1.0), select(mask, 1.0, a)
    inside = select(mask, a, 1.0)
    outside = _bits(a) ^ _bits(1.0)
    outside ^= _bits(inside)
    return inside, outside.view(np.float32)


_SINGLE = np.dtype(np.float32)


def _bits(value: Num) -> Any:
    """The bits of float32 numbers."""
    if isinstance(value, np.ndarray):
        return (value if value.dtype == _SINGLE else value.astype(_SINGLE)).view(np.int32)
    return _bits_of(value)


@lru_cache(maxsize=256)
def _bits_of(value: float) -> np.int32:
    bits: np.int32 = np.float32(value).view(np.int32)
    return bits


def larger(a: Num, b: Num) -> Num:
    """The larger of two numbers, row by row."""
    if isinstance(a, np.ndarray):
        return np.maximum(a, b if isinstance(b, np.ndarray) else _beside(b, a))
    return np.maximum(_beside(a, b), b) if isinstance(b, np.ndarray) else max(a, b)


def smaller(a: Num, b: Num) -> Num:
    """The smaller of two numbers, row by row."""
    if isinstance(a, np.ndarray):
        return np.minimum(a, b if isinstance(b, np.ndarray) else _beside(b, a))
    return np.minimum(_beside(a, b), b) if isinstance(b, np.ndarray) else min(a, b)


def _beside(value: float, other: Column) -> Num:
    """A number in the form in which it is compared with an array."""
    # numpy takes four times as long for an array and a number as for two arrays
    return _filled(value)[: len(other)] if len(other) <= CHUNK else value


@lru_cache(maxsize=64)
def _filled(value: float) -> Column:
    return np.full(CHUNK, value, np.float32)


def ceiling(a: Num) -> Num:
    """`ceil(a)`, row by row."""
    return np.ceil(a) if isinstance(a, np.ndarray) else float(np.ceil(a))


def times(a: Num, b: Num) -> Num:
    """Product that costs nothing when a factor is 1."""
    if not isinstance(a, np.ndarray) and a == 1:
        return b
    if not isinstance(b, np.ndarray) and b == 1:
        return a
    return a * b


def total(values: Iterable[Num]) -> Num:
    """Sum of numbers; 0.0 of none."""
    result: Num = 0.0
    owned = False
    for value in values:
        if isinstance(result, float) and result == 0.0:
            result = value
        elif owned and (not isinstance(value, np.ndarray) or value.dtype == _SINGLE):
            result += value  # an array of this sum alone
        else:
            result = result + value
            owned = isinstance(result, np.ndarray) and result.dtype == _SINGLE
    return result


def overlapped(times_: Sequence[Num], share: Num) -> Num:
    """The largest of several times that run side by side, and a share of the others."""
    longest = times_[0]
    for one in times_[1:]:
        longest = larger(longest, one)
    return longest * (1.0 - share) + total(times_) * share
