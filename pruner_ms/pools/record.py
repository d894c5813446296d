"""`pool record`: measure schedules, and pack them.

Search, cost model, space and runner of the halves "random" and "evolved" are stock. Only the
builder is ours, because its workers are persistent (the stock one starts them anew for every
batch). The half "drafted" is chosen at random among the explorer's candidates. `Workers` can be
shared by many pools. meta.json states what was used.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pruner_ms.errors import OptionError
from pruner_ms.hardware.nvidia import gpu_said
from pruner_ms.pools.machine import cpu_model
from pruner_ms.pools.workloads import TENSORCORE, Workload
from pruner_ms.records import archive
from pruner_ms.records.archive import SUFFIX, write_archive
from pruner_ms.registry import register
from pruner_ms.search.replay import SEED_RANGE
from pruner_ms.symbolic.buildable import STATIC_SHARED
from pruner_ms.tensorcore.targets import SHARED, opted_in
from pruner_ms.trials.build_job import BuildSettings, make_handler
from pruner_ms.trials.failures import format_failure
from pruner_ms.trials.jobs import Answer, PoolOptions
from pruner_ms.trials.limits import default_memory_limit
from pruner_ms.trials.pool import Pool
from pruner_ms.trials.runner import PersistentRunner
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import (
    VERSION,
    Schedule,
    Trace,
    TuneContext,
    derived_object,
    ms,
    plain,
    save_json,
)
from pruner_ms.tvm_compat.targets import parse_target, with_attribute
from pruner_ms.types import FailureKind

# Uniform samples of the design spaces that a postprocessor refuses.

WANTED, TRIES = 48, 400


def refused_traces(
    mod: Any, target: Any, space: str, seed: int, wanted: int = WANTED, tries: int = TRIES
) -> tuple[dict[str, int], list[Any]]:
    """Sample as stock does, and collect the traces that the postprocessors refuse.

    Parameters
    ----------
    mod, target, space
        The task, and the generator of its design spaces.
    seed
        The same one gives the same samples.
    wanted, tries
        Refused traces and samples after which to stop.

    Returns
    -------
    tuple of dict and list
        Counts of "accepted" and "rejected" samples; traces as JSON values, before any
        postprocessor.
    """
    context = TuneContext(
        mod,
        target=target,
        space_generator=space,
        search_strategy=None,
        rand_state=seed,
        num_threads=1,
    )
    sketches = [s.trace.simplified(True) for s in context.generate_design_space()]
    postprocs = list(context.space_generator.postprocs or ())
    rng = np.random.default_rng(seed)
    counts, traces = {"accepted": 0, "rejected": 0}, []
    for _ in range(tries):
        sketch = sketches[rng.integers(len(sketches))]
        schedule = Schedule(
            context.mod, seed=int(rng.integers(1, SEED_RANGE)), error_render_level="none"
        )
        accepted, drawn = _sampled(sketch, schedule, postprocs)
        counts["accepted" if accepted else "rejected"] += 1
        if not accepted and drawn is not None:
            traces.append(drawn)
        if len(traces) >= wanted:
            break
    return counts, traces


def _sampled(sketch: Any, schedule: Any, postprocs: list[Any]) -> tuple[bool, Any]:
    """Whether a fresh sample passes, and its trace as JSON (None where a rule refused it)."""
    drawn = None
    try:
        Trace(sketch.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        drawn = plain(schedule.trace.as_json())
        schedule.enter_postproc()
        return all(postproc.apply(schedule) for postproc in postprocs), drawn
    except Exception:  # TVM raises half a dozen classes for a schedule that it cannot express
        return False, drawn


# A builder with persistent workers that records the time of each build.

TIMEOUT = 60.0
"""Seconds one build may take."""


def make_timed(tensorized: bool) -> Callable[..., list[Any]]:
    """In a worker: a function that builds and returns path and seconds.

    Needed tensor intrinsics are imported first, so that no candidate is charged for them.
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
        (seconds or None, error or None) per candidate, in order; cleared by the caller.

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


BATCH = 64
"""Most candidates per batch."""

SEARCHES = {
    "random": ("replay-trace", "random"),
    "evolved": ("evolutionary", "xgb"),
    "drafted": ("pruner", "random"),
}
"""Strategy and cost model of each half."""

MIN_REPEAT_MS = {"llvm": 30, "cuda": 50}
EVALUATOR = {"number": 1, "repeat": 3}


@dataclass(frozen=True)
class Device:
    """The measured device: target, short name for the file, and facts for meta.json."""

    target: Any
    platform: str
    machine: dict[str, Any]


def _evaluator(target: Any) -> Any:
    minimum = MIN_REPEAT_MS[str(target.kind.name)]
    return ms.runner.EvaluatorConfig(**EVALUATOR, min_repeat_ms=minimum)


@dataclass(frozen=True)
class Workers:
    """Builder and runner; a context that ends them."""

    builder: Any
    runner: Any

    @classmethod
    def persistent(cls, target: Any) -> Workers:
        """Both ours, for schedules without tensor instructions."""
        config = _evaluator(target)
        runner = PersistentRunner(timeout_sec=30, evaluator_config=config, adaptive=False)
        return cls(TimedBuilder(False), runner)

    @classmethod
    def stock_runner(cls, workload: Workload, target: Any) -> Workers:
        """Our builder, the stock runner."""
        runner = ms.runner.LocalRunner(timeout_sec=30, evaluator_config=_evaluator(target))
        return cls(TimedBuilder(workload.space == TENSORCORE), runner)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_error: object) -> None:
        self.builder.close()
        if isinstance(self.runner, PersistentRunner):
            self.runner.close()


@dataclass(frozen=True)
class Done:
    """A recorded half: trials, failures, seconds, best latency in seconds (infinite: none)."""

    path: Path
    trials: int
    failed: int
    seconds: float
    best: float


def device(kind: str, tensorcore: bool, mcpu: str | None, cores: int | None) -> Device:
    """This machine as a target.

    Parameters
    ----------
    kind
        "llvm" or "cuda".
    tensorcore
        Whether blocks may use all shared memory (it is dynamic then).
    mcpu, cores
        For `llvm`: another level of the instruction set, and the number of cores.

    Raises
    ------
    TargetError
        There is no CUDA device.
    """
    if cores is not None and cores < 1:
        raise OptionError(f"--cores {cores} cannot be used; give at least 1")
    count = cores or os.cpu_count() or 1
    if kind == "cuda":
        return _cuda(tensorcore, count)
    flags = _cpu_flags()
    level = mcpu or ("x86-64-v4" if "avx512f" in flags else "x86-64-v3")
    target = parse_target(json.dumps({"kind": "llvm", "mcpu": level, "num-cores": count}))
    facts = {"cpu": cpu_model(), "mcpu": level, "cores": count}
    return Device(target, f"llvm-{level}-{count}", facts)


def _cuda(tensorcore: bool, cores: int) -> Device:
    # compiled by nvcc; TVM raises the limit of dynamic shared memory at launch
    os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    target = limited(parse_target("cuda"), tensorcore)
    return Device(target, "cuda", {"gpu": gpu_said(), "cores": cores})


def limited(target: Any, tensorcore: bool) -> Any:
    """A detected GPU's target with the shared memory that a block may use.

    The opt-in limit where it is dynamic; `Target.from_device` states the default limit.
    """
    return opted_in(target) if tensorcore else with_attribute(target, SHARED, STATIC_SHARED)


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), ":")
    return frozenset(flags.split(":", 1)[1].split())


def path_of(out: Path, workload: Workload, platform: str, half_name: str) -> Path:
    """Path of a half's archive."""
    return out / f"{workload.name}.{platform}.{half_name}{SUFFIX}"


def record(
    workload: Workload,
    half_name: str,
    trials: int,
    measured_on: Device,
    out: Path,
    seed: int,
    workers: Workers | None = None,
) -> Done | None:
    """Measure one half and pack it; None where it exists already.

    Parameters
    ----------
    half_name
        Name in `SEARCHES`.
    trials
        Candidates to measure.
    workers
        Shared builder and runner; None: a new builder, and the stock runner.
    """
    path = path_of(out, workload, measured_on.platform, half_name)
    if path.exists():
        return None
    folder = path.with_name(path.name.removesuffix(SUFFIX))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind = str(measured_on.target.kind.name)
    if kind == "llvm":
        os.environ["TVM_NUM_THREADS"] = str(measured_on.machine["cores"])
    import_intrinsics()  # every TuneContext does, but takes twelve seconds longer
    start = time.perf_counter()
    with ExitStack() as stack:
        used = workers or stack.enter_context(Workers.stock_runner(workload, measured_on.target))
        watch = _tuned(workload, half_name, trials, measured_on.target, folder, seed, used)
    seconds = time.perf_counter() - start
    _write(folder / archive.TRIALS, watch.trials)
    # many small pools: a sample of each costs too much
    if half_name == "random" and workers is None:
        counts, traces = refused_traces(workload.func(), measured_on.target, workload.space, seed)
        _write(folder / archive.REJECTED, [counts, *traces])
    meta = {
        **_described(workload, half_name, trials, measured_on, seed),
        "seconds": seconds,
        "curve": watch.points,
        **({} if workers is None else {"runner": "pruner_ms persistent"}),
    }
    text = json.dumps(meta, indent=1) + "\n"
    (folder / archive.META).write_text(text, encoding="utf-8")
    write_archive(folder, path)
    shutil.rmtree(folder)
    failed = sum(row["error"] is not None for row in watch.trials)
    return Done(path, len(watch.trials), failed, seconds, watch.best)


def _described(
    workload: Workload, half_name: str, trials: int, measured_on: Device, seed: int
) -> dict[str, Any]:
    """Entries of a half's meta.json before it is measured."""
    return {
        "name": workload.name,
        "half": half_name,
        "target": str(measured_on.target),
        "space": workload.space,
        "trials": trials,
        "seed": seed,
        "tvm": VERSION,
        "evaluator": EVALUATOR,
        "builder": "pruner_ms persistent",
        **measured_on.machine,
    }


def _tuned(
    workload: Workload,
    half_name: str,
    trials: int,
    target: Any,
    folder: Path,
    seed: int,
    workers: Workers,
) -> Any:
    """Run a tuning; returns its callback."""
    register()
    strategy, model = SEARCHES[half_name]
    watch = Watch(workers.builder.builds)
    callbacks = [*ms.measure_callback.MeasureCallback.create("default"), watch]
    ms.tune_tir(
        workload.func(),
        target,
        str(folder),
        trials,
        num_trials_per_iter=min(BATCH, trials),
        seed=seed,
        space=workload.space,
        strategy=strategy,
        cost_model=model,
        builder=workers.builder,
        measure_callbacks=callbacks,
        runner=workers.runner,
    )
    return watch


@derived_object
class Watch(ms.measure_callback.PyMeasureCallback):
    """Records the build and run times of each trial.

    Attributes
    ----------
    trials
        Rows of trials.jsonl.
    points
        [seconds, trials, best latency in seconds (None: none yet)] per batch.
    """

    def __init__(self, builds: list[tuple[float | None, str | None]]) -> None:
        super().__init__()
        self.builds = builds
        self.trials: list[dict[str, Any]] = []
        self.points: list[list[Any]] = []
        self.best = float("inf")
        self._start = time.perf_counter()

    def apply(
        self,
        _task_scheduler: Any,
        _task_id: int,
        _candidates: Sequence[Any],
        _builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:
        """Called after each batch."""
        for (seconds, fault), result in zip(self.builds, runner_results, strict=False):
            self.trials.append(self._row(seconds, fault, result))
        self.builds.clear()
        spent = round(time.perf_counter() - self._start, 2)
        best = self.best if self.best < float("inf") else None
        self.points.append([spent, len(self.trials), best])

    def _row(self, seconds: float | None, fault: str | None, result: Any) -> dict[str, Any]:
        run = [float(x) for x in result.run_secs] if result.run_secs else None
        if run:
            self.best = min(self.best, sum(run) / len(run))
        elif fault is None:
            fault = "run timeout" if "imeout" in str(result.error_msg) else "run error"
        return {"build_s": seconds, "run_s": run, "error": fault}

    def __str__(self) -> str:
        return "Watch"


def _write(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
