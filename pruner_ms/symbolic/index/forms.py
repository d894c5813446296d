"""Affine forms over leaves: sums of `stride * leaf + constant`, with one value per row.

Notation
--------
leaf   an atomic iteration variable 0..extent-1; splitting a loop replaces its leaf by several
form   mapping leaf -> stride, the constant under the key None
N      rows; a number is an int (the same in all rows) or an integer array (N,); masks likewise
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    certain,
    divides,
    possible,
    quotient,
    remainder,
    select,
    times,
)


class Leaf:
    """An atomic iteration variable.

    Attributes
    ----------
    extent
        Iterations, a number.
    reduction
        Whether it is (a part of) a reduction axis.
    """

    __slots__ = ("_last", "extent", "reduction")

    def __init__(self, extent: Num, reduction: bool) -> None:
        self.extent = extent
        self.reduction = reduction
        self._last: tuple[Num, Num] | None = None

    @property
    def last(self) -> Num:
        """Its largest value, the extent less 1, computed once."""
        if self._last is None or self._last[0] is not self.extent:
            self._last = self.extent, self.extent - 1
        return self._last[1]


Form: TypeAlias = "Mapping[Leaf | None, Num]"


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
    """Number of values from 0 to the largest value of a form without negative strides."""
    total: Num = 1
    for leaf, stride in form.items():
        total = total + (stride if leaf is None else times(stride, leaf.last))
    return total


def divide(form: Form, width: Num) -> tuple[Form, Form, Mask]:
    """Quotient, remainder, and rows in which the two are exact.

    Leaves whose stride is a multiple of `width` go to the quotient, the others to the remainder;
    this is the floor division if the remainder stays below `width`.
    """
    high: dict[Leaf | None, Num] = {}
    low: dict[Leaf | None, Num] = {}
    rest: Num = remainder(form.get(None, 0), width)
    if None in form:
        high[None] = quotient(form[None], width)
        low[None] = rest
    shift = width.bit_length() - 1 if isinstance(width, int) and not width & (width - 1) else -1
    for leaf, stride in form.items():
        if leaf is None:
            continue
        divisible = divides(width, stride)
        if possible(divisible):
            # a shift is several times faster than a division
            part = stride >> shift if shift >= 0 else quotient(stride, width)
            if certain(divisible):
                high[leaf] = part
                continue
            high[leaf] = select(divisible, part, 0)
        low[leaf] = select(divisible, 0, stride) if leaf in high else stride
        rest = rest + times(low[leaf], leaf.last)
    return high, low, rest < width
