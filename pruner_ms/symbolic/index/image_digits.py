"""Floordiv/floormod terms of im2col indices, which are not affine: (A // s) mod e.

A is affine in loops, in the digits of at most one split loop, and in the leaves that run within one
iteration. In rows in which a quotient is affine, or does not need the split loop, formulas are
used; in the others the iterations are enumerated (`quotient_widths`).

Notation
--------
s, e, cycle   as in `quotient_widths`
T      elements of A within one iteration. TVM evaluates them as an interval, whose quotient is an
       interval only if no cycle ends within any of them; otherwise it is all e values, from 0 on
U      unit of the loops: greatest common divisor of their strides
P      1 plus the largest sum of the digits of the split loop in A
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from pruner_ms.symbolic.index import forms, quotient_widths
from pruner_ms.symbolic.index.access import FusedTerm, Term
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.digits import INSIDE, DigitTerm, Quotient, uses
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.index.nests import Nest, Run, picked_rows
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    either,
    gcd,
    mask_column,
    negate,
    possible,
    select,
    times,
)
from pruner_ms.tvm_compat.paths import MODULAR_BOUNDS
from pruner_ms.types import BoolArray, IntArray

TRIED_LIMIT = 1 << 22
"""Iterations beyond which a row is unsupported."""


class Digit:
    """A quotient of an affine index along the loops of a block.

    Parameters
    ----------
    quotient, form
        The quotient, and the affine form of its dividend.
    nest
        The loops.
    tried
        Rows in which terms that move with the split loop are enumerated, not made affine.

    Attributes
    ----------
    plain
        Its affine part, scaled.
    exact
        Rows in which the rest is known.
    cutting
        Rows in which the rest moves with the split loop.
    wanted
        Rows in which its intervals are needed.
    """

    def __init__(self, quotient: Quotient, form: Form, nest: Nest, tried: Mask = False) -> None:
        self.quotient = quotient
        self._nest = nest
        self._cut: Cut | None = None
        self._shared: list[tuple[Leaf, int, Num]] = []
        self._loops: list[tuple[int, Leaf, Num]] = []
        self._elements: Num = 1
        self._widths_at: dict[int, Num] = {}
        self.wanted: Mask = True
        self.exact: Mask = form.get(None, 0) == 0
        for leaf, stride in form.items():
            if leaf is not None:
                self._sort(leaf, stride)
        self._loops.sort(key=lambda loop: loop[0])
        self._separate(form, negate(tried))

    def _sort(self, leaf: Leaf, stride: Num) -> None:
        """Add one leaf of the dividend."""
        self.exact = both(self.exact, stride >= 0)
        if leaf in self._nest.digits:
            cut, digit = self._nest.digits[leaf]
            if self._cut is not None and self._cut is not cut:
                self.exact = False
            self._cut = cut
            self._shared.append((leaf, digit, stride))
        elif leaf in self._nest.where:
            self._loops.append((self._nest.where[leaf], leaf, stride))
        else:
            self._elements = self._elements + times(stride, leaf.extent - 1)

    def _separate(self, form: Form, free: Mask) -> None:
        """Separate the affine part from what is enumerated."""
        low, modulus = self.quotient.low, self.quotient.modulus
        high, _, fits = forms.divide(form, low)
        if modulus:
            _, high, divisible = forms.divide(high, modulus)
            fits = both(fits, divisible)
        unit = self._unit()
        span = self._span()
        fits = both(fits, span <= forms.reach({leaf: n for leaf, _, n in self._shared}))
        cycle = low * modulus
        missed = self._bound_missed(cycle)
        self.affine: Mask = both(both(fits, free), negate(missed))
        steady = either(span <= gcd(unit, low), span == 1)
        alone: Mask = False  # the digits of the split loop stay within one unit
        if low == 1 and modulus:
            alone = both(span <= gcd(unit, modulus), both(free, negate(fits)))
            alone = both(alone, self._elements == 1)
        moves = negate(either(self.affine, either(steady, alone)))
        self.cutting: Mask = moves if self._shared else False
        self.exact = both(self.exact, negate(both(self.cutting, self._elements > 1)))
        closed = self._elements <= gcd(unit, cycle)
        self._closed: Mask = both(closed, negate(missed)) if modulus else True
        plain = {leaf: select(self.affine, stride, 0) for leaf, stride in high.items()}
        for leaf, _, stride in self._shared:
            plain[leaf] = plain.get(leaf, 0) + select(alone, stride, 0)
        moving = {leaf: stride for leaf, stride in plain.items() if np.any(stride)}
        self.plain: Form = forms.scale(moving, self.quotient.scale)
        self._grain: Num = self._coarse(unit)
        self._limit()
        self.exact = either(self.affine, self.exact)

    def _bound_missed(self, cycle: int) -> Mask:
        """Rows in which TVM misses that no cycle ends within any interval of A.

        It moves loops that count whole cycles out of the first element's number of cycles, unless
        one loop is left; that number then differs in form from the one that the digit subtracts.
        A fused loop that continues where the one inside of it ends counts as one loop with it
        (before 0.22 as two).
        """
        counting: Num = 0
        others: Num = 0
        for place, leaf, stride in self._loops if cycle else ():
            runs = leaf.extent != 1
            fused = (x for x in self._loops if x[0] == place and x[1] is not leaf)
            for _, inner, step in fused if MODULAR_BOUNDS else ():
                goes_on = stride == times(step, inner.extent)
                goes_on = both(goes_on, inner.extent != 1)
                runs = both(runs, negate(goes_on))
            complete = stride % cycle == 0  # counts whole cycles
            counting = counting + select(both(runs, complete), 1, 0)
            others = others + select(both(runs, negate(complete)), 1, 0)
        missed = both(counting > 0, others > 1)
        return both(missed, self._elements > 1)

    def _unit(self) -> Num:
        """U; 0 if no loop runs."""
        unit: Num = 0
        for _, leaf, stride in self._loops:
            unit = gcd(unit, select(leaf.extent == 1, 0, stride))
        return unit

    def _span(self) -> Num:
        """P."""
        total: Num = 1
        for leaf, digit, stride in self._shared:
            values = leaf.extent
            if self._cut is not None:
                beyond = (self._cut.reach - 1) // self._cut.inside[digit] + 1
                values = select(self._cut.last(digit), beyond, values)
                values = select(leaf.extent == 1, 1, values)
            total = total + times(stride, values - 1)
        return total

    def _coarse(self, unit: Num) -> Num:
        """Grain: elements that move together, those of the digit within a unit of the loops.

        The grain is a digit of the split loop itself if each step of that loop divides it or is a
        multiple of it.
        """
        cut, low, modulus = self._cut, self.quotient.low, self.quotient.modulus
        if cut is None or low != 1 or not modulus or len(self._shared) != 1:
            return 1
        leaf, digit, stride = self._shared[0]
        grain = gcd(gcd(unit, modulus), leaf.extent)
        aligned = both(stride == 1, cut.inside[digit] == 1)
        for step in cut.steps:
            divides = step % grain == 0
            aligned = both(aligned, either(divides, grain % step == 0))
        return select(both(aligned, self.cutting), grain, 1)

    def _limit(self) -> None:
        """Exclude rows with too many iterations to enumerate."""
        rows = self._rows()
        if not len(rows):
            return
        good: BoolArray = np.ones(self.size, np.bool_)
        for grain, grain_rows in self._grains(rows):
            _, loops, parts, shares = self._measured(grain_rows, INSIDE, grain)
            steps = [(stride, extent) for _, stride, extent in loops]
            count = quotient_widths.iterations(steps, [n for _, n in parts], shares)
            good[grain_rows] = count <= TRIED_LIMIT
        self.exact = both(self.exact, good)

    @cached_property
    def size(self) -> int:
        """N; 1 if nothing depends on the row."""
        numbers = [self.exact, self.affine, self.cutting, self._elements]
        numbers += [n for _, leaf, stride in self._loops for n in (leaf.extent, stride)]
        numbers += [stride for _, _, stride in self._shared]
        if self._cut is not None:
            numbers += [*self._cut.extents, *self._cut.inside]
        return next((len(n) for n in numbers if isinstance(n, np.ndarray)), 1)

    def _rows(self) -> IntArray:
        """Rows to enumerate."""
        left = both(both(self.exact, self.wanted), negate(self.affine))
        return np.flatnonzero(mask_column(left, self.size))

    def _grains(self, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Each grain, and the rows that have it."""
        grain = picked_rows(self._grain, self.size, rows)
        for value in np.unique(grain).tolist():
            yield value, rows[grain == value]

    def numbers(self, rows: IntArray, level: int, size: int) -> list[Run]:
        """Whether each loop runs at a level, its stride and its extent, in some of `size` rows."""
        one = np.ones(len(rows), np.int64)
        runs = [(False, 0 * one, one)]
        for position, leaf, stride in self._loops:
            extent = picked_rows(leaf.extent, size, rows)
            step = np.where(extent == 1, 0, picked_rows(stride, size, rows))
            runs.append((position >= level, step, extent))
        return runs

    def shares(self, rows: IntArray, size: int) -> list[quotient_widths.Share]:
        """Digits of the split loop in some of `size` rows."""
        cut = self._cut
        if cut is None or not possible(self.cutting):
            return []
        moves = mask_column(self.cutting, size)[rows]
        shares = []
        for leaf, digit, stride in self._shared:
            there = leaf.extent != 1
            there = moves & mask_column(there, size)[rows]
            modulus = select(cut.last(digit), 0, leaf.extent)
            numbers = (stride, cut.inside[digit], modulus)
            step, inside, period = (picked_rows(n, size, rows) * there for n in numbers)
            shares.append((step, inside, period))
        return shares

    def _measured(
        self, rows: IntArray, level: int, grain: int
    ) -> tuple[int, list[Run], list[tuple[bool, IntArray]], list[quotient_widths.Share]]:
        """Modulus, loops, parts and digits in rows with a grain, in units of it."""
        loops = [(r, s // grain, n) for r, s, n in self.numbers(rows, level, self.size)]
        shares = [(s, i * grain, m // grain) for s, i, m in self.shares(rows, self.size)]
        parts: list[tuple[bool, IntArray]] = []
        if self._cut is not None and shares:
            moves = mask_column(self.cutting, self.size)[rows]
            parts = [
                (runs, np.where(moves, extent, 1))
                for runs, extent in self._nest.parts_of(self._cut, rows, level, self.size)
            ]
        return self.quotient.modulus // grain, loops, parts, shares

    def width(self, level: int) -> Num:
        """Largest interval while the loops from a level on run, before scaling."""
        if level not in self._widths_at:
            rows = self._rows()
            width: Num = 1
            if len(rows):
                table = np.ones(self.size, np.int64)
                for grain, grain_rows in self._grains(rows):
                    table[grain_rows] = self._tried(grain_rows, level, grain)
                width = table
            self._widths_at[level] = width
        return self._widths_at[level]

    def _tried(self, rows: IntArray, level: int, grain: int) -> IntArray:
        """Widths by enumeration, in rows with a grain."""
        low = self.quotient.low
        modulus, loops, parts, shares = self._measured(rows, level, grain)
        widths = quotient_widths.widest(low, modulus, loops, parts, shares)
        if grain > 1:
            return grain * (widths - 1) + self._within(rows, level, grain)
        elements = picked_rows(self._elements, self.size, rows)
        if not (elements > 1).any():
            return widths
        inner = (True, np.ones_like(elements), elements)
        still = [(False, stride, extent) for _, stride, extent in loops]
        widths = widths - 1 + quotient_widths.widest(low, modulus, [*still, inner], [], [])
        closed = mask_column(self._closed, self.size)[rows]
        return np.where(closed, widths, modulus)

    def _within(self, rows: IntArray, level: int, grain: int) -> IntArray:
        """Largest interval within a grain."""
        widths = np.ones(len(rows), np.int64)
        if self._cut is None:
            return widths
        parts = self._nest.parts_of(self._cut, rows, level, self.size)
        for (runs, extent), step in zip(parts, self._cut.steps, strict=True):
            inside = picked_rows(step, self.size, rows)
            widths = widths + runs * np.maximum(np.minimum(inside * extent, grain) - inside, 0)
        return widths

    def step(self, position: int) -> Num:
        """Change of the quotient in the first step of a loop, the others at 0."""
        moved: Num = 0
        for place, leaf, stride in self._loops:
            if place == position:
                inner = self._nest.fused.get(leaf, ())
                moved = moved + FusedTerm(place, stride, leaf.extent, inner).step()
        if self._cut is not None:
            for place, part in self._nest.parts[self._cut]:
                for _, digit, stride in self._shared if place == position else ():
                    step = times(stride, self._cut.moved(digit, part))
                    moved = moved + select(self.cutting, step, 0)
        moved = moved // self.quotient.low
        if self.quotient.modulus:
            moved = select(self._closed, moved % self.quotient.modulus, 0)
        return select(self.affine, 0, moved)

    def terms(self) -> list[Term]:
        """One term per loop."""
        places = {place for place, _, _ in self._loops}
        if self._cut is not None:
            places |= {place for place, _ in self._nest.parts[self._cut]}
        terms: list[Term] = []
        inner = INSIDE
        for place in sorted(places, reverse=True):
            terms.append(DigitTerm(place, self.quotient.scale, 2, self, inner))
            inner = place
        return terms

    def moving(self, leaf: Leaf) -> Mask:
        """Rows in which a loop moves the quotient and not its affine part."""
        rows: Mask = False
        cycle = self.quotient.low * self.quotient.modulus
        for _, loop_leaf, stride in self._loops:
            if loop_leaf is leaf:  # whole cycles do not move it
                rest = stride % cycle if cycle else stride
                rows = either(rows, uses({leaf: rest}, leaf))
        return both(rows, negate(self.affine))

    def lends(self) -> Mask:
        """Rows in which `plain` moves with the split loop."""
        rows: Mask = False
        for leaf, _, _ in self._shared:
            rows = either(rows, uses(self.plain, leaf))
        return rows

    @property
    def leaves(self) -> list[Leaf]:
        """Leaves of the loops that may move it."""
        return [leaf for _, leaf, _ in self._loops]

    def cuts(self, cut: Cut) -> bool:
        """Whether it may move with a split loop."""
        return self._cut is cut
