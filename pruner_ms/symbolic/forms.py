"""Affine forms over leaves: sums of `stride * leaf + constant`, with one value per row.

Notation
--------
leaf   an atomic iteration variable 0..extent-1; splitting a loop replaces its leaf by several
form   mapping leaf -> stride, the constant under the key None
N      rows; a number is an int (the same in all rows) or int64 (N,); masks likewise
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from pruner_ms.types import BoolArray, IntArray

Num: TypeAlias = "int | IntArray"
Mask: TypeAlias = "bool | BoolArray"


class Leaf:
    """An atomic iteration variable.

    Attributes
    ----------
    extent
        Iterations, a number.
    reduction
        Whether it stands for (a part of) a reduction axis.
    """

    __slots__ = ("extent", "reduction")

    def __init__(self, extent: Num, reduction: bool) -> None:
        self.extent = extent
        self.reduction = reduction


Form: TypeAlias = "Mapping[Leaf | None, Num]"


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
    return a if isinstance(a, bool) else bool(a.any())


def certain(a: Mask) -> bool:
    """Whether it holds in every row."""
    return a if isinstance(a, bool) else bool(a.all())


def compare(a: Num, b: Num) -> Mask:
    """`a == b`, row by row."""
    return a == b


def select(mask: Mask, a: Num, b: Num) -> Num:
    """`a if mask else b`, row by row."""
    if isinstance(mask, bool):
        return a if mask else b
    if a is b:
        return a
    return np.where(mask, a, b)


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


def times(a: Num, b: Num) -> Num:
    """Product that costs nothing when a factor is the int 1."""
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(b, int) and b == 1:
        return a
    return a * b


def column(value: Num, rows: int) -> IntArray:
    """A number as int64 (N,)."""
    if isinstance(value, int):
        return np.broadcast_to(np.int64(value), (rows,))
    return value


def mask_column(value: Mask, rows: int) -> BoolArray:
    """A mask as bool (N,)."""
    if isinstance(value, bool):
        return np.broadcast_to(np.bool_(value), (rows,))
    return value


def add(a: Form, b: Form, sign: int = 1) -> Form:
    """Sum of two forms, the second times `sign`."""
    total: dict[Leaf | None, Num] = dict(a)
    for leaf, stride in b.items():
        scaled = stride if sign == 1 else stride * sign
        total[leaf] = total[leaf] + scaled if leaf in total else scaled
    return total


def scale(form: Form, factor: Num) -> Form:
    """A form times a number."""
    return {leaf: times(stride, factor) for leaf, stride in form.items()}


def constant(form: Form) -> Num | None:
    """Value of a form without leaves, else None."""
    if any(leaf is not None for leaf in form):
        return None
    return form.get(None, 0)


def reach(form: Form) -> Num:
    """Values from 0 to the largest one that a form with strides of 0 or more takes."""
    total: Num = 1
    for leaf, stride in form.items():
        total = total + (stride if leaf is None else stride * (leaf.extent - 1))
    return total


def divide(form: Form, width: Num) -> tuple[Form, Form, Mask]:
    """Quotient, remainder, and rows in which the two are exact.

    Leaves whose stride is a multiple of `width` go to the quotient, the others to the remainder;
    that is the floor division exactly when the remainder stays below `width`.
    """
    high: dict[Leaf | None, Num] = {}
    low: dict[Leaf | None, Num] = {}
    rest: Num = form.get(None, 0) % width
    if None in form:
        high[None] = form[None] // width
        low[None] = rest
    shift = width.bit_length() - 1 if isinstance(width, int) and not width & (width - 1) else -1
    for leaf, stride in form.items():
        if leaf is None:
            continue
        # masks and shifts are several times faster than divisions
        whole: Mask = compare(stride & width - 1 if shift >= 0 else stride % width, 0)
        if possible(whole):
            quotient = stride >> shift if shift >= 0 else stride // width
            if certain(whole):
                high[leaf] = quotient
                continue
            high[leaf] = select(whole, quotient, 0)
        low[leaf] = select(whole, 0, stride)
        rest = rest + low[leaf] * (leaf.extent - 1)
    return high, low, rest < width
