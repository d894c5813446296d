"""Arithmetic on rows: one number, or one truth value, for each row or for all of them.

Notation
--------
N      rows
Num    int (the same in all rows), or integers (N,)
Mask   bool (the same in all rows), or bool (N,)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.types import BoolArray, IntArray

Num: TypeAlias = "int | IntArray"


Mask: TypeAlias = "bool | BoolArray"


_INTEGER: ContextVar[type[np.signedinteger[Any]]] = ContextVar("integer", default=np.int64)
"""Type of the arrays that are made of Python integers."""


@contextmanager
def integers_as(kind: type[np.signedinteger[Any]]) -> Iterator[None]:
    """Make arrays of a type: int32 is twice as fast where all numbers fit into it."""
    token = _INTEGER.set(kind)
    try:
        yield
    finally:
        _INTEGER.reset(token)


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


def without(a: Mask, b: Mask) -> Mask:
    """`a and not b`, row by row."""
    if isinstance(b, bool):
        return False if b else a
    if isinstance(a, bool):
        return ~b if a else False
    return a > b


def possible(a: Mask) -> bool:
    """Whether it holds in some row."""
    # several times faster than `any`, which goes through Python
    return a if isinstance(a, bool) else bool(np.count_nonzero(a))


def certain(a: Mask) -> bool:
    """Whether it holds in every row."""
    return a if isinstance(a, bool) else np.count_nonzero(a) == a.size


def uniform_value(a: Num, what: str) -> int:
    """A number that is the same in all rows, as an int.

    Raises
    ------
    UnsupportedTrace
        It depends on the row; `what` names it in the message.
    """
    if not isinstance(a, int):
        raise UnsupportedTrace(f"{what} depends on decisions")
    return a


def select(mask: Mask, a: Num, b: Num) -> Num:
    """`a if mask else b`, row by row.

    By arithmetic: `np.where` branches, which on a random mask costs as much as twenty
    multiplications.
    """
    if isinstance(mask, bool):
        return a if mask else b
    if a is b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        flags = mask.astype(_INTEGER.get())
        return flags if (a, b) == (1, 0) else flags * (a - b) + b
    if isinstance(b, int) and b == 0:
        return a * mask
    if isinstance(a, int) and a == 0:
        return b * ~mask
    values: IntArray = np.subtract(a, b)
    values *= mask
    values += b
    return values


def quotient(a: Num, b: Num) -> Num:
    """`a // b`, row by row, for a divisor of 1 or more."""
    if isinstance(b, int):
        return a if b == 1 else a // b
    if not _narrow(a) or not _narrow(b):
        return a // b
    exact = a / b
    return np.floor(exact, out=exact).astype(np.int32)


def ceiling(a: Num, b: Num) -> Num:
    """`a / b` rounded up, row by row, for a divisor of 1 or more."""
    return -quotient(-a, b)


def _narrow(a: Num) -> bool:
    """Whether a division in floats is exact; it is several times faster than one in integers."""
    return abs(a) < 1 << 31 if isinstance(a, int) else a.dtype == np.int32


def remainder(a: Num, b: Num) -> Num:
    """`a % b`, row by row, for a divisor of 1 or more."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if isinstance(b, int) and not b & (b - 1):
        return a & (b - 1)
    rest: Num = a - quotient(a, b) * b
    return rest


def divides(b: Num, a: Num) -> Mask:
    """Whether `b` (1 or more) divides `a`, row by row."""
    if isinstance(b, int) or not _narrow(a) or not _narrow(b):
        return remainder(a, b) == 0
    exact = a / b
    divisible: BoolArray = exact == np.floor(exact)
    return divisible


def smaller(a: Num, b: Num) -> Num:
    """The smaller of two numbers, row by row."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return np.minimum(a, b)


def larger(a: Num, b: Num) -> Num:
    """The larger of two numbers, row by row."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return np.maximum(a, b)


def gcd(a: Num, b: Num) -> Num:
    """Greatest common divisor."""
    return math.gcd(a, b) if isinstance(a, int) and isinstance(b, int) else np.gcd(a, b)


def times(a: Num, b: Num) -> Num:
    """Product; no array is computed if a factor is the int 1 or 0."""
    if isinstance(a, int) and a in (0, 1):
        return b if a else 0
    if isinstance(b, int) and b in (0, 1):
        return a if b else 0
    return a * b


def magnitude(a: Num) -> Num:
    """Absolute value."""
    return abs(a) if isinstance(a, int) else np.abs(a)


def column(value: Num, rows: int) -> IntArray:
    """A number as int64 (N,)."""
    if isinstance(value, int):
        return np.broadcast_to(np.int64(value), (rows,))
    if len(value) != rows:  # a table's single value
        return np.broadcast_to(value, (rows,))
    return value


def mask_column(value: Mask, rows: int) -> BoolArray:
    """A mask as bool (N,)."""
    if isinstance(value, bool):
        return np.broadcast_to(np.bool_(value), (rows,))
    return value


def uniform_mask(mask: Mask) -> Mask:
    """The mask, turned into a bool if it is the same in all rows."""
    if isinstance(mask, bool):
        return mask
    count = np.count_nonzero(mask)
    return bool(count) if count in (0, len(mask)) else mask
