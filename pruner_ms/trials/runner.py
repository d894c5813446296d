"""`PersistentRunner`: MetaSchedule's local runner, one candidate at a time, results checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from pruner_ms.clock import undisturbed
from pruner_ms.errors import OptionError
from pruner_ms.trials.checks import latency_check
from pruner_ms.trials.cores import cores_for
from pruner_ms.trials.failures import format_failure
from pruner_ms.trials.jobs import Answer, PoolOptions
from pruner_ms.trials.limits import default_memory_limit
from pruner_ms.trials.pool import Pool
from pruner_ms.trials.run_job import RunSettings, make_handler
from pruner_ms.tvm_compat.paths import derived_object, ms, plain
from pruner_ms.tvm_compat.threads import surprise, threads_for
from pruner_ms.types import Failed, FailureKind

_log = logging.getLogger(__name__)


@derived_object
class FinishedFuture(ms.runner.PyRunnerFuture):
    """The result of a measurement that is over."""

    def __init__(self, run_secs: list[float] | None, error_msg: str | None) -> None:
        super().__init__()
        self._result = (run_secs, error_msg)

    def done(self) -> bool:
        """Always true."""
        return True

    def result(self) -> Any:
        """The `RunnerResult`."""
        return ms.runner.RunnerResult(*self._result)

    def __str__(self) -> str:
        return f"FinishedFuture{self._result}"


@derived_object
class PersistentRunner(ms.runner.PyRunner):
    """Measure candidates in a persistent worker process, replaced when a candidate breaks it.

    A candidate is timed by TVM's evaluator: for the configured time if it may be the best of its
    batch, else for a short time (`pruner_ms.trials.run_job`). Latencies that are NaN, infinite,
    zero, negative, longer than the time limit or missing are failures of kind `nonfinite`, so they
    never enter a database.

    Parameters
    ----------
    timeout_sec
        Seconds one candidate may take, from loading to the last repeat.
    evaluator_config
        MetaSchedule's `EvaluatorConfig`; its defaults when None.
    cooldown_sec
        Seconds to wait after each candidate.
    alloc_repeat
        Number of allocations of the arguments; each is timed.
    f_alloc_argument, f_run_evaluator, f_cleanup
        As in the stock `LocalRunner`: functions, names of registered functions, or None.
    initializer
        Called once in the worker, after TVM is imported.
    max_workers
        Accepted, because MetaSchedule passes it, and ignored: two candidates at a time on one
        machine would disturb each other.
    maximum_uses
        Candidates after which the worker is replaced; None for never.
    memory_limit_bytes
        Memory limit of the worker; by default three quarters of the machine.
    adaptive
        Whether bad candidates are timed shortly; False: every candidate by the stock runner's
        `default_run_evaluator`.

    Raises
    ------
    OptionError
        A number is not positive.
    EnvironmentFault
        At the first use: the worker cannot be started, or a named function is not registered.
    """

    def __init__(
        self,
        timeout_sec: float = 30.0,
        evaluator_config: Any = None,
        cooldown_sec: float = 0.0,
        alloc_repeat: int = 1,
        f_alloc_argument: str | Callable[..., Any] | None = None,
        f_run_evaluator: str | Callable[..., Any] | None = None,
        f_cleanup: str | Callable[..., Any] | None = None,
        initializer: Callable[[], None] | None = None,
        *,
        max_workers: int | None = None,
        maximum_uses: int | None = 1024,
        memory_limit_bytes: int | None = None,
        adaptive: bool = True,
    ) -> None:
        super().__init__()
        if not cooldown_sec >= 0:
            raise OptionError(f"cooldown_sec={cooldown_sec!r} cannot be used; give 0 or more")
        if alloc_repeat < 1:
            raise OptionError(f"alloc_repeat={alloc_repeat!r} cannot be used; give 1 or more")
        self.timeout_sec = timeout_sec
        self._batches, self._in_batch = 0, False
        settings = RunSettings(
            evaluator_config=tuple(evaluator_config or ms.runner.EvaluatorConfig()),
            cooldown_sec=cooldown_sec,
            alloc_repeat=alloc_repeat,
            f_alloc_argument=f_alloc_argument,
            f_run_evaluator=f_run_evaluator,
            f_cleanup=f_cleanup,
            initializer=initializer,
            adaptive=adaptive,
        )
        options = PoolOptions(
            max_workers=1,
            timeout_sec=timeout_sec + cooldown_sec,
            maximum_uses=maximum_uses,
            memory_limit_bytes=(
                default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes
            ),
            on_error=FailureKind.RUN,
            on_timeout=FailureKind.RUN_TIMEOUT,
            preloaded=not settings.runs_user_code,
        )
        self.pool = Pool(make_handler, (settings,), options)

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Measure a batch: `RunnerInput`s in, as many finished `RunnerFuture`s out."""
        self._batches += not self._in_batch
        jobs = []
        for item in runner_inputs:
            artifact, kind = str(item.artifact_path), str(item.device_type)
            cores = cores_for(artifact)
            _warn(surprise(cores))
            signature, threads = _signature(item.args_info), threads_for(cores)
            jobs.append([artifact, kind, signature, threads, self._batches])
        return [self._future(undisturbed(partial(self._measured, job))) for job in jobs]

    def _measured(self, job: list[Any]) -> Answer | Failed:
        return self.pool.map([job])[0]

    @contextmanager
    def batch(self) -> Iterator[None]:
        """All measurements within are one batch, in any number of calls."""
        self._batches += 1
        self._in_batch = True
        try:
            yield
        finally:
            self._in_batch = False

    def _future(self, answer: Answer | Failed) -> Any:
        if isinstance(answer, Answer):
            run_secs = [float(sec) for sec in answer.value]
            wrong = latency_check(run_secs, self.timeout_sec)
            if wrong is None:
                return FinishedFuture(run_secs, None)
            answer = wrong
        return FinishedFuture(None, format_failure(answer))

    def warm_up(self) -> None:
        """Start the worker now, without waiting for it."""
        self.pool.warm_up()

    def close(self) -> None:
        """End the worker; automatic with the last reference."""
        self.pool.close()

    def __str__(self) -> str:
        return "PersistentRunner"


@cache
def _warn(text: str | None) -> None:
    """Log a warning, once."""
    if text is not None:
        _log.warning(text)


def _signature(args_info: Any) -> list[Any]:
    """Arguments as the JSON that `ArgInfo.as_json` gives: ["TENSOR", dtype, shape]."""
    return [plain(info.as_json()) for info in args_info]
