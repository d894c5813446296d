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

# Timing in stages: a short probe, then the full time for candidates that may be the best.
#
# TVM's evaluator starts with a few runs, which are slow while its threads wake up, plans the next
# pass by them and often needs a third; of two passes of 100 ms one is discarded. Here the plan
# comes from a probe of 20 ms, and candidates far from the best are not timed further.

PROBE_SECONDS = 0.02
"""Least seconds of the pass that plans the others."""

WORSE = 1.5
"""Latency, as a multiple of the best one, above which a candidate is not timed further."""

WINDOWS = 5
"""Parts of a repeat, of which the fastest counts: disturbances come in bursts and only slow a
kernel down (docs/constants.md)."""

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
        As in MetaSchedule's `EvaluatorConfig`: least runs of a repeat, number of repeats, and least
        seconds of a repeat.
    best
        Seconds per run of the best candidate that it competes with; None if there is none.

    Returns
    -------
    list of float
        `repeat` values, each from the fastest part of a repeat; the probe's value alone where
        `repeat` is 1 and the candidate takes more than `WORSE` times as long as the best.
    """
    estimate = probe(timer, min(PROBE_SECONDS, min_repeat_sec))
    if repeat == 1 and best is not None and estimate > WORSE * best:
        return [estimate]
    runs = max(number, _runs(min_repeat_sec, estimate))
    return [undisturbed(timer, runs) for _ in range(repeat)]


def undisturbed(timer: Timer, runs: int) -> float:
    """Seconds per run in the fastest of up to `WINDOWS` parts of so many runs."""
    windows = min(WINDOWS, runs)
    return float(min(timer(math.ceil(runs / windows), windows)))


def probe(timer: Timer, least: float) -> float:
    """Seconds per run by a short probe.

    One run if it lasts `least` seconds. Otherwise the faster of two passes of about that time: the
    first is slow while threads wake up (docs/constants.md).
    """
    (first,) = timer(1, 1)
    number = _runs(least, first)
    return float(first if number == 1 else min(timer(number, 2)))


def _runs(total: float, seconds: float) -> int:
    """Number of runs that last `total` seconds; a kernel takes at least 0.1 us."""
    return max(1, math.ceil(total / max(seconds, 1e-7)))


class StagedEvaluator:
    """`staged` in place of the stock runner's `default_run_evaluator`.

    The best is that of a batch, whose candidates are of one task; a task's best candidate is the
    best of its batch and therefore always timed in full.
    """

    def __init__(self) -> None:
        self._batch: object = None
        self._best: float | None = None

    def begin(self, batch: object) -> None:
        """The next measurements belong to this batch."""
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
    """Settings of a runner's worker; see `PersistentRunner` for the meanings."""

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
        """Whether the worker calls a user's functions, which may need torch."""
        theirs = (self.f_alloc_argument, self.f_run_evaluator, self.f_cleanup, self.initializer)
        return any(f is not None for f in theirs)


def make_handler(settings: RunSettings) -> Callable[..., list[float]]:
    """Import TVM, look the user's functions up, and return the function that measures."""
    with torch_hidden(not settings.runs_user_code):
        from pruner_ms.tvm_compat import paths, processors, threads

    threads.use(processors.usable())  # first: an existing thread pool never grows
    if settings.initializer is not None:
        settings.initializer()
    stock = paths.local_runner
    resolve = paths.ms.utils.get_global_func_with_default_on_worker
    allocate = resolve(settings.f_alloc_argument, partial(_allocated, stock.default_alloc_argument))
    clean_up = resolve(settings.f_cleanup, stock.default_cleanup)
    config = paths.ms.runner.EvaluatorConfig(*settings.evaluator_config)
    # with cache flushes each pass counts as TVM defines it: one flush per pass
    ours = settings.adaptive and not config.enable_cpu_cache_flush
    stages = StagedEvaluator()
    default = stages if ours else stock.default_run_evaluator
    evaluate = resolve(settings.f_run_evaluator, default)

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
        except Exception as error:  # of any class: check whether the device still works
            _require_device(device, error)
            raise
        finally:
            clean_up()
        time.sleep(settings.cooldown_sec)
        return costs

    return handle


INDICES = ("int16", "int32", "int64", "uint16", "uint32", "uint64")
"""Types of arguments that are usually indices."""


def _allocated(
    stock: Callable[..., list[list[Any]]], device: Any, args_info: list[Any], repeat: int
) -> list[list[Any]]:
    """Arguments filled as by stock, except that integers that may be indices are 1.

    A random index is out of bounds, and the candidate crashes; zeros could be divisors.
    """
    repeated = stock(device, args_info, repeat)
    for arguments in repeated:
        for argument in arguments:
            if str(argument.dtype) in INDICES:
                argument.copyfrom(np.ones(tuple(argument.shape), str(argument.dtype)))
    return repeated


def _require_device(device: Any, cause: Exception) -> None:
    """Raise `SpoiledWorkerError` if the device no longer responds: CUDA's errors are sticky."""
    try:
        device.sync()
    except Exception as error:
        raise SpoiledWorkerError(f"the device is unusable after this run: {error}") from cause
