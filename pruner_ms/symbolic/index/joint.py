"""Several digits of one split loop that move in one dimension, as when a packed layout is read.

Where one of any two radices divides the other, digits move independently and their intervals add
up. In the other rows the iterations are enumerated (`quotient_widths`, as of a quotient by 1).

Notation
--------
x, F, X    as in `cuts.py`
S_d        the dimension's index is the sum of S_d * digit_d
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.symbolic.index import quotient_widths
from pruner_ms.symbolic.index.access import Term
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    column,
    divides,
    either,
    mask_column,
    negate,
    possible,
    select,
    times,
)
from pruner_ms.types import IntArray

TRIED_LIMIT = 1 << 19
"""Iterations beyond which a row is unsupported."""


class Joint:
    """The digits of a split loop that move in one dimension.

    Parameters
    ----------
    cut, digits
        The loop; each digit's number and S_d.

    Attributes
    ----------
    exact
        Rows in which their widths are known.
    """

    def __init__(self, cut: Cut, digits: Sequence[tuple[int, Num]]) -> None:
        self.cut = cut
        self.digits = sorted(digits, key=lambda pair: pair[0])
        self._widths: dict[int, Num] = {}
        self._extents = [  # a digit that moves nothing counts as one of extent 1
            select(stride == 0, 1, cut.leaves[digit].extent) for digit, stride in self.digits
        ]
        moving: Num = 0
        for extent in self._extents:
            moving = moving + select(extent == 1, 0, 1)
        self._alone: Mask = moving <= 1
        rising: Mask = True
        for _, stride in self.digits:
            rising = both(rising, stride >= 0)
        tried = both(rising, cut.reach <= TRIED_LIMIT)
        self.exact = either(either(self._alone, cut.chained), tried)

    def _independent(self, running: int) -> Mask:
        """Rows in which the digits move independently while some parts run."""
        bounds: list[Num] = []
        for (digit, _), extent in zip(self.digits, self._extents, strict=True):
            inside = self.cut.inside[digit]
            bounds += [inside, times(inside, extent)]
        apart: Mask = divides(bounds[0], self.cut.reach)
        for k, step in enumerate(self.cut.steps[:-1]):
            if running >> k & 1 == running >> (k + 1) & 1:
                continue
            for bound in bounds:
                one_of_other = either(divides(bound, step), divides(step, bound))
                apart = both(apart, one_of_other)
        return either(apart, self._alone)

    def width(self, running: int) -> Num:
        """Largest interval of the index while some parts (bit k: part k) run."""
        if running not in self._widths:
            total: Num = 1
            for digit, stride in self.digits:
                total = total + times(stride, self.cut.width(digit, running) - 1)
            hard = both(self.exact, negate(self._independent(running)))
            if running and possible(hard):
                total = self._tried(running, hard, total)
            self._widths[running] = total
        return self._widths[running]

    def step(self, part: int) -> Num:
        """Change of the index when a part goes from 0 to 1, the others at 0."""
        total: Num = 0
        for digit, stride in self.digits:
            total = total + times(stride, self.cut.moved(digit, part))
        return total

    def _tried(self, running: int, rows: Mask, others: Num) -> Num:
        """Widths by enumeration, in some rows."""
        numbers = [*self.cut.extents, *self.cut.inside, *self._extents, rows, others]
        numbers += [stride for _, stride in self.digits]
        size = next((len(n) for n in numbers if isinstance(n, np.ndarray)), 1)
        picked = np.flatnonzero(mask_column(rows, size))

        def picked_rows(number: Num) -> IntArray:
            return np.asarray(column(number, size)[picked], np.int64)

        shares = []
        for (digit, stride), extent in zip(self.digits, self._extents, strict=True):
            moves = picked_rows(extent) > 1
            modulus = picked_rows(select(self.cut.last(digit), 0, extent))
            inside = picked_rows(self.cut.inside[digit])
            shares.append((picked_rows(stride) * moves, inside * moves, modulus * moves))
        parts = [(bool(running >> k & 1), picked_rows(n)) for k, n in enumerate(self.cut.extents)]
        still = (False, np.zeros_like(picked), np.ones_like(picked))
        widths = np.array(column(others, size))
        widths[picked] = quotient_widths.widest(1, 0, [still], parts, shares)
        return widths


@dataclass(frozen=True)
class JointTerm(Term):
    """Contribution of a part to several digits.

    Attributes
    ----------
    joint, part
        The digits, and the number of the part.
    inner
        Bits of the parts that run when this one does not.
    """

    joint: Joint
    part: int
    inner: int

    def step(self) -> Num:
        """Elements by which the first step of the part moves the index."""
        return self.joint.step(self.part)

    def reach(self) -> Num:
        """Elements by which the interval grows when the part runs as well."""
        return self.joint.width(self.inner | 1 << self.part) - self.joint.width(self.inner)
