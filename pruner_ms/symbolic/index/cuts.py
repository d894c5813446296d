"""Fused loops that are cut into parts: cooperative fetches, bound element-wise nests.

Notation
--------
x      the fused iteration, x = sum(part_k * step_k); digits are what was fused
digit  (x // s) mod e, s the product of the extents inside it; the outermost digit of more than one
       iteration goes without the mod, as TVM writes it, if TVM can simplify the block's bindings
F, X   iterations of the fused loop, and of its parts together: X >= F, those from F on are guarded
       (they count in a region: a predicate is no part of an index)

A region wants the interval that a digit spans while some parts run and the others stand still, at
its largest. While the innermost parts run that is a window of W iterations from a multiple of W on.
Where a thread's loop was lifted out of a fetch the running parts are the outer and the inner ones:
x = o * D + t * L + l with t standing still, o < O, t < T, l < L.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.forms import Form, Leaf, Mask, Num
from pruner_ms.symbolic.index.iter_map import fuses
from pruner_ms.types import IntArray

# Largest interval that a digit spans in windows of iterations (notation: `cuts`).


def window(total: Num, size: Num, stride: Num, extent: Num, last: Mask) -> Num:
    """Largest interval of a digit in any window.

    Parameters
    ----------
    total, size
        X, a multiple of W; W.
    stride, extent
        s, e of the digit.
    last
        Rows in which it is the outermost digit: no window wraps around it.
    """
    quotient, rest = forms.quotient(size, stride), forms.remainder(size, stride)
    base = quotient + _flag(rest > 0)
    # windows begin at multiples of W: the first that holds one multiple of s more is number s // r
    safe = forms.larger(rest, 1)
    # it ends within X if stride // safe * size + size <= X; that product can be huge
    ends = forms.quotient(stride, safe) < forms.quotient(total, size)
    more = forms.both(rest > 0, forms.both(forms.negate(forms.divides(safe, stride)), ends))
    base = base + _flag(more)
    wraps = forms.negate(forms.either(last, forms.divides(size, stride * extent)))
    inside = forms.select(last, base, forms.smaller(base, extent))
    return forms.select(wraps, extent, inside)


def slide(size: Num, stride: Num, step: Num, starts: Num) -> Num:
    """Largest number of multiples of s that begin or go on in [t * step, t * step + size), t < n.

    Parameters
    ----------
    size
        Length of the interval.
    stride
        s.
    step, starts
        Distance of the beginnings, and n of them.
    """
    base = forms.ceiling(size, stride)
    rest = size - (base - 1) * stride
    return base + _flag(_residue(step, stride, starts) + rest > stride)


def _residue(step: Num, stride: Num, starts: Num) -> Num:
    """Largest `t * step mod stride` for t < starts."""
    found = forms.smaller((starts - 1) * step, stride - step)
    hard = forms.negate(forms.divides(step, stride))
    if not forms.possible(hard):
        return found
    if isinstance(hard, bool):
        return _turned(step, stride, starts)
    size = len(hard)
    picked = np.flatnonzero(hard)
    found = np.array(forms.column(found, size))
    # turns times strides may be large
    numbers = [forms.column(c, size)[picked].astype(np.int64) for c in (step, stride, starts)]
    found[picked] = _turned(*numbers)
    return found


def _turned(step: Num, stride: Num, starts: Num) -> Num:
    """The same where the step does not divide the stride: the last start in each stride counts."""
    best = (starts - 1) * step % stride
    for turn in range(1, int(np.max(step)) + 1):
        final = turn * stride - 1
        reached = final // step < starts
        best = forms.select(reached, forms.larger(best, stride - 1 - final % step), best)
    return best


def _flag(mask: Mask) -> Num:
    """1 where a mask holds."""
    return int(mask) if isinstance(mask, bool | np.bool_) else mask.astype(np.int32)


def orbits(
    turns: IntArray, starts: IntArray, cycle: IntArray, step: IntArray, stride: IntArray
) -> IntArray:
    """Largest interval of a digit with a mod while x = o * D + t * L + l runs over o and l.

    In units of L the iterations of one t are o * T + t, modulo the cycle of the digit. Turning them
    by t moves the point where the cycle ends into one gap between neighbours after the other.

    Parameters
    ----------
    turns, starts
        Iterations of o, and T; (N,).
    cycle
        s * e / L, (N,).
    step, stride
        L and s, (N,).
    """
    row = np.repeat(np.arange(len(turns)), turns)
    begin = np.cumsum(turns) - turns
    turn = np.arange(len(row)) - begin[row]
    base = int(cycle.max(initial=0)) + 1
    point = np.sort(row * base + turn * starts[row] % cycle[row]) - row * base
    after = np.append(point[1:], 0)
    after[begin + turns - 1] = cycle
    gap = after - point
    # of the turns t < T that end the cycle in this gap, the first leaves nothing of it at the front
    count = np.minimum(gap, starts[row] - (cycle[row] - after))
    kept = np.flatnonzero(count > 0)
    row, gap, count = row[kept], gap[kept], count[kept]
    width = slide((cycle[row] - gap + 1) * step[row], stride[row], step[row], count)
    found: IntArray = np.maximum.reduceat(width, np.searchsorted(row, np.arange(len(turns))))
    return found


@lru_cache(maxsize=1 << 16)
def enumerated(extents: tuple[int, ...], running: int, stride: int, modulus: int) -> int:
    """Largest interval of a digit by trying out every iteration.

    Parameters
    ----------
    extents
        Of the parts, outermost first.
    running
        Bit k: whether part k runs.
    stride, modulus
        s and e of the digit; 0 for no modulus.
    """
    x = np.arange(prod(extents)) // stride
    if modulus:
        x %= modulus
    grid = x.reshape(extents)
    axes = tuple(k for k in range(len(extents)) if running >> k & 1)
    return int((grid.max(axis=axes) - grid.min(axis=axes)).max()) + 1


class Cut:
    """A fused loop that was cut into parts.

    Attributes
    ----------
    leaves
        What was fused, outermost first.
    total
        F.
    loops, extents
        The loops of the parts, the most significant first, wherever they are on the path.
    steps, inside, reach
        Iterations inside of each part and of each digit; X.
    bindings
        Forms of the block's variables when its loops were fused: where TVM's simplifier does not
        understand them, the outermost digit keeps its mod if it is not the first.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        total: Num,
        loops: Sequence[object],
        extents: Sequence[Num],
        bindings: Sequence[Form] = (),
    ) -> None:
        self.leaves = tuple(leaves)
        self.total = total
        self.loops: tuple[Any, ...] = tuple(loops)
        self.extents = tuple(extents)
        self.bindings = tuple(bindings)
        self.steps = _inner(self.extents)
        self.inside = _inner([leaf.extent for leaf in leaves])
        self.reach = forms.times(self.extents[0], self.steps[0])
        self._known: dict[tuple[int, int], Num] = {}
        self._outermost: dict[int, Mask] = {}
        self._chained: Mask | None = None

    @property
    def guarded(self) -> Mask:
        """Rows in which a predicate keeps the iterations from F on from running."""
        return forms.differ(self.reach, self.total)

    @property
    def shortened(self) -> Mask:
        """Rows in which the condition of idle iterations is one on several parts, and not on the
        last two.

        `((i * 2 + j) * 32 + k) * 4 + l < 640` is `i * 2 + j < 5`.
        """
        found: Mask = False
        running = [forms.differ(extent, 1) for extent in self.extents]
        some: Mask = False
        several: Mask = False
        for runs, step in zip(running[:-2], self.steps[:-2], strict=True):
            several = forms.either(several, forms.both(some, runs))
            some = forms.either(some, runs)
            rest = forms.both(step > 1, forms.divides(step, self.total))
            found = forms.either(found, forms.both(several, rest))
        return forms.both(found, self.guarded)

    @property
    def chained(self) -> Mask:
        """Rows in which digits move independently: of any two boundaries one divides the other."""
        if self._chained is None:
            bounds = [*self.steps, *self.inside]
            found: Mask = forms.divides(self.inside[0], self.reach)
            for i, low in enumerate(bounds):
                for high in bounds[:i]:
                    whole = forms.either(forms.divides(low, high), forms.divides(high, low))
                    found = forms.both(found, whole)
            self._chained = found
        return self._chained

    def last(self, digit: int) -> Mask:
        """Rows in which a digit is the outermost that runs and has no mod."""
        if digit not in self._outermost:
            found: Mask = True
            for leaf in self.leaves[:digit]:
                found = forms.both(found, forms.compare(leaf.extent, 1))
            if digit > 0 and forms.possible(found):
                found = forms.both(found, self._understood)
            self._outermost[digit] = found
        return self._outermost[digit]

    @cached_property
    def _understood(self) -> Mask:
        found: Mask = True
        for form in self.bindings:
            found = forms.both(found, fuses(form))
        return found

    def moved(self, digit: int, part: int) -> Num:
        """Value of a digit when a part is at 1 and the others are at 0."""
        extent = self.leaves[digit].extent
        value = forms.quotient(self.steps[part], self.inside[digit])
        value = forms.select(self.last(digit), value, forms.remainder(value, extent))
        return forms.select(forms.compare(extent, 1), 0, value)

    def passes(self, digit: int, modulus: Num) -> Mask:
        """Rows in which a digit has no mod and idle iterations take it to a modulus or beyond."""
        idle = forms.both(self.guarded, self.last(digit))
        if not forms.possible(idle):
            return False
        return forms.both(idle, forms.quotient(self.reach - 1, self.inside[digit]) >= modulus)

    def wrapped(self, digit: int, running: int, rows: Mask) -> Num:
        """`width` with, in some rows, the mod that the digit itself goes without."""
        plain = self.width(digit, running)
        if not running or not forms.possible(rows):
            return plain
        return self._tried(digit, running, rows, plain, self.leaves[digit].extent)

    def width(self, digit: int, running: int) -> Num:
        """Largest interval of a digit while some parts (bit k: part k) run."""
        key = (digit, running)
        if key not in self._known:
            unit = forms.compare(self.leaves[digit].extent, 1)
            spans = running != 0 and unit is not True
            found = self._width(digit, running) if spans else 1
            self._known[key] = forms.select(unit, 1, found)
        return self._known[key]

    def _width(self, digit: int, running: int) -> Num:
        parts = len(self.extents)
        stride, extent, last = self.inside[digit], self.leaves[digit].extent, self.last(digit)
        still = [k for k in range(parts) if not running >> k & 1]
        if not still:
            return forms.select(last, forms.quotient(self.reach - 1, stride) + 1, extent)
        if still == list(range(len(still))):
            return window(self.reach, self.steps[len(still) - 1], stride, extent, last)
        first, end = still[0], still[-1] + 1
        if first == 0 or still != list(range(first, end)):
            return self._tried(digit, running, True, 0)
        return self._standing(digit, self.steps[end - 1], self.steps[first - 1])

    def _standing(self, digit: int, step: Num, jump: Num) -> Num:
        """Largest interval while the parts whose steps are L or more and less than D stand still.

        Parameters
        ----------
        step, jump
            L and D.
        """
        stride, extent, last = self.inside[digit], self.leaves[digit].extent, self.last(digit)
        turns, starts = forms.quotient(self.reach, jump), forms.quotient(jump, step)
        span = (turns - 1) * jump + step
        if last is True:
            return slide(span, stride, step, starts)
        once = forms.compare(turns, 1)
        period = forms.times(stride, extent)
        cycle = forms.quotient(period, step)
        wraps = forms.negate(forms.either(forms.divides(step, period), last))
        easy = forms.either(forms.either(once, last), wraps)
        easy = forms.either(easy, forms.compare(extent, 1))
        orbit: Num = starts if easy is True else forms.gcd(starts, cycle)
        # iterations that are a multiple of the orbit apart are all met, or one alone is
        span = forms.select(last, span, forms.select(once, step, (cycle - orbit + 1) * step))
        count = forms.select(forms.either(last, once), starts, orbit)
        found = forms.select(wraps, extent, slide(span, stride, step, count))
        hard = forms.both(forms.negate(easy), turns * orbit < cycle)
        return _orbits(found, hard, (turns, starts, cycle, step, stride))

    def _tried(
        self, digit: int, running: int, rows: Mask, others: Num, modulus: Num | None = None
    ) -> Num:
        """Widths by enumeration in some rows; no modulus: the digit's own."""
        if not forms.possible(rows):
            return others
        if modulus is None:
            modulus = forms.select(self.last(digit), 0, self.leaves[digit].extent)
        columns = [*self.extents, self.inside[digit], modulus]
        if all(isinstance(c, int) for c in columns) and rows is True:
            *extents, stride, mod = (int(np.max(c)) for c in columns)
            return enumerated(tuple(extents), running, stride, mod)
        size = next(len(c) for c in (*columns, rows) if isinstance(c, np.ndarray))
        picked = np.flatnonzero(forms.mask_column(rows, size))
        table = np.stack([forms.column(c, size)[picked] for c in columns], axis=1).tolist()
        found = np.array(forms.column(others, size))
        found[picked] = [enumerated(tuple(e), running, s, m) for *e, s, m in table]
        return found


def _orbits(widths: Num, rows: Mask, numbers: tuple[Num, ...]) -> Num:
    """Replace the widths of some rows by those of `orbits`, of these numbers."""
    if not forms.possible(rows):
        return widths
    size = next((len(c) for c in (widths, rows, *numbers) if isinstance(c, np.ndarray)), 1)
    picked = np.flatnonzero(forms.mask_column(rows, size))
    found = np.array(forms.column(widths, size))
    turns, starts, cycle, step, stride = (forms.column(c, size)[picked] for c in numbers)
    found[picked] = orbits(turns, starts, cycle, step, stride)
    constant = isinstance(widths, int) and isinstance(rows, bool)
    return int(found[0]) if constant else found


def _inner(extents: Sequence[Num]) -> list[Num]:
    """Product of the extents behind each."""
    found: list[Num] = [1]
    for extent in list(extents)[:0:-1]:
        found.insert(0, forms.times(found[0], extent))
    return found[: len(extents)]
