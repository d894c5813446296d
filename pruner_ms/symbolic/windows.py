"""Largest interval that a digit spans in windows of iterations (notation: `cuts`)."""

from __future__ import annotations

import numpy as np

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.forms import Mask, Num
from pruner_ms.types import IntArray


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
