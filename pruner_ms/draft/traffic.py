"""Traffic between the levels of a CPU's caches.

For each cache, the outermost level of a nest whose regions stay in it is found; one level further
out they do not, so what that level touches is drawn from behind the cache at each of its trips.
Regions are counted in cache lines: a contiguous piece costs its first line alone ("lone") and
streams the lines that follow.
"""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.nest import Nest, Touch, at_level, first_level
from pruner_ms.hardware import Cache, HardwareSpec
from pruner_ms.types import FloatArray

FILL = 0.8
"""Share of a cache that a working set may fill before it is thrown out."""


def traffic_seconds(nest: Nest, hardware: HardwareSpec, tasks: FloatArray) -> dict[str, FloatArray]:
    """Seconds of one core's traffic out of each cache behind the first ("l2", "l3", "memory").

    Parameters
    ----------
    tasks
        Parallel tasks, (N,): cores in use share the memory's bandwidth.
    """
    core, caches = hardware.core, hardware.core.caches
    out = {name: np.zeros(nest.rows) for name in ("l2", "l3", "memory")}
    active = np.minimum(tasks, hardware.units)
    for i, (lone, streamed) in enumerate(missed_lines(nest, caches)):
        if i + 1 < len(caches):
            behind = caches[i + 1]
            each, rate = behind.line_cycles, np.full(nest.rows, behind.bytes_per_cycle)
        else:
            share = np.minimum(core.memory_bandwidth, hardware.memory_bandwidth / active)
            each, rate = core.memory_line_cycles, share / hardware.clock
        name = "memory" if i + 1 == len(caches) else ("l2", "l3")[min(i, 1)]
        cycles = lone * np.maximum(each, caches[i].line / rate) + streamed * caches[i].line / rate
        out[name] = out[name] + cycles / hardware.clock
    return out


def missed_lines(nest: Nest, caches: tuple[Cache, ...]) -> list[tuple[FloatArray, FloatArray]]:
    """Per cache, the lone and the streamed lines that a statement draws from behind it, (N,) each.

    A level's regions stay in a cache if all of them together fit. In the first, which is indexed
    by the address, no access may moreover need more lines of a set than the cache has ways: rows
    a power of two apart fall into few sets. Behind it pages are scattered.
    """
    line = caches[0].line
    pieces = [touch.region / touch.run for touch in nest.touches]
    lengths = [np.maximum(t.run * (t.buffer.itemsize / line), 1.0) for t in nest.touches]
    together = np.zeros((nest.depth + 1, nest.rows))
    for touch, count, length in zip(nest.touches, pieces, lengths, strict=True):
        together += count * length * (touch.mask * float(line))
    out = []
    for i, cache in enumerate(caches):
        fits = together <= FILL * cache.size
        shared_level = first_level(fits)
        lone, streamed = np.zeros(nest.rows), np.zeros(nest.rows)
        for touch, count, length in zip(nest.touches, pieces, lengths, strict=True):
            level = shared_level
            if i == 0:
                needed = ways_needed(touch, cache, count, np.ceil(length))
                level = first_level(fits & (needed <= cache.ways))
            outer = np.maximum(level - 1, 0)
            times = np.where(touch.mask & (level > 0), at_level(nest.trips, outer), 0.0)
            drawn = at_level(count, outer) * times * touch.factor
            lone += drawn
            streamed += drawn * (at_level(length, outer) - 1.0)
        out.append((lone, streamed))
    return out


def ways_needed(touch: Touch, cache: Cache, count: FloatArray, length: FloatArray) -> FloatArray:
    """Lines of the fullest set, when the pieces of an access start one buffer row apart, (P+1, N).

    Parameters
    ----------
    count, length
        Pieces per level, and lines of each, (P+1, N).
    """
    if not touch.buffer.shape:
        return np.zeros_like(count)
    pitch = touch.buffer.shape[-1] * touch.buffer.itemsize
    period = cache.sets * cache.line
    starts = np.minimum(period / np.gcd(pitch, period), cache.sets)
    sets = np.minimum(np.minimum(count, starts) * length, cache.sets)
    needed: FloatArray = count * length / sets
    return needed
