"""A builder that keeps its workers and tells how long each build took."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from pruner_ms.trials.build_job import BuildSettings, make_handler
from pruner_ms.trials.failures import format_failure
from pruner_ms.trials.jobs import Answer, PoolOptions
from pruner_ms.trials.limits import default_memory_limit
from pruner_ms.trials.pool import Pool
from pruner_ms.tvm_compat.paths import derived_object, ms, save_json
from pruner_ms.types import FailureKind

TIMEOUT = 60.0
"""Seconds one build may take."""


def make_timed(tensorized: bool) -> Callable[..., list[Any]]:
    """In a worker: the function that builds, with the seconds it took.

    The tensor intrinsics are imported first where they are needed, so that no candidate pays them.
    """
    build = make_handler(BuildSettings(None, None, None, {}))
    if tensorized:
        from pruner_ms.tvm_compat.intrinsics import import_intrinsics

        import_intrinsics()

    def handle(*job: Any) -> list[Any]:
        start = time.perf_counter()
        path = build(*job)
        return [path, time.perf_counter() - start]

    return handle


@derived_object
class TimedBuilder(ms.builder.PyBuilder):
    """Builds as `trials.builder.PersistentBuilder` does.

    Attributes
    ----------
    builds
        (seconds or None, error or None) per candidate, in order; the caller takes them out.

    Parameters
    ----------
    tensorized
        Whether candidates use tensor instructions.
    workers
        Processes; the number of logical CPUs by default.
    """

    def __init__(self, tensorized: bool, workers: int | None = None) -> None:
        super().__init__()
        options = PoolOptions(
            max_workers=workers or os.cpu_count() or 1,
            timeout_sec=TIMEOUT,
            maximum_uses=256,
            memory_limit_bytes=default_memory_limit(),
            on_error=FailureKind.BUILD,
            on_timeout=FailureKind.BUILD_TIMEOUT,
        )
        self.pool = Pool(make_timed, (tensorized,), options)
        self.builds: list[tuple[float | None, str | None]] = []
        self._numbers = itertools.count()

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """Build a batch: `BuilderInput`s in, as many `BuilderResult`s out."""
        folders = [self.pool.home / f"artifact-{next(self._numbers)}" for _ in build_inputs]
        jobs: list[list[Any]] = []
        for item, folder in zip(build_inputs, folders, strict=True):
            folder.mkdir()
            jobs.append([save_json(item.mod), save_json(item.target), None, str(folder)])
        results: list[Any] = []
        for folder, answer in zip(folders, self.pool.map(jobs), strict=True):
            if isinstance(answer, Answer):
                path, seconds = answer.value
                self.builds.append((seconds, None))
                results.append(ms.builder.BuilderResult(path, None))
                continue
            shutil.rmtree(folder, ignore_errors=True)
            late = answer.kind is FailureKind.BUILD_TIMEOUT
            self.builds.append((None, "build timeout" if late else "build error"))
            results.append(ms.builder.BuilderResult(None, format_failure(answer)))
        return results

    def close(self) -> None:
        """End the workers."""
        self.pool.close()

    def __str__(self) -> str:
        return f"TimedBuilder({self.pool.options.max_workers} workers)"
