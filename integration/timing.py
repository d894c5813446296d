"""How long a compiled network takes, and two of them side by side.

One after the other is no comparison on a shared or warming machine: the two take turns, and the
spread is reported with the medians.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.clock import undisturbed
from pruner_ms.integration.relax import bound
from pruner_ms.tvm_compat import relax_paths, threads

REPEATS = 11
"""Of a timing, if they do not take too long."""

LIMIT = 20.0
"""Most seconds of a timing: one run of an untuned network may take five seconds, a hundred times
the tuned network's, and then more repeats do not change the verdict."""

_FEWEST = 3
"""Repeats that are done however long they take: fewer have no median."""


@dataclass(frozen=True)
class Timing:
    """Seconds per run of a network, one value for each repeat of `number` runs."""

    seconds: tuple[float, ...]
    number: int

    @property
    def median(self) -> float:
        """Median of the repeats, in seconds."""
        return float(np.median(self.seconds))

    @property
    def iqr(self) -> float:
        """Distance between the quartiles, in seconds."""
        low, high = np.quantile(self.seconds, (0.25, 0.75))
        return float(high - low)


@dataclass(frozen=True)
class Comparison:
    """Two networks that took turns.

    Attributes
    ----------
    before, after
        Their timings.
    speedup
        Ratio of the medians, before over after.
    low, high
        Quartiles of the ratios of neighbouring repeats.
    """

    before: Timing
    after: Timing
    speedup: float
    low: float
    high: float


def plan(first: float, repeats: int, min_repeat_sec: float, limit_sec: float) -> tuple[int, int]:
    """Runs per repeat, and repeats.

    Parameters
    ----------
    first
        Seconds that one run took.
    repeats
        Repeats wanted.
    min_repeat_sec
        Seconds that a repeat should take, against the clock's noise.
    limit_sec
        Seconds for all repeats; three are done however long they take.
    """
    number = max(1, math.ceil(min_repeat_sec / max(first, 1e-9)))
    affordable = int(limit_sec / max(number * first, 1e-9))
    return number, max(min(_FEWEST, repeats), min(repeats, affordable))


def compared(
    before: Sequence[float], after: Sequence[float], numbers: tuple[int, int]
) -> Comparison:
    """The comparison of two series of seconds per run, repeat by repeat."""
    first, second = Timing(tuple(before), numbers[0]), Timing(tuple(after), numbers[1])
    ratios = np.asarray(before, float) / np.asarray(after, float)
    low, high = np.quantile(ratios, (0.25, 0.75))
    return Comparison(first, second, first.median / second.median, float(low), float(high))


def time_model(
    executable: Any,
    target: Any,
    inputs: Sequence[npt.NDArray[Any]],
    repeats: int = REPEATS,
    min_repeat_sec: float = 0.1,
    limit_sec: float = LIMIT,
) -> Timing:
    """Time `main` on the target's first device, after one run to warm up and one to plan by.

    Parameters
    ----------
    executable
        From `relax.compile_model`.
    target
        A TVM `Target`.
    inputs
        Arrays, as `main` takes them.
    repeats, min_repeat_sec, limit_sec
        See `plan`.
    """
    run = _clocked(executable, target, inputs)
    number, count = plan(_first(run), repeats, min_repeat_sec, limit_sec)
    return Timing(tuple(run(number) for _ in range(count)), number)


def compare_timing(
    before: Any,
    after: Any,
    target: Any,
    inputs: Sequence[npt.NDArray[Any]],
    repeats: int = REPEATS,
    min_repeat_sec: float = 0.1,
    limit_sec: float = LIMIT,
) -> Comparison:
    """Time two executables of one network in turns; `limit_sec` is for both together.

    Parameters
    ----------
    before, after
        From `relax.compile_model`.
    target, inputs, repeats, min_repeat_sec, limit_sec
        See `time_model`.
    """
    runs = [_clocked(executable, target, inputs) for executable in (before, after)]
    plans = [plan(_first(run), repeats, min_repeat_sec, limit_sec / 2) for run in runs]
    numbers = (plans[0][0], plans[1][0])
    first, second = take_turns(runs, numbers, min(count for _, count in plans))
    return compared(first, second, numbers)


def take_turns(
    runs: Sequence[Callable[[int], float]], numbers: Sequence[int], count: int
) -> list[list[float]]:
    """Seconds per run of each program, in the order 1 2, 2 1, 1 2, ... so that none is favoured.

    Parameters
    ----------
    runs
        Functions of the number of runs that give seconds per run.
    numbers
        Number of runs for each.
    count
        Rounds.
    """
    series: list[list[float]] = [[] for _ in runs]
    for turn in range(count):
        order = range(len(runs)) if turn % 2 == 0 else reversed(range(len(runs)))
        for place in order:
            series[place].append(runs[place](numbers[place]))
    return series


def _clocked(
    executable: Any, target: Any, inputs: Sequence[npt.NDArray[Any]]
) -> Callable[[int], float]:
    """A function of the number of runs that gives seconds per run."""
    main, arrays = bound(executable, target, inputs)
    device, call = relax_paths.device_of(target), threads.caller(target)

    def timed(number: int) -> float:
        device.sync()
        start = time.perf_counter()
        for _ in range(number):
            main(*arrays)
        device.sync()
        return (time.perf_counter() - start) / number

    return lambda number: float(undisturbed(lambda: call(timed, number)))


def _first(run: Callable[[int], float]) -> float:
    run(1)
    return run(1)
