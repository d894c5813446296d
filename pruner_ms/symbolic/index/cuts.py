"""Loops that were fused and then split (mixed-radix iterators).

Cooperative fetches and bound element-wise nests have such loops.

Notation
--------
x      the fused iteration, x = sum(part_k * step_k); digits are the fused loops
digit  (x // s) mod e, where s is the product of the extents inside it; TVM writes the outermost
       digit of more than one iteration without the mod if it can simplify the block's bindings
F, X   iterations of the fused loop, and of all its parts together: X >= F. A predicate makes those
       from F on idle, but a region includes them: a predicate is not part of an index

A region needs the largest interval that a digit spans while some parts run and the others are
fixed. If the innermost parts run, x covers a window of W iterations that begins at a multiple of W.
If a thread's loop was lifted out of a fetch, the parts outside and inside of it run:
x = o * D + t * L + l with t fixed, o < O, t < T, l < L.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.index.iter_map import fuses
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    ceiling,
    column,
    divides,
    either,
    gcd,
    larger,
    mask_column,
    negate,
    possible,
    quotient,
    remainder,
    select,
    smaller,
    times,
)
from pruner_ms.types import IntArray

# Largest interval that a digit spans in windows of iterations.


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
    steps, rest = quotient(size, stride), remainder(size, stride)
    base = steps + _flag(rest > 0)
    # windows begin at multiples of W; the first with one more multiple of s is number s // r
    safe = larger(rest, 1)
    # it ends within X if stride // safe * size + size <= X; that product can overflow
    ends = quotient(stride, safe) < quotient(total, size)
    more = both(rest > 0, both(negate(divides(safe, stride)), ends))
    base = base + _flag(more)
    wraps = negate(either(last, divides(size, stride * extent)))
    inside = select(last, base, smaller(base, extent))
    return select(wraps, extent, inside)


def slide(size: Num, stride: Num, step: Num, starts: Num) -> Num:
    """Largest number of blocks of s iterations that meet [t * step, t * step + size), t < n.

    Parameters
    ----------
    size
        Length of the interval.
    stride
        s.
    step, starts
        Distance between the starts of intervals, and n.
    """
    base = ceiling(size, stride)
    rest = size - (base - 1) * stride
    return base + _flag(_residue(step, stride, starts) + rest > stride)


def _residue(step: Num, stride: Num, starts: Num) -> Num:
    """Largest `t * step mod stride` for t < starts."""
    largest = smaller((starts - 1) * step, stride - step)
    hard = negate(divides(step, stride))
    if not possible(hard):
        return largest
    if isinstance(hard, bool):
        return _residue_by_period(step, stride, starts)
    size = len(hard)
    picked = np.flatnonzero(hard)
    largest = np.array(column(largest, size))
    # products of turns and strides may need 64 bits
    numbers = [column(c, size)[picked].astype(np.int64) for c in (step, stride, starts)]
    largest[picked] = _residue_by_period(*numbers)
    return largest


def _residue_by_period(step: Num, stride: Num, starts: Num) -> Num:
    """`_residue` where the step does not divide the stride.

    Of the starts within one period of the stride only the last one counts.
    """
    best = (starts - 1) * step % stride
    for turn in range(1, int(np.max(step)) + 1):
        final = turn * stride - 1
        reached = final // step < starts
        best = select(reached, larger(best, stride - 1 - final % step), best)
    return best


def _flag(mask: Mask) -> Num:
    """1 where a mask holds."""
    return int(mask) if isinstance(mask, bool | np.bool_) else mask.astype(np.int32)


def orbits(
    turns: IntArray, starts: IntArray, cycle: IntArray, step: IntArray, stride: IntArray
) -> IntArray:
    """Largest interval of a digit with a mod while x = o * D + t * L + l runs over o and l.

    In units of L the iterations of one t are o * T + t, modulo the cycle of the digit. Rotating
    them by t moves the end of the cycle into one gap between neighbours after the other.

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
    # of the t < T that end the cycle in this gap, the first leaves no part of the gap at the front
    count = np.minimum(gap, starts[row] - (cycle[row] - after))
    inner_gaps = np.flatnonzero(count > 0)
    row, gap, count = row[inner_gaps], gap[inner_gaps], count[inner_gaps]
    width = slide((cycle[row] - gap + 1) * step[row], stride[row], step[row], count)
    widest: IntArray = np.maximum.reduceat(width, np.searchsorted(row, np.arange(len(turns))))
    return widest


@lru_cache(maxsize=1 << 16)
def enumerated(extents: tuple[int, ...], running: int, stride: int, modulus: int) -> int:
    """Largest interval of a digit, by enumeration of all iterations.

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
    """A fused loop that was split into parts.

    Attributes
    ----------
    leaves
        The fused leaves, outermost first.
    total
        F.
    loops, extents
        The loops of the parts, the most significant first, at any positions on the path.
    steps, inside, reach
        Iterations inside of each part and of each digit; X.
    bindings
        Forms of the block's variables when its loops were fused. Where TVM cannot simplify them,
        the outermost digit of more than one iteration keeps its mod, unless it is the first leaf.
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
        self.reach = times(self.extents[0], self.steps[0])
        self._widths: dict[tuple[int, int], Num] = {}
        self._outermost: dict[int, Mask] = {}
        self._chained: Mask | None = None

    @property
    def guarded(self) -> Mask:
        """Rows in which a predicate excludes the iterations from F on."""
        return self.reach != self.total

    @property
    def shortened(self) -> Mask:
        """Rows in which the condition on idle iterations simplifies to one on several outer parts.

        The last two parts are not among them.
        E.g. `((i * 2 + j) * 32 + k) * 4 + l < 640` simplifies to `i * 2 + j < 5`.
        """
        rows: Mask = False
        running = [extent != 1 for extent in self.extents]
        one_runs: Mask = False
        two_run: Mask = False
        for runs, step in zip(running[:-2], self.steps[:-2], strict=True):
            two_run = either(two_run, both(one_runs, runs))
            one_runs = either(one_runs, runs)
            rest = both(step > 1, divides(step, self.total))
            rows = either(rows, both(two_run, rest))
        return both(rows, self.guarded)

    @property
    def chained(self) -> Mask:
        """Rows in which digits move independently: of any two radices one divides the other."""
        if self._chained is None:
            bounds = [*self.steps, *self.inside]
            rows: Mask = divides(self.inside[0], self.reach)
            for i, low in enumerate(bounds):
                for high in bounds[:i]:
                    divisible = either(divides(low, high), divides(high, low))
                    rows = both(rows, divisible)
            self._chained = rows
        return self._chained

    def last(self, digit: int) -> Mask:
        """Rows in which a digit is the outermost that runs and has no mod."""
        if digit not in self._outermost:
            rows: Mask = True
            for leaf in self.leaves[:digit]:
                rows = both(rows, leaf.extent == 1)
            if digit > 0 and possible(rows):
                rows = both(rows, self._bindings_fuse)
            self._outermost[digit] = rows
        return self._outermost[digit]

    @cached_property
    def _bindings_fuse(self) -> Mask:
        rows: Mask = True
        for form in self.bindings:
            rows = both(rows, fuses(form))
        return rows

    def moved(self, digit: int, part: int) -> Num:
        """Value of a digit when a part is at 1 and the others are at 0."""
        extent = self.leaves[digit].extent
        value = quotient(self.steps[part], self.inside[digit])
        value = select(self.last(digit), value, remainder(value, extent))
        return select(extent == 1, 0, value)

    def passes(self, digit: int, modulus: Num) -> Mask:
        """Rows in which a digit has no mod and reaches a modulus in idle iterations."""
        idle = both(self.guarded, self.last(digit))
        if not possible(idle):
            return False
        return both(idle, quotient(self.reach - 1, self.inside[digit]) >= modulus)

    def wrapped(self, digit: int, running: int, rows: Mask) -> Num:
        """`width`, in some rows with a mod that the digit lacks."""
        plain = self.width(digit, running)
        if not running or not possible(rows):
            return plain
        return self._tried(digit, running, rows, plain, self.leaves[digit].extent)

    def width(self, digit: int, running: int) -> Num:
        """Largest interval of a digit while some parts (bit k: part k) run."""
        key = (digit, running)
        if key not in self._widths:
            unit = self.leaves[digit].extent == 1
            spans = running != 0 and unit is not True
            width = self._width(digit, running) if spans else 1
            self._widths[key] = select(unit, 1, width)
        return self._widths[key]

    def _width(self, digit: int, running: int) -> Num:
        parts = len(self.extents)
        stride, extent, last = self.inside[digit], self.leaves[digit].extent, self.last(digit)
        still = [k for k in range(parts) if not running >> k & 1]
        if not still:
            return select(last, quotient(self.reach - 1, stride) + 1, extent)
        if still == list(range(len(still))):
            return window(self.reach, self.steps[len(still) - 1], stride, extent, last)
        first, end = still[0], still[-1] + 1
        if first == 0 or still != list(range(first, end)):
            return self._tried(digit, running, True, 0)
        return self._standing(digit, self.steps[end - 1], self.steps[first - 1])

    def _standing(self, digit: int, step: Num, jump: Num) -> Num:
        """Largest interval while the parts with steps of L or more and less than D are fixed.

        Parameters
        ----------
        step, jump
            L and D.
        """
        stride, extent, last = self.inside[digit], self.leaves[digit].extent, self.last(digit)
        turns, starts = quotient(self.reach, jump), quotient(jump, step)
        span = (turns - 1) * jump + step
        if last is True:
            return slide(span, stride, step, starts)
        once = turns == 1
        period = times(stride, extent)
        cycle = quotient(period, step)
        wraps = negate(either(divides(step, period), last))
        easy = either(either(once, last), wraps)
        easy = either(easy, extent == 1)
        orbit: Num = starts if easy is True else gcd(starts, cycle)
        # of the iterations that differ by multiples of the orbit all are met, or only one
        span = select(last, span, select(once, step, (cycle - orbit + 1) * step))
        count = select(either(last, once), starts, orbit)
        width = select(wraps, extent, slide(span, stride, step, count))
        hard = both(negate(easy), turns * orbit < cycle)
        return _orbits(width, hard, (turns, starts, cycle, step, stride))

    def _tried(
        self, digit: int, running: int, rows: Mask, others: Num, modulus: Num | None = None
    ) -> Num:
        """Widths by enumeration in some rows; if no modulus is given, the digit's is used."""
        if not possible(rows):
            return others
        if modulus is None:
            modulus = select(self.last(digit), 0, self.leaves[digit].extent)
        columns = [*self.extents, self.inside[digit], modulus]
        if all(isinstance(c, int) for c in columns) and rows is True:
            *extents, stride, mod = (int(np.max(c)) for c in columns)
            return enumerated(tuple(extents), running, stride, mod)
        size = next(len(c) for c in (*columns, rows) if isinstance(c, np.ndarray))
        picked = np.flatnonzero(mask_column(rows, size))
        table = np.stack([column(c, size)[picked] for c in columns], axis=1).tolist()
        widths = np.array(column(others, size))
        widths[picked] = [enumerated(tuple(e), running, s, m) for *e, s, m in table]
        return widths


def _orbits(widths: Num, rows: Mask, numbers: tuple[Num, ...]) -> Num:
    """Replace the widths of some rows by `orbits` of these numbers."""
    if not possible(rows):
        return widths
    size = next((len(c) for c in (widths, rows, *numbers) if isinstance(c, np.ndarray)), 1)
    picked = np.flatnonzero(mask_column(rows, size))
    replaced = np.array(column(widths, size))
    turns, starts, cycle, step, stride = (column(c, size)[picked] for c in numbers)
    replaced[picked] = orbits(turns, starts, cycle, step, stride)
    constant = isinstance(widths, int) and isinstance(rows, bool)
    return int(replaced[0]) if constant else replaced


def _inner(extents: Sequence[Num]) -> list[Num]:
    """Product of the extents inside each."""
    products: list[Num] = [1]
    for extent in list(extents)[:0:-1]:
        products.insert(0, times(products[0], extent))
    return products[: len(extents)]
