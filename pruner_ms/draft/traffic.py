"""Traffic between the levels of a CPU's caches.

For each cache, the outermost level of a nest whose regions stay in it is found; one level further
out they do not, so what that level touches is drawn from behind the cache at each of its trips.
Regions are counted in cache lines: a contiguous piece costs its first line alone ("lone") and
streams the lines that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import gcd
from typing import TypeAlias

import numpy as np

from pruner_ms.draft.columns import (
    Mask,
    Num,
    Whole,
    both,
    ceiling,
    larger,
    negate,
    number,
    possible,
    select,
    smaller,
    times,
    total,
    truth,
    whole,
)
from pruner_ms.draft.nest import Nest, Touch
from pruner_ms.hardware import Cache, HardwareSpec

FILL = 0.8
"""Share of a cache that a working set may fill before it is thrown out."""


def traffic_seconds(nest: Nest, hardware: HardwareSpec, tasks: Num) -> dict[str, Num]:
    """Seconds of one core's traffic out of each cache behind the first ("l2", "l3", "memory").

    Parameters
    ----------
    tasks
        Parallel tasks: cores in use share the memory's bandwidth.
    """
    core, caches = hardware.core, hardware.core.caches
    out: dict[str, Num] = dict.fromkeys(("l2", "l3", "memory"), 0.0)
    active = smaller(tasks, float(hardware.units))
    share = smaller(core.memory_bandwidth, hardware.memory_bandwidth / active)
    for i, (cache, missed) in enumerate(zip(caches, missed_lines(nest, caches), strict=True)):
        rate: Num
        if i + 1 < len(caches):
            behind = caches[i + 1]
            each, rate = behind.line_cycles, behind.bytes_per_cycle
        else:
            each, rate = core.memory_line_cycles, share / hardware.clock
        name = "memory" if i + 1 == len(caches) else ("l2", "l3")[min(i, 1)]
        cycles = missed(larger(each, cache.line / rate), cache.line / rate)
        out[name] = out[name] + cycles / hardware.clock
    return out


@dataclass(frozen=True)
class _Region:
    """What a touch asks for at the levels at which its region is the same.

    Attributes
    ----------
    count, length
        Contiguous pieces, and lines of each (a fraction, at least 1).
    lines
        Lines of all of them; 0 where nothing is touched.
    lone, drawn
        Pieces and lines that are drawn when the region is: a written line is first read.
    """

    count: Num
    length: Num
    lines: Num
    lone: Num
    drawn: Num

    def cost(self, first: Num, streamed: Num) -> Num:
        """Cost of drawing it, from what a streamed line costs and a lone one does on top of it."""
        return self.lone * first + self.drawn * streamed


@dataclass
class _Lines:
    """The lines of a nest's touches, level by level, computed when asked for."""

    nest: Nest
    line: int
    _regions: dict[tuple[int, int, int], _Region] = field(default_factory=dict)
    _sums: dict[int, _Region] = field(default_factory=dict)
    _bytes: dict[int, Num] = field(default_factory=dict)

    def of(self, place: int, level: int) -> _Region:
        """The region of a touch at a level."""
        touch = self.nest.touches[place]
        region, run = touch.elements(level), touch.contiguous(level)
        # a level at which nothing moves has the same arrays as the one within
        key = (place, id(region), id(run))
        if key not in self._regions:
            length = larger(times(run, touch.buffer.itemsize / self.line), 1.0)
            count = region / run
            lines = select(touch.exists, times(count, length), 0.0)
            lone = times(select(touch.exists, count, 0.0), touch.factor)
            self._regions[key] = _Region(count, length, lines, lone, times(lines, touch.factor))
        return self._regions[key]

    def bytes(self, level: int) -> Num:
        """Bytes of all touches together at a level."""
        if level not in self._bytes:
            lines = total(self.of(i, level).lines for i in range(len(self.nest.touches)))
            self._bytes[level] = times(lines, float(self.line))
        return self._bytes[level]

    def all(self, level: int) -> _Region:
        """The regions of all touches together; only what is drawn of them is meant."""
        if level not in self._sums:
            each = [self.of(i, level) for i in range(len(self.nest.touches))]
            lone, drawn = total(r.lone for r in each), total(r.drawn for r in each)
            self._sums[level] = _Region(0.0, 0.0, 0.0, lone, drawn)
        return self._sums[level]


Missed: TypeAlias = Callable[[Num, Num], Num]
"""What lines cost that are drawn from behind a cache: of a lone and of a streamed one, to a sum."""


def missed_lines(nest: Nest, caches: tuple[Cache, ...]) -> list[Missed]:
    """Per cache, the lone and the streamed lines that a statement draws from behind it.

    A level's regions stay in a cache if all of them together fit. In the first, which is indexed
    by the address, no access may moreover need more lines of a set than the cache has ways: rows
    a power of two apart fall into few sets. Behind it pages are scattered.
    """
    lines = _Lines(nest, caches[0].line)

    def first(fits: _Fits) -> Missed:
        def missed(lone: Num, streamed: Num) -> Num:
            parts: list[Num] = []
            for place in range(len(nest.touches)):
                drawn = _Drawn(nest, partial(lines.of, place), lone, streamed)
                parts.append(_at_misses(nest, _Stays(lines, place, caches[0], fits), drawn))
            return total(parts)

        return missed

    def behind(fits: _Fits) -> Missed:
        return lambda lone, streamed: _at_misses(
            nest, fits, _Drawn(nest, lines.all, lone, streamed)
        )

    fits = [_Fits(lines, FILL * cache.size) for cache in caches]
    return [first(fits[0]), *(behind(one) for one in fits[1:])]


class _Drawn:
    """Cost of the lines of regions when they are drawn at each trip of a level."""

    def __init__(
        self, nest: Nest, region: Callable[[int], _Region], lone: Num, streamed: Num
    ) -> None:
        self.nest, self.region, self.first, self.streamed = nest, region, lone - streamed, streamed
        self._known: dict[int, Num] = {}

    def __call__(self, level: int) -> Num:
        region = self.region(level)
        if id(region) not in self._known:
            self._known[id(region)] = region.cost(self.first, self.streamed)
        return times(self._known[id(region)], self.nest.above(level))


class _Fits:
    """Whether the regions of a level all fit into a cache, level by level."""

    def __init__(self, lines: _Lines, room: float) -> None:
        self.lines, self.room = lines, room
        self._known: dict[int, Mask] = {}

    def __call__(self, level: int) -> Mask:
        if level not in self._known:
            self._known[level] = truth(self.lines.bytes(level) <= self.room)
        return self._known[level]


def _at_misses(nest: Nest, stays: Callable[[int], Mask], drawn: Callable[[int], Num]) -> Num:
    """Cost of what is drawn at the level just outside the outermost one that stays; 0 where level 0
    does.

    From the outside in, as long as some row does not stay yet. A loop of one iteration is no level.
    """
    parts: list[Num] = []
    left: Mask = True
    outside: int | None = None
    for level, size in enumerate(nest.sizes):
        if isinstance(size, float) and size == 1.0:
            continue
        leaves = both(left, stays(level))
        if possible(leaves):
            if outside is not None:
                parts.append(select(leaves, drawn(outside), 0.0))
            left = both(left, negate(leaves))
            if not possible(left):
                return total(parts)
        outside = level
    if outside is not None:
        parts.append(select(left, drawn(outside), 0.0))
    return total(parts)


class _Stays:
    """Whether a touch's region stays in a cache that is indexed by the address."""

    def __init__(self, lines: _Lines, place: int, cache: Cache, fits: _Fits) -> None:
        self.lines, self.place, self.cache, self.fits = lines, place, cache, fits
        self.starts = _starts(lines.nest.touches[place], cache)
        self._known: dict[int, Mask] = {}

    def __call__(self, level: int) -> Mask:
        fits = self.fits(level)
        if self.starts is None or not possible(fits):
            return fits
        region = self.lines.of(self.place, level)
        if id(region) not in self._known:
            needed = ways_needed(region.count, ceiling(region.length), self.starts, self.cache)
            self._known[id(region)] = truth(needed <= self.cache.ways)
        return both(fits, self._known[id(region)])


def ways_needed(count: Num, length: Num, starts: Num, cache: Cache) -> Num:
    """Lines of the fullest set.

    Parameters
    ----------
    count, length
        Pieces, and whole lines of each.
    starts
        Sets in which a piece can start.
    """
    sets = smaller(times(smaller(count, starts), length), float(cache.sets))
    return times(count, length) / sets


def _starts(touch: Touch, cache: Cache) -> Num | None:
    if not touch.buffer.shape:
        return None
    period = cache.sets * cache.line
    pitch = whole(touch.buffer.shape[-1]) * touch.buffer.itemsize
    return smaller(period / _common(pitch, period), float(cache.sets))


def _common(pitch: Whole, period: int) -> Num:
    """Greatest common divisor."""
    if isinstance(pitch, int):
        return float(gcd(pitch, period))
    if period & (period - 1) == 0:
        # with a power of two: the lowest bit that is set
        return number(np.minimum(pitch & -pitch, period))
    return number(np.gcd(pitch, period))
