"""Short measurements of the CPU this runs on, without a compiler: its clock and its bandwidths.

The clock comes from MD5, a chain of dependent additions and rotations that no core can run in
parallel: `MD5_CYCLES` a byte on every core with OpenSSL's or Python's own code. Peaks follow from
it, since ports and lanes are known; a BLAS would not do: OpenBLAS reaches 48 % of this peak on
Zen 5, where it runs its AVX2 kernels, and with several threads it measures the machine's load.
Arrays are read by `np.maximum.reduce` on integers, which draws some 33 bytes a cycle at most: a
faster cache is only known to be at least as fast.

All times but those of several cores are processor times of this thread, so that other processes
disturb them little.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

import numpy as np

from pruner_ms.hardware.spec import HardwareSpec
from pruner_ms.types import IntArray

MD5_CYCLES = 4.7
"""Cycles per byte of MD5 (4.7 on Zen 5 against a loop of multiply-adds; eBACS lists 4.5 to 5.0 for
x86-64 cores since 2013)."""

REPEATS = 7
NOISY = 1.5
"""A figure whose median is this much slower than its best was disturbed."""

_HASHED = 1 << 20
_READ_BYTES = 16 << 20
_MOST_MEMORY = 256 << 20
_LEAST_MEMORY = 64 << 20
"""Bytes hashed, bytes read per repetition, and of the array that is memory's."""

_MOST_THREADS = 16


@dataclass(frozen=True)
class Measured:
    """What was measured; None where the measurement was disturbed or not possible.

    Attributes
    ----------
    clock
        Hz of a core.
    levels
        Bytes per second that one core reads out of each cache, L1 first (None: too fast for
        numpy's calls).
    memory, memory_all
        Bytes per second out of memory, by one core and by all.
    """

    clock: float | None
    levels: tuple[float | None, ...]
    memory: float | None
    memory_all: float | None


def measured(row: HardwareSpec) -> Measured:
    """Measure this machine, in well under two seconds.

    Parameters
    ----------
    row
        The host as detected: it says how large the caches are.
    """
    sizes = [cache.size for cache in row.core.caches]
    # twice the last cache, so that little of the array is still in it
    beyond = max(2 * sizes[-1], _LEAST_MEMORY)
    large = np.ones(min(beyond, _MOST_MEMORY) // 8, np.int64)
    levels = [None, *(_cache(large, sizes, level) for level in range(1, len(sizes)))]
    if beyond > _MOST_MEMORY:
        return Measured(_clock(), tuple(levels), None, None)
    one = _rate(lambda: np.maximum.reduce(large), large.nbytes)
    return Measured(_clock(), tuple(levels), one, _together(large, row.units))


def _cache(large: IntArray, sizes: list[int], level: int) -> float | None:
    """Bytes per second out of a cache: of an array that stays in it and not in the one before."""
    size = min(max(sizes[level] // 2, min(2 * sizes[level - 1], sizes[level])), large.nbytes)
    part = large[: size // 8]
    calls = max(_READ_BYTES // size, 1)

    def read() -> None:
        for _ in range(calls):
            np.maximum.reduce(part)

    return _rate(read, calls * part.nbytes)


def _together(large: IntArray, cores: int) -> float | None:
    """Bytes per second out of memory by all cores, each reading its part."""
    threads = min(cores, _MOST_THREADS)
    parts = np.array_split(large, threads)
    with ThreadPoolExecutor(threads) as pool:
        return _rate(
            lambda: list(pool.map(np.maximum.reduce, parts)), large.nbytes, time.perf_counter
        )


def _clock() -> float | None:
    """Hz, by the speed of MD5."""
    data = bytes(_HASHED)
    try:
        rate = _rate(lambda: hashlib.md5(data, usedforsecurity=False), len(data))
    except ValueError:  # a Python without MD5
        return None
    return None if rate is None else rate * MD5_CYCLES


def _rate(
    work: Callable[[], object], amount: float, clock: Callable[[], float] = time.thread_time
) -> float | None:
    """Amount per second of the fastest of some repetitions; None where they differ too much."""
    work()
    seconds = []
    for _ in range(REPEATS):
        start = clock()
        work()
        seconds.append(clock() - start)
    best = min(seconds)
    if best <= 0 or median(seconds) > NOISY * best:
        return None
    return amount / best
