"""Short measurements of the CPU this runs on, with numpy alone: multiply-adds and bandwidths.

Arrays are read by `np.maximum.reduce` (one vector load per vector, no arithmetic that waits), row
by row of a view whose rows overlap, so that one call reads a small array many times. Multiply-adds
are those of the BLAS behind `np.matmul`, which reaches `BLAS_SHARE` of a core's peak.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

import numpy as np

from pruner_ms.hardware.spec import HardwareSpec
from pruner_ms.types import FloatArray

BLAS_SHARE = 0.9
"""What a BLAS makes of a core's peak on matrices of 512."""

REPEATS = 5
NOISY = 1.5
"""A figure whose median is this much slower than its best was disturbed."""

_READ_BYTES = 16 << 20
"""Bytes read per repetition of a cache: half a millisecond to a few."""

_MOST_MEMORY = 256 << 20
"""Largest array allocated, bytes."""

_MOST_THREADS = 16


@dataclass(frozen=True)
class Measured:
    """What was measured; None where the measurement was disturbed or not possible.

    Attributes
    ----------
    flops
        float32 operations per second of one core.
    levels
        Bytes per second that one core reads out of each cache, L1 first.
    memory, memory_all
        Bytes per second out of memory, by one core and by all.
    """

    flops: float | None
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
    levels = [_read_rate(_working_set(sizes, level), _READ_BYTES) for level in range(len(sizes))]
    # four times the last cache, so that little of the array is still in it
    beyond = 4 * sizes[-1]
    if beyond > _MOST_MEMORY:
        return Measured(_flops(), tuple(levels), None, None)
    large = np.ones(beyond // 4, np.float32)
    one = _rate(lambda: np.maximum.reduce(large), large.nbytes)
    return Measured(_flops(), tuple(levels), one, _together(large, row.units))


def _working_set(sizes: list[int], level: int) -> int:
    """Bytes that stay in a cache and not in the one before."""
    within = sizes[level - 1] if level else 0
    return max(sizes[level] // 2, min(2 * within, sizes[level]))


def _read_rate(size: int, total: int) -> float | None:
    """Bytes per second out of a working set of `size` bytes."""
    count = size // 4
    base = np.ones(count, np.float32)
    rows = max(total // size, 2)
    view = np.lib.stride_tricks.as_strided(base, (rows, count), (0, 4), writeable=False)
    out = np.empty(rows, np.float32)
    return _rate(lambda: np.maximum.reduce(view, axis=1, out=out), rows * size)


def _together(large: FloatArray | np.typing.NDArray[np.float32], cores: int) -> float | None:
    """Bytes per second out of memory by all cores, each reading its part."""
    threads = min(cores, _MOST_THREADS)
    parts = np.array_split(large, threads)
    with ThreadPoolExecutor(threads) as pool:
        return _rate(lambda: list(pool.map(np.maximum.reduce, parts)), large.nbytes)


def _flops() -> float | None:
    """float32 operations per second and core of the BLAS, scaled to the peak.

    By processor time, so that the number of threads that it takes plays no part.
    """
    size = 512
    a = np.ones((size, size), np.float32)
    out = np.empty_like(a)

    def multiply() -> None:
        for _ in range(4):
            np.matmul(a, a, out=out)

    rate = _rate(multiply, 4 * 2 * size**3, time.process_time)
    return None if rate is None else rate / BLAS_SHARE


def _rate(
    work: Callable[[], object], amount: float, clock: Callable[[], float] = time.perf_counter
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
