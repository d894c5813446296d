"""Widest interval of a quotient while some loops run, by enumeration for each set of numbers.

Numbers are normalised first, so that few sets are left and each has few iterations: loops that
continue each other are merged, fixed loops count modulo the cycle, and parts of a split loop that
move no digit are dropped.

Notation
--------
A      dividend: sum of steps of loops, and of digits of one split loop (`cuts`)
q      (A // s) mod e; without the mod where e is 0
cycle  s * e, or s without a mod: a step by a multiple of it leaves q as it is, or only shifts it
x      iteration of the split loop, in mixed radix of its parts
K      rows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import prod
from typing import TypeAlias

import numpy as np

from pruner_ms.types import BoolArray, IntArray

Steps = tuple[IntArray, IntArray]
"""Stride and extent of a loop, int64 (K,) each."""

Narrow: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int32]]"
"""Integers of 32 bits."""

Share = tuple[IntArray, IntArray, IntArray]
"""Stride, iterations inside and modulus (0 for none) of a split loop's digit, int64 (K,) each.

A digit that does not move q has a stride of 0 and 0 iterations inside.
"""

_WEIGHTS = np.random.default_rng(0).integers(1, 1 << 62, 64) | 1
"""Weights of the columns of a table in the hash of a row."""


@dataclass(frozen=True)
class Layout:
    """Meaning of the numbers of a set.

    Attributes
    ----------
    low, modulus
        s and e.
    still, moving
        Number of fixed and of running loops: a stride and an extent each.
    running
        Whether each part of the split loop runs, the most significant first: an extent each.
    digits
        Number of its digits that move A: a stride, iterations inside and a modulus each.
    """

    low: int
    modulus: int
    still: int
    moving: int
    running: tuple[bool, ...]
    digits: int


@lru_cache(maxsize=1 << 17)
def spread(layout: Layout, numbers: tuple[int, ...]) -> int:
    """Largest interval of q, by enumeration."""
    low, modulus = layout.low, layout.modulus
    still = combinations(numbers[: 2 * layout.still])
    rest = numbers[2 * layout.still :]
    moving = combinations(rest[: 2 * layout.moving])
    table = shares_of(layout.running, layout.digits, rest[2 * layout.moving :])
    if not modulus:  # q is monotonic in A
        least = table.min(axis=1) + still[:, None] + moving.min()
        most = table.max(axis=1) + still[:, None] + moving.max()
        return int((most // low - least // low).max()) + 1
    if len(table) == 1:
        residues = np.bincount(((table[0][:, None] + moving) % (low * modulus)).ravel())
        table, moving = np.flatnonzero(residues)[None, :], np.zeros(1, np.int64)
    dividends = still[:, None, None, None] + table[:, :, None] + moving
    q = quotient(dividends, low, modulus).reshape(len(still) * len(table), -1)
    return int((q.max(axis=1) - q.min(axis=1)).max()) + 1


def quotient(a: IntArray, low: int, modulus: int) -> Narrow:
    """(a // s) mod e of numbers that fit into 32 bits; without the mod if e is 0."""
    quotients: Narrow = a.astype(np.int32)
    if low > 1:
        quotients //= np.int32(low)
    if modulus:  # numpy vectorizes divisions by a scalar, not remainders
        quotients -= quotients // np.int32(modulus) * np.int32(modulus)
    return quotients


def combinations(numbers: Sequence[int]) -> IntArray:
    """All sums of steps of some loops."""
    sums = np.zeros(1, np.int64)
    for stride, extent in zip(numbers[::2], numbers[1::2], strict=True):
        if extent > 1:
            sums = (sums[:, None] + stride * np.arange(extent)).ravel()
    return sums


@lru_cache(maxsize=1 << 10)
def shares_of(running: tuple[bool, ...], digits: int, numbers: tuple[int, ...]) -> IntArray:
    """Contribution of the digits to A, (fixed iterations, running iterations).

    Parameters
    ----------
    running, digits
        See `Layout`.
    numbers
        The extents of the parts, then three numbers of each digit.
    """
    count = len(running)
    extents, shares = numbers[:count], numbers[count:]
    x = np.arange(prod(extents))
    total = np.zeros(len(x), np.int64)
    for i in range(digits):
        stride, inside, modulus = shares[3 * i : 3 * i + 3]
        value = x // inside
        total += stride * (value % modulus if modulus else value)
    order = sorted(range(count), key=lambda k: running[k])
    rows = prod(e for e, runs in zip(extents, running, strict=True) if not runs)
    table: IntArray = total.reshape(extents).transpose(order).reshape(rows, -1)
    return table


def joined(loops: Sequence[Steps]) -> list[Steps]:
    """The same steps by fewer loops: a loop that continues the next one is merged with it."""
    merged: list[Steps] = []
    for inner in loops:
        if merged:
            merged[-1], combined = _neighbours(merged[-1], inner)
            merged.append(combined)
        else:
            merged.append(inner)
    merged = [(np.where(extent == 1, 0, stride), extent) for stride, extent in merged]
    return [(stride, extent) for stride, extent in merged if (extent > 1).any()]


def _neighbours(outer: Steps, inner: Steps) -> tuple[Steps, Steps]:
    """Two loops, merged into the second where one continues the other, or one is absent."""
    (stride, extent), (jump, times) = inner, outer
    absent = extent == 1
    merges = absent | (times == 1) | (jump == stride * extent)
    rest = (np.where(merges, 0, jump), np.where(merges, 1, times))
    together = np.where(absent, times, np.where(merges, extent * times, extent))
    return rest, (np.where(absent, jump, stride), together)


def folded(loop: Steps, cycle: int) -> Steps:
    """A loop modulo a cycle: one that completes a period takes every multiple of its unit."""
    stride, extent = loop
    unit = np.gcd(stride, cycle)
    period = cycle // unit
    periodic = extent >= period
    extent = np.where(periodic, period, extent)
    return np.where(extent == 1, 0, np.where(periodic, unit, stride % cycle)), extent


def shrunk(
    parts: Sequence[tuple[bool, IntArray]], digits: Sequence[Share]
) -> tuple[tuple[bool, ...], list[IntArray], list[Share]]:
    """Parts in steps that move some digit; neighbours that both run, or neither, are merged."""
    running: list[bool] = []
    extents: list[IntArray] = []
    for runs, extent in parts:
        if running and running[-1] == runs:
            extents[-1] = extents[-1] * extent
        else:
            running.append(runs)
            extents.append(extent)
    insides = [inside for _, inside, _ in digits]
    everything: BoolArray | bool = True
    for i in range(len(extents) - 1, -1, -1):
        common = np.where(everything, reduce(np.gcd, insides, extents[i]), 1)
        extents[i] = extents[i] // common
        insides = [inside // common for inside in insides]
        everything = everything & (extents[i] == 1)
    shares = [
        (stride, np.maximum(inside, 1), modulus)
        for (stride, _, modulus), inside in zip(digits, insides, strict=True)
    ]
    return tuple(running), extents, shares


def kinds(table: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct rows of a table, and for each row its index among them."""
    weights = _WEIGHTS[: table.shape[1]]
    _, first, which = np.unique(table @ weights, return_index=True, return_inverse=True)
    distinct, which = table[first], which.reshape(-1)
    if (distinct[which] != table).any():  # a hash collision
        distinct, which = np.unique(table, axis=0, return_inverse=True)
    return distinct, which.reshape(-1)


def widest(
    low: int,
    modulus: int,
    loops: Sequence[tuple[bool, IntArray, IntArray]],
    parts: Sequence[tuple[bool, IntArray]],
    digits: Sequence[Share],
) -> IntArray:
    """Largest interval of a quotient, int64 (K,).

    Parameters
    ----------
    low, modulus
        s and e.
    loops
        Whether each runs, its stride and extent, outermost first; at least one.
    parts
        Whether each part of the split loop runs, and its extent, the most significant first.
    digits
        Digits of the split loop that move A.
    """
    cycle = low * max(modulus, 1)
    still = joined([(stride, extent) for runs, stride, extent in loops if not runs])
    still = joined([folded(loop, cycle) for loop in still])
    moving = joined([(stride, extent) for runs, stride, extent in loops if runs])
    if modulus:
        moving = joined([folded(loop, cycle) for loop in moving])
    running, extents, shares = shrunk(parts if digits else (), digits)
    layout = Layout(low, modulus, len(still), len(moving), running, len(shares))
    columns = [c for loop in (*still, *moving) for c in loop] + extents
    columns += [c for share in shares for c in share]
    if not columns:
        return np.ones(len(loops[0][1]), np.int64)
    distinct, which = kinds(np.stack(columns, axis=1))
    widths = [spread(layout, tuple(numbers)) for numbers in distinct.tolist()]
    return np.array(widths, np.int64)[which]


def iterations(
    loops: Sequence[Steps], parts: Sequence[IntArray], digits: Sequence[Share]
) -> IntArray:
    """Approximate number of iterations to enumerate, int64 (K,)."""
    _, extents, _ = shrunk([(True, extent) for extent in parts] if digits else (), digits)
    total = np.ones_like(loops[0][1])
    for extent in (*(extent for _, extent in loops), *extents):
        total = total * extent
    return total
