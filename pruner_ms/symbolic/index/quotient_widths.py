"""Widest interval of a quotient while some loops run, tried out once for every set of numbers.

What makes no difference is taken out of the numbers first, so that few sets are left and each has
few iterations: loops that continue each other are one, loops that stand still count modulo the
cycle, and parts of a cut loop that no digit sees are left out.

Notation
--------
A      what is divided: steps of loops, and of digits of one cut loop (`cuts`)
q      (A // s) mod e; without the mod where e is 0
cycle  s * e, or s where there is no mod: steps by a multiple of it never matter, or shift q
x      iteration of the cut loop, in mixed radix of its parts
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
"""Stride, iterations inside and modulus (0 for none) of a cut loop's digit, int64 (K,) each.

A digit that does not move q has a stride of 0 and nothing inside.
"""

_WEIGHTS = np.random.default_rng(0).integers(1, 1 << 62, 64) | 1
"""Of the columns of a table, in the hash of a row."""


@dataclass(frozen=True)
class Layout:
    """What a set of numbers means.

    Attributes
    ----------
    low, modulus
        s and e.
    still, moving
        How many loops stand still and run: a stride and an extent each.
    running
        Whether each part of the cut loop runs, the most significant first: an extent each.
    digits
        How many digits of it move A: a stride, iterations inside and a modulus each.
    """

    low: int
    modulus: int
    still: int
    moving: int
    running: tuple[bool, ...]
    digits: int


@lru_cache(maxsize=1 << 17)
def spread(layout: Layout, numbers: tuple[int, ...]) -> int:
    """Largest interval of q, by trying out every iteration that matters."""
    low, modulus = layout.low, layout.modulus
    still = combinations(numbers[: 2 * layout.still])
    rest = numbers[2 * layout.still :]
    moving = combinations(rest[: 2 * layout.moving])
    table = shares_of(layout.running, layout.digits, rest[2 * layout.moving :])
    if not modulus:  # then q grows with A
        least = table.min(axis=1) + still[:, None] + moving.min()
        most = table.max(axis=1) + still[:, None] + moving.max()
        return int((most // low - least // low).max()) + 1
    if len(table) == 1:
        residues = np.bincount(((table[0][:, None] + moving) % (low * modulus)).ravel())
        table, moving = np.flatnonzero(residues)[None, :], np.zeros(1, np.int64)
    found = still[:, None, None, None] + table[:, :, None] + moving
    q = quotient(found, low, modulus).reshape(len(still) * len(table), -1)
    return int((q.max(axis=1) - q.min(axis=1)).max()) + 1


def quotient(a: IntArray, low: int, modulus: int) -> Narrow:
    """(a // s) mod e of numbers that fit into 32 bits; no mod where e is 0."""
    found: Narrow = a.astype(np.int32)
    if low > 1:
        found //= np.int32(low)
    if modulus:  # divisions by one number are vectorized, remainders are not
        found -= found // np.int32(modulus) * np.int32(modulus)
    return found


def combinations(numbers: Sequence[int]) -> IntArray:
    """Every sum of steps of some loops."""
    found = np.zeros(1, np.int64)
    for stride, extent in zip(numbers[::2], numbers[1::2], strict=True):
        if extent > 1:
            found = (found[:, None] + stride * np.arange(extent)).ravel()
    return found


@lru_cache(maxsize=1 << 10)
def shares_of(running: tuple[bool, ...], digits: int, numbers: tuple[int, ...]) -> IntArray:
    """What digits add to A, (iterations that stand still, iterations that run).

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
    found: IntArray = total.reshape(extents).transpose(order).reshape(rows, -1)
    return found


def joined(loops: Sequence[Steps]) -> list[Steps]:
    """The same steps by fewer loops: one that goes on where the next one ends is part of that."""
    found: list[Steps] = []
    for inner in loops:
        if found:
            found[-1], kept = _neighbours(found[-1], inner)
            found.append(kept)
        else:
            found.append(inner)
    found = [(np.where(extent == 1, 0, stride), extent) for stride, extent in found]
    return [(stride, extent) for stride, extent in found if (extent > 1).any()]


def _neighbours(outer: Steps, inner: Steps) -> tuple[Steps, Steps]:
    """Two loops, the first in the second where that is one, or where one of them is absent."""
    (stride, extent), (jump, times) = inner, outer
    absent = extent == 1
    taken = absent | (times == 1) | (jump == stride * extent)
    rest = (np.where(taken, 0, jump), np.where(taken, 1, times))
    together = np.where(absent, times, np.where(taken, extent * times, extent))
    return rest, (np.where(absent, jump, stride), together)


def folded(loop: Steps, cycle: int) -> Steps:
    """A loop modulo a cycle: one that goes round takes every multiple of its unit."""
    stride, extent = loop
    unit = np.gcd(stride, cycle)
    period = cycle // unit
    whole = extent >= period
    extent = np.where(whole, period, extent)
    return np.where(extent == 1, 0, np.where(whole, unit, stride % cycle)), extent


def shrunk(
    parts: Sequence[tuple[bool, IntArray]], digits: Sequence[Share]
) -> tuple[tuple[bool, ...], list[IntArray], list[Share]]:
    """Parts with neighbours that run together as one, in steps that some digit sees."""
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
    kept = [
        (stride, np.maximum(inside, 1), modulus)
        for (stride, _, modulus), inside in zip(digits, insides, strict=True)
    ]
    return tuple(running), extents, kept


def kinds(table: IntArray) -> tuple[IntArray, IntArray]:
    """Different rows of a table, and which of them each row is."""
    weights = _WEIGHTS[: table.shape[1]]
    _, first, which = np.unique(table @ weights, return_index=True, return_inverse=True)
    found, which = table[first], which.reshape(-1)
    if (found[which] != table).any():  # two of them have one hash
        found, which = np.unique(table, axis=0, return_inverse=True)
    return found, which.reshape(-1)


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
        Whether each part of the cut loop runs, and its extent, the most significant first.
    digits
        Digits of the cut loop that move A.
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
    found, which = kinds(np.stack(columns, axis=1))
    widths = [spread(layout, tuple(numbers)) for numbers in found.tolist()]
    return np.array(widths, np.int64)[which]


def iterations(
    loops: Sequence[Steps], parts: Sequence[IntArray], digits: Sequence[Share]
) -> IntArray:
    """About how many iterations are tried out, int64 (K,)."""
    _, extents, _ = shrunk([(True, extent) for extent in parts] if digits else (), digits)
    total = np.ones_like(loops[0][1])
    for extent in (*(extent for _, extent in loops), *extents):
        total = total * extent
    return total
