"""Several digits of one cut loop that move in one dimension: a layout was taken apart again.

Where of any two boundaries one divides the other, digits move independently and their intervals add
up. In the other rows the iterations are tried out, once for every set of numbers.

Notation
--------
x, F, X    as in `cuts.py`
a, S_d     the dimension's index is a = sum(S_d * digit_d)
r_d        largest part of `a` that the digits inside of digit d make up
compact    S_d = r_d + 1; wide: S_d > 2 r_d. Either way `a` grows with the digits in lexical order,
           and so does the width of an interval of `a` with the differences of the digits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.access import Term
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.forms import Mask, Num

TRIED_LIMIT = 1 << 19
"""Iterations beyond which a row is unsupported."""


@lru_cache(maxsize=1 << 16)
def tried(
    extents: tuple[int, ...], running: int, digits: tuple[tuple[int, int, int, int], ...]
) -> tuple[int, ...]:
    """Differences of the digits across the widest interval.

    Parameters
    ----------
    extents
        Of the parts, the most significant first.
    running
        Bit k: whether part k runs.
    digits
        Outermost first: iterations inside, modulus (0 for none), extent, and whether it is wide.
    """
    x = np.arange(prod(extents))
    values: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
    index = np.zeros(len(x), np.int64)
    size = 1
    for inside, modulus, extent, wide in reversed(digits):
        value = x // inside
        value = value % modulus if modulus else value
        weight = 2 * size if wide else size
        index += weight * value
        size += weight * (extent - 1)
        values.insert(0, value)
    still = [k for k in range(len(extents)) if not running >> k & 1]
    moving = [k for k in range(len(extents)) if running >> k & 1]
    order = (*still, *moving)
    shape = (prod(extents[k] for k in still), prod(extents[k] for k in moving))

    def arranged(
        a: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return a.reshape(extents).transpose(order).reshape(shape)

    table = arranged(index)
    high, low = table.argmax(axis=1), table.argmin(axis=1)
    rows = np.arange(len(table))
    best = int((table[rows, high] - table[rows, low]).argmax())
    grids = [arranged(value) for value in values]
    return tuple(int(grid[best, high[best]] - grid[best, low[best]]) for grid in grids)


class Joint:
    """The digits of a cut loop that move in one dimension.

    Attributes
    ----------
    exact
        Rows in which their widths are known.
    """

    def __init__(self, cut: Cut, digits: Sequence[tuple[int, Num]]) -> None:
        self.cut = cut
        self.digits = sorted(digits, key=lambda pair: pair[0])
        self._known: dict[int, Num] = {}
        self._wide: list[Mask] = []
        self._extents = [  # a digit that moves nothing is as one of one value
            forms.select(forms.compare(stride, 0), 1, cut.leaves[digit].extent)
            for digit, stride in self.digits
        ]
        several: Num = 0
        for extent in self._extents:
            several = several + forms.select(forms.compare(extent, 1), 0, 1)
        self._alone: Mask = several <= 1
        few: Mask = cut.reach <= TRIED_LIMIT
        free = forms.either(self._alone, cut.chained)
        self.exact = forms.either(free, forms.both(few, self._lexical()))

    def _lexical(self) -> Mask:
        """Rows in which the index grows with the digits in lexical order."""
        found: Mask = True
        rest: Num = 0
        any_wide: Mask = False
        for (_, stride), extent in zip(reversed(self.digits), reversed(self._extents), strict=True):
            unit = forms.compare(extent, 1)
            compact = forms.both(forms.compare(stride, rest + 1), forms.negate(any_wide))
            wide: Mask = stride > 2 * rest
            self._wide.insert(0, forms.both(wide, forms.negate(forms.either(compact, unit))))
            any_wide = forms.either(any_wide, self._wide[0])
            fits = forms.either(unit, forms.either(compact, wide))
            found = forms.both(found, fits)
            rest = rest + stride * (extent - 1)
        return found

    def _independent(self, running: int) -> Mask:
        """Rows in which the digits move independently while some parts run."""
        bounds: list[Num] = []
        for (digit, _), extent in zip(self.digits, self._extents, strict=True):
            inside = self.cut.inside[digit]
            bounds += [inside, forms.times(inside, extent)]
        found: Mask = forms.divides(bounds[0], self.cut.reach)
        for k, step in enumerate(self.cut.steps[:-1]):
            if running >> k & 1 == running >> (k + 1) & 1:
                continue
            for bound in bounds:
                whole = forms.either(forms.divides(bound, step), forms.divides(step, bound))
                found = forms.both(found, whole)
        return forms.either(found, self._alone)

    def width(self, running: int) -> Num:
        """Largest interval of the index while some parts (bit k: part k) run."""
        if running not in self._known:
            total: Num = 1
            for digit, stride in self.digits:
                total = total + forms.times(stride, self.cut.width(digit, running) - 1)
            hard = forms.both(self.exact, forms.negate(self._independent(running)))
            if running and forms.possible(hard):
                total = self._tried(running, hard, total)
            self._known[running] = total
        return self._known[running]

    def step(self, part: int) -> Num:
        """What the index moves by when a part is at 1 and the others are at 0."""
        total: Num = 0
        for digit, stride in self.digits:
            total = total + forms.times(stride, self.cut.moved(digit, part))
        return total

    def _tried(self, running: int, rows: Mask, others: Num) -> Num:
        """Widths by trying out, in some rows."""
        columns: list[Num] = [*self.cut.extents]
        for (digit, _), extent, wide in zip(self.digits, self._extents, self._wide, strict=True):
            # a digit of one value stays where it is, also in iterations that do not run
            counts = forms.both(self.cut.last(digit), forms.differ(extent, 1))
            modulus = forms.select(counts, 0, extent)
            columns += [self.cut.inside[digit], modulus, extent, forms.select(wide, 1, 0)]
        strides = [stride for _, stride in self.digits]
        arrays = [c for c in (*columns, *strides, rows, others) if isinstance(c, np.ndarray)]
        size = len(arrays[0]) if arrays else 1
        picked = np.flatnonzero(forms.mask_column(rows, size))
        table = np.stack([forms.column(c, size)[picked] for c in columns], axis=1)
        kinds, where = np.unique(table, axis=0, return_inverse=True)
        parts = len(self.cut.extents)
        deltas = np.array(
            [
                tried(
                    tuple(kind[:parts]),
                    running,
                    tuple(tuple(kind[i : i + 4]) for i in range(parts, len(kind), 4)),
                )
                for kind in kinds.tolist()
            ]
        )[where.reshape(-1)]
        found = np.array(forms.column(others, size))
        found[picked] = 1 + sum(
            forms.column(stride, size)[picked] * deltas[:, i] for i, stride in enumerate(strides)
        )
        return found


@dataclass(frozen=True)
class JointTerm(Term):
    """A part's contribution to several digits.

    Attributes
    ----------
    joint, part
        Which ones.
    inner
        Bits of the parts that run when this one does not.
    """

    joint: Joint
    part: int
    inner: int

    def step(self) -> Num:
        """Elements that the first step of the part moves."""
        return self.joint.step(self.part)

    def reach(self) -> Num:
        """Elements that the interval grows by while the part runs, too."""
        return self.joint.width(self.inner | 1 << self.part) - self.joint.width(self.inner)
