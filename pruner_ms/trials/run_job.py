"""Inside a runner's worker: load an artifact, fill its arguments, time it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pruner_ms.trials.limits import give_back_pages
from pruner_ms.trials.worker import SpoiledWorkerError
from pruner_ms.tvm_compat.no_torch import torch_hidden
from pruner_ms.tvm_compat.threads import keep_apart

# Time a candidate in stages: a short look, then the whole time for those that may be the best.
#
# TVM's evaluator starts with a few runs, which are slow while its threads wake up, plans the next
# pass by them and often needs a third; of two passes of 100 ms one is thrown away. Here the plan
# comes from a look of 20 ms, and what the look shows to be far from the best is not timed further.


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


@dataclass(frozen=True)
class RunSettings:
    """What a runner's worker is told once; see `PersistentRunner` for the meanings."""

    evaluator_config: tuple[Any, ...]
    cooldown_sec: float
    alloc_repeat: int
    f_alloc_argument: str | Callable[..., Any] | None
    f_run_evaluator: str | Callable[..., Any] | None
    f_cleanup: str | Callable[..., Any] | None
    initializer: Callable[[], None] | None
    adaptive: bool = True

    @property
    def runs_user_code(self) -> bool:
        """Whether the worker calls functions that are not ours, which may want torch."""
        theirs = (self.f_alloc_argument, self.f_run_evaluator, self.f_cleanup, self.initializer)
        return any(f is not None for f in theirs)


def make_handler(settings: RunSettings) -> Callable[..., list[float]]:
    """Import TVM, look the user's functions up, and return the function that measures."""
    with torch_hidden(not settings.runs_user_code):
        from pruner_ms.tvm_compat import paths, processors, threads

    threads.use(processors.usable())  # first: a pool that is there never grows
    if settings.initializer is not None:
        settings.initializer()
    stock = paths.local_runner
    resolve = paths.ms.utils.get_global_func_with_default_on_worker
    allocate = resolve(settings.f_alloc_argument, partial(_allocated, stock.default_alloc_argument))
    clean_up = resolve(settings.f_cleanup, stock.default_cleanup)
    config = paths.ms.runner.EvaluatorConfig(*settings.evaluator_config)
    # a flushed cache is one that each pass flushes once: what TVM's own passes are, counts
    ours = settings.adaptive and not config.enable_cpu_cache_flush
    stages = StagedEvaluator()
    own = stages if ours else stock.default_run_evaluator
    evaluate = resolve(settings.f_run_evaluator, own)

    def handle(
        artifact: str, device_type: str, args_info: list[Any], number: int, batch: int
    ) -> list[float]:
        """Measure one artifact, its parallel loops on `number` threads.

        Returns seconds per run, one for each repeat and allocation.
        """
        give_back_pages()
        threads.use(number)
        device = paths.runtime.device(device_type, 0)
        stages.begin(batch)
        try:
            built = paths.runtime.load_module(artifact)
            arguments = allocate(device, args_info, settings.alloc_repeat)
            costs = [float(cost) for cost in evaluate(built, device, config, arguments)]
        except Exception as error:  # of any kind: what counts is whether the device still works
            _require_device(device, error)
            raise
        finally:
            clean_up()
        time.sleep(settings.cooldown_sec)
        return costs

    return handle


INDICES = ("int16", "int32", "int64", "uint16", "uint32", "uint64")
"""Types of arguments that are places in others more often than numbers."""


def _allocated(
    stock: Callable[..., list[list[Any]]], device: Any, args_info: list[Any], repeat: int
) -> list[list[Any]]:
    """Arguments filled as stock fills them, but for integers that may be indices: they are 1.

    A random one lies beyond the end of what it is an index of, and the candidate crashes; so it
    does where it divides by zero.
    """
    repeated = stock(device, args_info, repeat)
    for arguments in repeated:
        for argument in arguments:
            if str(argument.dtype) in INDICES:
                argument.copyfrom(np.ones(tuple(argument.shape), str(argument.dtype)))
    return repeated


def _require_device(device: Any, cause: Exception) -> None:
    """Raise `SpoiledWorkerError` when the device answers no more: CUDA's errors stick."""
    try:
        device.sync()
    except Exception as error:
        raise SpoiledWorkerError(f"the device is unusable after this run: {error}") from cause
