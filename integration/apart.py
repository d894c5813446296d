"""Schedules of tasks, tried in a separate process: one that crashes or hangs fails alone.

A kernel that ran when it was measured may still crash here: its arguments hold other numbers, and
some kernels use such numbers as positions in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from pruner_ms.errors import EnvironmentFault, last_line
from pruner_ms.integration import verify
from pruner_ms.integration.records import uses_tf32
from pruner_ms.integration.relax import TaskInfo
from pruner_ms.integration.verify import Check
from pruner_ms.trials.jobs import Answer, PoolOptions
from pruner_ms.trials.limits import default_memory_limit
from pruner_ms.trials.pool import Pool
from pruner_ms.tvm_compat.cuda_compiler import choose
from pruner_ms.tvm_compat.intrinsics import for_x86, import_intrinsics
from pruner_ms.tvm_compat.paths import load_own_json, save_json
from pruner_ms.types import Failed, FailureKind

log = logging.getLogger(__name__)

LIMIT_SECONDS = 300.0
"""Seconds that one comparison may take, on top of what the untuned function needs to run."""

_SLOWEST = 1e8
"""Operations a second of an untuned function, which runs in one thread and out of cache."""


def make_handler(target_text: str) -> Callable[..., str]:
    """The function that compares, in a worker: TVM is imported, and this module with it."""
    target = load_own_json(target_text)
    choose()
    if not for_x86(target):
        import_intrinsics()

    def handle(name: str, plain: str, scheduled: str, seed: list[int], tf32: bool) -> str:
        """What is wrong with a scheduled module, both as TVM's JSON; empty if nothing is."""
        pair = (load_own_json(plain), load_own_json(scheduled))
        rng = np.random.default_rng(seed)
        return verify.compare_modules(name, *pair, target, rng, tf32).message

    return handle


class Comparer:
    """Compares schedules of tasks with the tasks as they are: a `winners.Judge`.

    Parameters
    ----------
    target
        A TVM `Target` whose device is here.
    tasks
        Those whose schedules are compared.
    seed
        Of the arguments.
    allow_tf32
        Whether float32 products may be tf32.
    apart
        Whether in a worker; else in this process, which knows functions that its user registered.
    """

    def __init__(
        self, target: Any, tasks: Sequence[TaskInfo], seed: int, allow_tf32: bool, apart: bool
    ) -> None:
        self.target, self.seed, self.allow_tf32 = target, seed, allow_tf32
        self._numbers = {task.hash: number for number, task in enumerate(tasks)}
        longest = max((task.flops for task in tasks), default=0.0) / _SLOWEST
        options = PoolOptions(
            max_workers=1,
            timeout_sec=LIMIT_SECONDS + longest,
            maximum_uses=None,
            memory_limit_bytes=default_memory_limit(),
            on_error=FailureKind.RUN,
            on_timeout=FailureKind.RUN_TIMEOUT,
            preloaded=True,
        )
        self._pool = Pool(make_handler, (save_json(target),), options) if apart else None

    def __call__(self, task: TaskInfo, record: Any, scheduled: Any) -> Check:
        """Whether a schedule computes what its task does, or why it does not."""
        tf32 = self.allow_tf32 and uses_tf32(record)
        seed = [self.seed, self._numbers[task.hash]]
        try:
            message = self._message(task, scheduled, seed, tf32)
        except Exception as error:  # a program may be odd, and a kernel raises what it likes
            log.warning("%s cannot be compared", task.name, exc_info=error)
            message = last_line(error)
        return Check(task.name, not message, message)

    def _message(self, task: TaskInfo, scheduled: Any, seed: list[int], tf32: bool) -> str:
        if self._pool is not None:
            job = [task.name, save_json(task.mod), save_json(scheduled), seed, tf32]
            try:
                (answer,) = self._pool.map([job])
            except EnvironmentFault as error:
                log.warning("no worker to compare in, so it is done here: %s", error)
            else:
                if isinstance(answer, Answer):
                    return str(answer.value)
                log.warning("%s: %s", task.name, answer.message)
                return _sentence(answer)
        rng = np.random.default_rng(seed)
        return verify.compare_modules(
            task.name, task.mod, scheduled, self.target, rng, tf32
        ).message

    def __enter__(self) -> Comparer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.close()


def _sentence(failed: Failed) -> str:
    """Why there was no comparison: an error's last line; else the first, without the output."""
    lines = [line.strip() for line in failed.message.splitlines() if line.strip()]
    said = (lines or ["no reason given"])[-1 if failed.kind is FailureKind.RUN else 0]
    return said.removesuffix("; it printed:")[:300]
