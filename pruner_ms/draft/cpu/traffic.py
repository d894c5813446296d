"""Traffic between the levels of a CPU's caches.

For each cache, find the outermost level of a nest whose regions fit. One level further out they do
not fit, so the regions of that level are loaded from behind the cache at each of its trips.
Regions are counted in cache lines: the first line of a contiguous piece costs a full miss ("lone"),
the lines that follow are streamed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import gcd
from typing import TypeAlias

import numpy as np

from pruner_ms.draft.columns import (
    Int,
    Num,
    ceiling,
    integer,
    larger,
    number,
    select,
    smaller,
    times,
    total,
    truth,
)
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.touch import Touch
from pruner_ms.hardware import Cache, HardwareSpec
from pruner_ms.symbolic.rows import Mask, both, possible, uniform_mask, without

FILL = 0.8
"""Share of a cache that a working set may fill before it is evicted."""


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
    core_bandwidth = smaller(core.memory_bandwidth, hardware.memory_bandwidth / active)
    for i, (cache, missed) in enumerate(zip(caches, missed_lines(nest, caches), strict=True)):
        rate: Num
        if i + 1 < len(caches):
            behind = caches[i + 1]
            lone_cycles, rate = behind.line_cycles, behind.bytes_per_cycle
        else:
            lone_cycles, rate = core.memory_line_cycles, core_bandwidth / hardware.clock
        name = "memory" if i + 1 == len(caches) else ("l2", "l3")[min(i, 1)]
        cycles = missed(larger(lone_cycles, cache.line / rate), cache.line / rate)
        out[name] = out[name] + cycles / hardware.clock
    return out


@dataclass(frozen=True)
class _Region:
    """The region of a touch in cache lines, for the levels at which it is the same.

    Attributes
    ----------
    count, length
        Contiguous pieces (0 where nothing is touched), and lines of each (a fraction, at least 1).
    lines
        Lines of all of them.
    """

    count: Num
    length: Num
    lines: Num

    def cost(self, extra_lone: Num, streamed: Num) -> Num:
        """Cost of loading it: of every line, and an extra cost of the first line of each piece."""
        return self.count * extra_lone + self.lines * streamed


@dataclass
class _Lines:
    """The lines of a nest's touches, level by level, computed lazily."""

    nest: Nest
    line: int
    _regions: dict[tuple[int, int, int], _Region] = field(default_factory=dict)
    _levels: dict[int, tuple[list[_Region], tuple[int, ...]]] = field(default_factory=dict)
    _sums: dict[tuple[int, ...], Num] = field(default_factory=dict)
    _drawn: dict[tuple[int, ...], _Region] = field(default_factory=dict)

    def of(self, place: int, level: int) -> _Region:
        """The region of a touch at a level."""
        touch = self.nest.touches[place]
        region, run = touch.elements(level), touch.contiguous(level)
        # a level whose loop moves no access has the same arrays as the one within
        key = (place, id(region), id(run))
        if key not in self._regions:
            length = larger(times(run, touch.buffer.itemsize / self.line), 1.0)
            count = select(touch.exists, region / run, 0.0)
            self._regions[key] = _Region(count, length, times(count, length))
        return self._regions[key]

    def _each(self, level: int) -> tuple[list[_Region], tuple[int, ...]]:
        """The regions of a level, and a key of them."""
        if level not in self._levels:
            each = [self.of(i, level) for i in range(len(self.nest.touches))]
            self._levels[level] = each, tuple(id(region) for region in each)
        return self._levels[level]

    def count(self, level: int) -> Num:
        """Lines of all touches together at a level."""
        each, key = self._each(level)
        if key not in self._sums:
            self._sums[key] = total(region.lines for region in each)
        return self._sums[key]

    def all(self, level: int) -> _Region:
        """The lines loaded of all touches together, as one region; its length is not used."""
        each, key = self._each(level)
        if key not in self._drawn:
            pairs = list(zip(each, self.nest.touches, strict=True))
            self._drawn[key] = _Region(
                total(times(region.count, touch.factor) for region, touch in pairs),
                1.0,
                total(times(region.lines, touch.factor) for region, touch in pairs),
            )
        return self._drawn[key]


Missed: TypeAlias = Callable[[Num, Num], Num]
"""Cost of a cache's misses, by the costs of a lone and of a streamed line."""


def missed_lines(nest: Nest, caches: tuple[Cache, ...]) -> list[Missed]:
    """Per cache, the cost of the lone and the streamed lines that miss it.

    A level's regions stay in a cache if all of them together fit. The first cache is indexed by
    the address, and there is a second condition: no access may need more lines of a set than the
    cache has ways. (Rows a power of two apart fall into few sets.) In later caches pages are
    scattered.
    """
    lines = _Lines(nest, caches[0].line)

    def first_level(fits: _Fits) -> Missed:
        def missed(lone: Num, streamed: Num) -> Num:
            parts: list[Num] = []
            for place, touch in enumerate(nest.touches):
                costs = times(lone, touch.factor), times(streamed, touch.factor)
                drawn = _Drawn(nest, partial(lines.of, place), *costs)
                parts.append(_at_misses(nest, _Stays(lines, place, caches[0], fits), drawn))
            return total(parts)

        return missed

    def behind(fits: _Fits) -> Missed:
        return lambda lone, streamed: _at_misses(
            nest, fits, _Drawn(nest, lines.all, lone, streamed)
        )

    fits = [_Fits(lines, FILL * cache.size / lines.line) for cache in caches]
    return [first_level(fits[0]), *(behind(one) for one in fits[1:])]


class _Drawn:
    """Cost of the lines of regions when they are loaded at each trip of a level."""

    def __init__(
        self, nest: Nest, region: Callable[[int], _Region], lone: Num, streamed: Num
    ) -> None:
        self.nest, self.region = nest, region
        self.extra_lone, self.streamed = lone - streamed, streamed
        self._cached: dict[int, Num] = {}

    def __call__(self, level: int) -> Num:
        region = self.region(level)
        if id(region) not in self._cached:
            self._cached[id(region)] = region.cost(self.extra_lone, self.streamed)
        return times(self._cached[id(region)], self.nest.above(level))


class _Fits:
    """Whether the regions of a level all fit into a cache, level by level.

    Parameters
    ----------
    capacity
        Lines that may fill it.
    """

    def __init__(self, lines: _Lines, capacity: float) -> None:
        self.lines, self.capacity = lines, capacity
        self._cached: dict[int, tuple[Num, Mask]] = {}

    def __call__(self, level: int) -> Mask:
        count = self.lines.count(level)
        if id(count) not in self._cached:
            self._cached[id(count)] = count, uniform_mask(truth(count <= self.capacity))
        return self._cached[id(count)][1]


def _at_misses(nest: Nest, stays: Callable[[int], Mask], drawn: Callable[[int], Num]) -> Num:
    """Cost of the loads at the level just outside the outermost one that fits.

    It is 0 where level 0 fits. Levels are tried from the outside in, until each row has one that
    fits. A loop of one iteration counts as no level.
    """
    parts: list[Num] = []
    left: Mask = True
    outside: int | None = None
    before: Mask = False
    for level, size in enumerate(nest.sizes):
        if isinstance(size, float) and size == 1.0:
            continue
        staying = stays(level)
        # rows that fit at the level outside were handled there
        leaves = False if staying is before else both(left, staying)
        if possible(leaves):
            if outside is not None:
                parts.append(select(leaves, drawn(outside), 0.0))
            left = without(left, leaves)
            if not possible(left):
                return total(parts)
        outside, before = level, staying
    if outside is not None:
        parts.append(select(left, drawn(outside), 0.0))
    return total(parts)


class _Stays:
    """Whether a touch's region stays in a cache that is indexed by the address."""

    def __init__(self, lines: _Lines, place: int, cache: Cache, fits: _Fits) -> None:
        self.lines, self.place, self.cache, self.fits = lines, place, cache, fits
        self.starts = _starts(lines.nest.touches[place], cache)
        self._ways_suffice: dict[int, Mask] = {}
        self._cached: dict[tuple[int, int], Mask] = {}

    def __call__(self, level: int) -> Mask:
        fits = self.fits(level)
        if self.starts is None or fits is False:
            return fits
        region = self.lines.of(self.place, level)
        key = (id(fits), id(region))
        if key not in self._cached:
            if id(region) not in self._ways_suffice:
                length = ceiling(region.length)
                self._ways_suffice[id(region)] = ways_suffice(
                    region.count, length, self.starts, self.cache
                )
            self._cached[key] = both(fits, self._ways_suffice[id(region)])
        return self._cached[key]


def ways_suffice(count: Num, length: Num, starts: Num, cache: Cache) -> Mask:
    """Whether no set of a cache has to hold more lines than it has ways.

    Pieces fill min(count, starts) * length sets, at most all of them.

    Parameters
    ----------
    count, length
        Pieces, and whole lines of each.
    starts
        Sets in which a piece can start.
    """
    ways = float(cache.ways)
    spread = truth(times(count, length) <= ways * cache.sets)
    return both(spread, truth(count <= times(starts, ways)))


def _starts(touch: Touch, cache: Cache) -> Num | None:
    if not touch.buffer.shape:
        return None
    period = cache.sets * cache.line
    pitch = integer(touch.buffer.shape[-1]) * touch.buffer.itemsize
    return smaller(period / _common(pitch, period), float(cache.sets))


def _common(pitch: Int, period: int) -> Num:
    """Greatest common divisor."""
    if isinstance(pitch, int):
        return float(gcd(pitch, period))
    if period & (period - 1) == 0:
        # with a power of two: the lowest bit that is set
        return number(np.minimum(pitch & -pitch, period))
    return number(np.gcd(pitch, period))
