"""Sums of quotients that move with one split loop: rows and columns of an image below a filter.

Where the quotients move independently their intervals add up. In the other rows the iterations are
enumerated for all of them at once, in steps that move at least one of them.

Notation
--------
f      the sum of scale * q; q, A, s, e, x, K as in `quotient_widths`
unit   greatest common divisor of s and of the strides of a quotient's loops: a digit moves the
       quotient in multiples of it only
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pruner_ms.symbolic.index import quotient_widths
from pruner_ms.symbolic.index.access import Term
from pruner_ms.symbolic.index.digits import INSIDE, DigitTerm, Quotient, uses
from pruner_ms.symbolic.index.forms import Form
from pruner_ms.symbolic.index.image_digits import TRIED_LIMIT, Digit
from pruner_ms.symbolic.index.nests import Nest, Run
from pruner_ms.symbolic.index.quotient_widths import (
    Layout,
    Share,
    combinations,
    folded,
    joined,
    kinds,
    shares_of,
    shrunk,
)
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    certain,
    column,
    either,
    mask_column,
    negate,
    possible,
    times,
)
from pruner_ms.types import BoolArray, IntArray


@dataclass(frozen=True)
class Summand:
    """One quotient in some rows; `loops` and `digits` as in `quotient_widths.widest`."""

    low: int
    modulus: int
    scale: int
    loops: Sequence[Run]
    digits: Sequence[Share]


@lru_cache(maxsize=1 << 16)
def spread(layouts: tuple[Layout, ...], scales: tuple[int, ...], numbers: tuple[int, ...]) -> int:
    """Largest interval of f; the numbers of the parts come last."""
    running = layouts[0].running
    extents, rest = numbers[len(numbers) - len(running) :], numbers
    high = low = np.zeros((1, 1, 1), np.int64)
    for layout, scale in zip(layouts, scales, strict=True):
        still = combinations(rest[: 2 * layout.still])
        rest = rest[2 * layout.still :]
        moving = combinations(rest[: 2 * layout.moving])
        rest = rest[2 * layout.moving :]
        table = shares_of(running, layout.digits, (*extents, *rest[: 3 * layout.digits]))
        rest = rest[3 * layout.digits :]
        q = still[:, None, None, None] + table[:, :, None] + moving
        q = scale * quotient_widths.quotient(q, layout.low, layout.modulus)
        high = (high[:, None] + q.max(axis=3)).reshape(-1, *table.shape)
        low = (low[:, None] + q.min(axis=3)).reshape(-1, *table.shape)
    return int((high.max(axis=2) - low.min(axis=2)).max()) + 1


def coarse(summand: Summand) -> list[Share]:
    """Digits of a summand, in steps that move its quotient."""
    if len(summand.digits) != 1:
        return list(summand.digits)
    stride, inside, modulus = summand.digits[0]
    unit = np.gcd(np.int64(summand.low), modulus)
    for _, step, _ in summand.loops:
        unit = np.gcd(unit, step)
    unit = np.where(stride == 1, unit, 1)
    return [(stride * unit, inside * unit, modulus // unit)]


def widest(summands: Sequence[Summand], parts: Sequence[tuple[bool, IntArray]]) -> IntArray:
    """Largest interval of f, int64 (K,); `parts` as in `quotient_widths.widest`."""
    digits = [coarse(summand) for summand in summands]
    running, extents, shares = shrunk(parts, [share for group in digits for share in group])
    layouts: list[Layout] = []
    columns: list[IntArray] = []
    for summand, summand_digits in zip(summands, digits, strict=True):
        cycle = summand.low * max(summand.modulus, 1)
        still, moving = (
            [(s, n) for r, s, n in summand.loops if r == runs] for runs in (False, True)
        )
        still = joined([folded(loop, cycle) for loop in joined(still)])
        moving = joined(moving)
        layouts.append(
            Layout(
                summand.low, summand.modulus, len(still), len(moving), running, len(summand_digits)
            )
        )
        columns += [c for loop in (*still, *moving) for c in loop]
        columns += [c for share in shares[: len(summand_digits)] for c in share]
        shares = shares[len(summand_digits) :]
    distinct, which = kinds(np.stack([*columns, *extents], axis=1))
    scales = tuple(summand.scale for summand in summands)
    widths = [spread(tuple(layouts), scales, tuple(numbers)) for numbers in distinct.tolist()]
    return np.array(widths, np.int64)[which]


class Sum:
    """Several quotients of one dimension, with the interface of a `Digit`.

    Parameters
    ----------
    digits
        The quotients.
    form
        The affine part of the index.
    nest
        The loops.

    Attributes
    ----------
    exact
        Rows in which its intervals are known.
    """

    scale = 1

    def __init__(self, digits: Sequence[Digit], form: Form, nest: Nest) -> None:
        self._digits = digits
        self._nest = nest
        self._widths_at: dict[int, Num] = {}
        easy = independent(form, digits, nest)
        self.exact: Mask = True
        for digit in digits:
            self.exact = both(self.exact, digit.exact)
        self._hard: Mask = both(self.exact, negate(easy))
        if len(nest.parts) != 1:
            self._hard = False
        for leaf in {leaf: None for digit in digits for leaf in digit.leaves}:
            alone = few([uses(form, leaf), *(digit.moving(leaf) for digit in digits)])
            self._hard = both(self._hard, alone)
        for leaf in nest.digits:
            self._hard = both(self._hard, negate(uses(form, leaf)))
        self._limit()
        self.exact = both(self.exact, either(easy, self._hard))
        for digit in digits:
            digit.wanted = negate(self._hard)

    def _limit(self) -> None:
        """Leave out rows with too many iterations to enumerate."""
        rows, size = self._rows()
        if not len(rows):
            return
        summands, parts = self._numbers(rows, size, INSIDE)
        digits = [share for summand in summands for share in coarse(summand)]
        _, extents, _ = shrunk([(True, extent) for _, extent in parts], digits)
        total = np.ones(len(rows), np.float64)
        for summand in summands:
            cycle = summand.low * max(summand.modulus, 1)
            for _, stride, extent in summand.loops:
                total = total * folded((stride, extent), cycle)[1]
        for extent in extents:
            total = total * extent
        good: BoolArray = np.zeros(size, np.bool_)
        good[rows] = total <= TRIED_LIMIT
        self._hard = good

    def _rows(self) -> tuple[IntArray, int]:
        """Rows to enumerate, and N."""
        if not possible(self._hard):
            return np.zeros(0, np.int64), 1
        size = max(digit.size for digit in self._digits)
        return np.flatnonzero(mask_column(self._hard, size)), size

    def _numbers(
        self, rows: IntArray, size: int, level: int
    ) -> tuple[list[Summand], list[tuple[bool, IntArray]]]:
        """The quotients and the parts of the split loop in some rows."""
        summands = [
            Summand(
                digit.quotient.low,
                digit.quotient.modulus,
                digit.quotient.scale,
                digit.numbers(rows, level, size),
                digit.shares(rows, size),
            )
            for digit in self._digits
        ]
        return summands, self._nest.parts_of(next(iter(self._nest.parts)), rows, level, size)

    def width(self, level: int) -> Num:
        """Largest interval while the loops from a level on run."""
        if level not in self._widths_at:
            total: Num = 1
            for digit in self._digits:
                total = total + times(digit.width(level) - 1, digit.quotient.scale)
            rows, size = self._rows()
            if len(rows) and level != INSIDE:
                table = np.array(column(total, size), np.int64)
                table[rows] = widest(*self._numbers(rows, size, level))
                total = table
            self._widths_at[level] = total
        return self._widths_at[level]

    def step(self, position: int) -> Num:
        """Change of the sum in the first step of a loop, the others at 0."""
        total: Num = 0
        for digit in self._digits:
            total = total + times(digit.step(position), digit.quotient.scale)
        return total

    def terms(self) -> list[Term]:
        """One term per loop."""
        places = {term.loop for digit in self._digits for term in digit.terms()}
        terms: list[Term] = []
        inner = INSIDE
        for place in sorted(places, reverse=True):
            terms.append(DigitTerm(place, 1, 2, self, inner))
            inner = place
        return terms


def digits_of(quotients: Sequence[tuple[Quotient, Form]], nest: Nest) -> list[Digit]:
    """The quotients of an index; none is partly affine where others move with a split loop."""
    digits = [Digit(quotient, form, nest) for quotient, form in quotients]
    for i, (quotient, form) in enumerate(quotients):
        moved: Mask = False
        for other in digits[:i] + digits[i + 1 :]:
            moved = either(moved, other.cutting)
        tried = both(moved, digits[i].lends())
        if possible(tried):
            digits[i] = Digit(quotient, form, nest, tried)
    return digits


def independent(form: Form, digits: Sequence[Digit], nest: Nest) -> Mask:
    """Rows in which no two parts of an index move with one loop: then their intervals add up.

    Parameters
    ----------
    form, digits
        The affine part, and the quotients.
    """
    exact: Mask = True
    for leaf in {leaf: None for digit in digits for leaf in digit.leaves}:
        exact = both(exact, few([uses(form, leaf), *(d.moving(leaf) for d in digits)]))
    for cut in nest.parts:
        cut_leaves = [leaf for leaf, (other, _) in nest.digits.items() if other is cut]
        plain: Mask = False
        for leaf in cut_leaves:
            plain = either(plain, uses(form, leaf))
        alone = few([plain, *(d.cutting for d in digits if d.cuts(cut))])
        if not certain(alone):
            exact = both(exact, either(alone, cut.chained))
    return exact


def few(masks: Sequence[Mask]) -> Mask:
    """Rows in which at most one of the masks holds."""
    one: Mask = False
    two: Mask = False
    for mask in masks:
        two = either(two, both(one, mask))
        one = either(one, mask)
    return negate(two)
