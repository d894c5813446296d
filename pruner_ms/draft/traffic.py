"""Traffic between the levels of a CPU's caches.

For each cache, the outermost level of a nest whose regions stay in it is found; one level further
out they do not, so what that level touches is drawn from behind the cache at each of its trips.
Regions are counted in cache lines: a contiguous piece costs its first line alone ("lone") and
streams the lines that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


@dataclass
class _Lines:
    """The lines of a nest's touches, level by level, computed when asked for."""

    nest: Nest
    line: int
    _counts: dict[tuple[int, int], tuple[Num, Num]] = field(default_factory=dict)
    _drawn: dict[tuple[int, int], tuple[Num, Num]] = field(default_factory=dict)
    _bytes: dict[int, Num] = field(default_factory=dict)

    def of(self, place: int, level: int) -> tuple[Num, Num]:
        """Contiguous pieces of a touch at a level, and lines of each (a fraction, at least 1)."""
        touch = self.nest.touches[place]
        region, run = touch.elements(level), touch.contiguous(level)
        # a level at which nothing moves has the same arrays as the one within
        key = (id(region), id(run))
        if key not in self._counts:
            length = larger(times(run, touch.buffer.itemsize / self.line), 1.0)
            self._counts[key] = (region / run, length)
        return self._counts[key]

    def bytes(self, level: int) -> Num:
        """Bytes of all touches together at a level."""
        if level not in self._bytes:
            lines = total(
                select(touch.exists, times(*self.of(i, level)), 0.0)
                for i, touch in enumerate(self.nest.touches)
            )
            self._bytes[level] = times(lines, float(self.line))
        return self._bytes[level]

    def drawn(self, place: int, level: int) -> tuple[Num, Num]:
        """Lone and streamed lines that a touch draws when it is drawn at each trip of a level."""
        key = (place, level)
        if key not in self._drawn:
            touch = self.nest.touches[place]
            count, length = self.of(place, level)
            lone = times(times(count, touch.factor), self.nest.above(level))
            lone = select(touch.exists, lone, 0.0)
            self._drawn[key] = (lone, times(lone, length - 1.0))
        return self._drawn[key]

    def drawn_by(self, places: Sequence[int], level: int) -> tuple[Num, Num]:
        """The same for several touches together."""
        if len(places) == 1:
            return self.drawn(places[0], level)
        key = (-len(places), level)
        if key not in self._drawn:
            each = [self.drawn(place, level) for place in places]
            self._drawn[key] = (total(d[0] for d in each), total(d[1] for d in each))
        return self._drawn[key]


Missed: TypeAlias = Callable[[Num, Num], Num]
"""What lines cost that are drawn from behind a cache: of a lone and of a streamed one, to a sum."""


def missed_lines(nest: Nest, caches: tuple[Cache, ...]) -> list[Missed]:
    """Per cache, the lone and the streamed lines that a statement draws from behind it.

    A level's regions stay in a cache if all of them together fit. In the first, which is indexed
    by the address, no access may moreover need more lines of a set than the cache has ways: rows
    a power of two apart fall into few sets. Behind it pages are scattered.
    """
    lines = _Lines(nest, caches[0].line)
    everything = range(len(nest.touches))

    def first(fits: _Fits) -> Missed:
        def missed(lone: Num, streamed: Num) -> Num:
            return total(
                _at_misses(lines, [place], fits, lone, streamed, _Sets(lines, place, caches[0]))
                for place in everything
            )

        return missed

    def behind(fits: _Fits) -> Missed:
        return lambda lone, streamed: _at_misses(lines, everything, fits, lone, streamed)

    fits = [_Fits(lines, FILL * cache.size) for cache in caches]
    return [first(fits[0]), *(behind(one) for one in fits[1:])]


class _Fits:
    """Whether the regions of a level all fit into a cache, level by level."""

    def __init__(self, lines: _Lines, room: float) -> None:
        self.lines, self.room = lines, room
        self._known: dict[int, Mask] = {}

    def __call__(self, level: int) -> Mask:
        if level not in self._known:
            self._known[level] = truth(self.lines.bytes(level) <= self.room)
        return self._known[level]


def _at_misses(
    lines: _Lines,
    places: Sequence[int],
    fits: _Fits,
    lone: Num,
    streamed: Num,
    sets: _Sets | None = None,
) -> Num:
    """Cost of the lines drawn at the level just outside the outermost one that fits; 0 where level
    0 does.

    From the outside in, as long as some row does not fit yet.
    """
    found: Num = 0.0
    left: Mask = True
    for level in range(lines.nest.depth):
        stays = fits(level)
        if sets is not None and possible(stays):
            stays = both(stays, sets.enough(level))
        left = both(left, negate(stays))
        if not possible(left):
            break
        first, more = lines.drawn_by(places, level)
        found = select(left, first * lone + more * streamed, found)
    return found


class _Sets:
    """How many lines of one set a touch needs in a cache that is indexed by the address."""

    def __init__(self, lines: _Lines, place: int, cache: Cache) -> None:
        self.lines, self.place, self.cache = lines, place, cache
        touch = lines.nest.touches[place]
        self.starts = _starts(touch, cache)

    def enough(self, level: int) -> Mask:
        """Whether the cache has ways enough, when the pieces start one buffer row apart."""
        if self.starts is None:
            return True
        count, length = self.lines.of(self.place, level)
        needed = ways_needed(count, ceiling(length), self.starts, self.cache)
        return truth(needed <= self.cache.ways)


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
