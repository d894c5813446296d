"""`PersistentBuilder`: MetaSchedule's local builder with persistent workers."""

from __future__ import annotations

import base64
import itertools
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pruner_ms.trials import build_times, persistent
from pruner_ms.trials.build_job import BuildSettings, make_handler
from pruner_ms.trials.failures import format_failure
from pruner_ms.trials.jobs import Answer, PoolOptions
from pruner_ms.trials.limits import default_memory_limit
from pruner_ms.trials.pool import Pool
from pruner_ms.tvm_compat.paths import derived_object, module_key, ms, runtime, save_json
from pruner_ms.tvm_compat.processors import usable
from pruner_ms.types import Failed, FailureKind


@derived_object
class PersistentBuilder(ms.builder.PyBuilder):
    """Build candidates in worker processes that persist over batches.

    The stock builder starts its workers anew for each batch, and each of them imports the tensor
    intrinsics. Here workers are forked from a fork server that has imported TVM (on Linux, unless
    they call functions of the user), and import the intrinsics only when a program that uses them
    does not build without. A candidate that crashes, loops, exits or takes too much memory fails
    alone; its `error_msg` can be parsed by `failures.parse_failure`.

    Parameters
    ----------
    max_workers
        Most worker processes; by default the logical CPUs that this process may use.
    timeout_sec
        Seconds one build may take; its worker is then killed with its children.
    f_build
        `f_build(mod, target, params) -> Module`, or the name of a registered function. It is
        called inside the target and a `PassContext`.
    f_export
        `f_export(module) -> path`, or a name. By default an archive in a separate folder, which
        MetaSchedule's `RemoveBuildArtifact` removes after the batch and `close` at the end.
    initializer
        Called once in each worker, after TVM is imported.
    pass_config
        For the `PassContext`, on top of `tvm_compat.passes.default_pass_config`.
    maximum_uses
        Builds after which a worker is replaced (TVM leaks a little with each); None for never.
    memory_limit_bytes
        Memory limit of a worker; by default three quarters of the machine.

    Raises
    ------
    OptionError
        A number is not positive.
    EnvironmentFault
        At the first use: the workers cannot be started, or a named function is not registered.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: str | Callable[..., Any] | None = None,
        f_export: str | Callable[..., Any] | None = None,
        initializer: Callable[[], None] | None = None,
        pass_config: Mapping[str, Any] | None = None,
        maximum_uses: int | None = 256,
        memory_limit_bytes: int | None = None,
    ) -> None:
        super().__init__()
        settings = BuildSettings(f_build, f_export, initializer, dict(pass_config or {}))
        options = PoolOptions(
            max_workers=usable() if max_workers is None else max_workers,
            timeout_sec=timeout_sec,
            maximum_uses=maximum_uses,
            memory_limit_bytes=(
                default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes
            ),
            on_error=FailureKind.BUILD,
            on_timeout=FailureKind.BUILD_TIMEOUT,
            preloaded=not settings.runs_user_code,
        )
        self.pool = Pool(make_handler, (settings,), options)
        self._numbers = itertools.count()
        persistent.register(self.pool)

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """Build a batch: `BuilderInput`s in, as many `BuilderResult`s out."""
        folders = [self.pool.home / f"artifact-{next(self._numbers)}" for _ in build_inputs]
        jobs: list[list[Any]] = []
        for item, folder in zip(build_inputs, folders, strict=True):
            folder.mkdir()
            mod, target = save_json(item.mod), save_json(item.target)
            jobs.append([mod, target, _write_params(item.params), str(folder)])
        results: list[Any] = []
        answers = self.pool.map(jobs)
        for item, folder, answer in zip(build_inputs, folders, answers, strict=True):
            self._note(item.mod, answer)
            if isinstance(answer, Answer):
                with suppress(OSError):  # a user's `f_export` writes elsewhere, and leaves it empty
                    folder.rmdir()
                results.append(ms.builder.BuilderResult(answer.value, None))
            else:
                shutil.rmtree(folder, ignore_errors=True)
                results.append(ms.builder.BuilderResult(None, format_failure(answer)))
        return results

    def _note(self, mod: Any, answer: Answer | Failed) -> None:
        if isinstance(answer, Answer):
            build_times.note(module_key(mod), answer.seconds)
        elif answer.kind is FailureKind.BUILD_TIMEOUT:
            build_times.note(module_key(mod), self.pool.options.timeout_sec)

    def warm_up(self) -> None:
        """Start the workers now, without waiting for them."""
        self.pool.warm_up()

    def close(self) -> None:
        """End the workers and remove all artifacts; automatic with the last reference."""
        self.pool.close()

    def __str__(self) -> str:
        return f"PersistentBuilder({self.pool.options.max_workers} workers)"


def _write_params(params: Any) -> str | None:
    if params is None:
        return None
    return base64.b64encode(bytes(runtime.save_param_dict(params))).decode()
