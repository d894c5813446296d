"""Time a candidate in stages: a short look, then the whole time for those that may be the best.

TVM's evaluator starts with a few runs, which are slow while its threads wake up, plans the next
pass by them and often needs a third; of two passes of 100 ms one is thrown away. Here the plan
comes from a look of 20 ms, and what the look shows to be far from the best is not timed further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pruner_ms.tvm_compat.threads import keep_apart

LOOK_SECONDS = 0.02
"""Least seconds of the pass that plans the others."""

WORSE = 1.5
"""A candidate that takes so many times the best one's latency is not timed further."""

WINDOWS = 5
"""Parts of a repeat, of which the fastest counts. What else runs on a machine slows a kernel down
in bursts and never speeds it up, and after an idle time, as before each batch, its first 60 ms may
run at half the speed. While a product was tuned on two cores, two measurements of a candidate
differed by 4 % or more in one of ten cases, by 10 % where the mean counted, and the first of a
batch was right, which the mean had 16 % too slow."""

Timer = Callable[[int, int], Sequence[float]]
"""Number of runs and repeats in, seconds per run of each repeat out, after one run to warm up."""


def staged(
    timer: Timer, number: int, repeat: int, min_repeat_sec: float, best: float | None
) -> list[float]:
    """Seconds per run of each repeat.

    Parameters
    ----------
    timer
        Runs the candidate.
    number, repeat, min_repeat_sec
        As in MetaSchedule's `EvaluatorConfig`: runs of a repeat at least, repeats, and seconds
        that a repeat takes at least.
    best
        Seconds per run of the best candidate that it competes with; None if there is none.

    Returns
    -------
    list of float
        `repeat` values, each that of its fastest part. One look's only where a single repeat is
        asked and the candidate is `WORSE` than the best: never for one that comes near it.
    """
    seen = look(timer, min(LOOK_SECONDS, min_repeat_sec))
    if repeat == 1 and best is not None and seen > WORSE * best:
        return [seen]
    runs = max(number, _runs(min_repeat_sec, seen))
    return [undisturbed(timer, runs) for _ in range(repeat)]


def undisturbed(timer: Timer, runs: int) -> float:
    """Seconds per run in the fastest of up to `WINDOWS` parts of so many runs."""
    windows = min(WINDOWS, runs)
    return float(min(timer(math.ceil(runs / windows), windows)))


def look(timer: Timer, least: float) -> float:
    """Seconds per run as a short look shows them.

    A run that lasts `least` seconds is enough. Of shorter ones, two passes of about so long are
    made, and the shorter is taken: until its threads are awake and on cores of their own, which
    takes some 10 ms, a kernel needs up to twice its time on two cores.
    """
    (first,) = timer(1, 1)
    number = _runs(least, first)
    return float(first if number == 1 else min(timer(number, 2)))


def _runs(total: float, seconds: float) -> int:
    """Runs that last so long in all; no kernel is taken to be faster than 0.1 us."""
    return max(1, math.ceil(total / max(seconds, 1e-7)))


class StagedEvaluator:
    """`staged` in the place of the stock runner's `default_run_evaluator`.

    The best is that of a batch, whose candidates are of one task: of a task's batches the best one
    holds its best candidate, which is therefore never timed shortly.
    """

    def __init__(self) -> None:
        self._batch: object = None
        self._best: float | None = None

    def begin(self, batch: object) -> None:
        """What comes next belongs to this batch."""
        if batch != self._batch:
            self._batch, self._best = batch, None

    def __call__(
        self, built: Any, device: Any, config: Any, repeated_args: Sequence[Sequence[Any]]
    ) -> list[float]:
        """Seconds per run: repeats of each allocation of the arguments, one after the other."""
        costs: list[float] = []
        for arguments in repeated_args:
            keep_apart()
            timer = _timer(built, device, arguments)
            times = (config.number, config.repeat, config.min_repeat_ms * 1e-3)
            costs += staged(timer, *times, self._best)
        mean = sum(costs) / len(costs)
        self._best = mean if self._best is None else min(mean, self._best)
        return costs


def _timer(built: Any, device: Any, arguments: Sequence[Any]) -> Timer:
    def timer(number: int, repeat: int) -> Sequence[float]:
        evaluator = built.time_evaluator(
            func_name=built.entry_name, dev=device, number=number, repeat=repeat, min_repeat_ms=0
        )
        device.sync()
        results: Sequence[float] = evaluator(*arguments).results
        return results

    return timer
