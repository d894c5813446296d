"""Inside a runner's worker: load an artifact, fill its arguments, time it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pruner_ms.trials.limits import give_back_pages
from pruner_ms.trials.staged import StagedEvaluator
from pruner_ms.trials.worker import SpoiledWorkerError
from pruner_ms.tvm_compat.no_torch import torch_hidden


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
