"""One tuner on one workload, in a process of its own: `python -m benchmarks.race.worker JOB`.

JOB is JSON: tuner, workload, target (JSON or a name), seed, trials, batch, folder, weights. The
clock starts with the first turn, when TVM itself has been imported and the names of this package
are registered (14 ms); everything else, the rest of the package and TVM's tensor intrinsics among
it, is on the tuner's bill. New best schedules are left in the folder as TVM's JSON of their module.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.race.report import Outcome, Report, kind_of, last_words
from benchmarks.race.specs import on_target, workload_of
from benchmarks.race.tuners import Tuner, tuner_named
from benchmarks.race.turns import Clock, Line
from pruner_ms.pools.workloads import TENSORCORE


def outcome(candidate: Any, result: Any, save: Callable[[Any], str]) -> Outcome:
    """What one measurement came to; `save` gives the text of a module."""

    def keep(path: Path) -> list[tuple[list[int], str]]:
        path.write_text(save(candidate.sch.mod))
        return []

    if result.error_msg is not None or not result.run_secs:
        text = str(result.error_msg or "no latency").strip().splitlines()
        return Outcome(None, kind_of(text[-1]), keep)
    seconds = [float(cost) for cost in result.run_secs]
    return Outcome(sum(seconds) / len(seconds), None, keep)


def callbacks_with(tell: Callable[[int, Sequence[Outcome]], None]) -> list[Any]:
    """MetaSchedule's own callbacks, and one at the end that tells each round of a task."""
    from pruner_ms.tvm_compat.paths import derived_object, ms, save_json

    class _Callback(ms.measure_callback.PyMeasureCallback):
        def apply(
            self,
            task_scheduler: Any,
            task_id: int,
            measure_candidates: Any,
            builder_results: Any,
            runner_results: Any,
        ) -> None:
            pairs = zip(measure_candidates, runner_results, strict=True)
            tell(int(task_id), [outcome(*pair, save_json) for pair in pairs])

    return [*ms.measure_callback.MeasureCallback.create("default"), derived_object(_Callback)()]


PATIENCE = 60.0
"""Seconds that stock's builder waits for a build, twice its own: the import of the intrinsics in
each of its workers counts, which on a slow machine takes 25 of the 30."""


def builder_of(tuner: Tuner, target: Any = None) -> Any:
    """The builder of a tuner for a target, as `ms.tune_tir` takes it.

    On TVM 0.26 and 0.27 stock's fails with five of six `wmma` programs that add float16 up in
    float32, for want of a pass configuration that ours has (`MERGE_ONCE`). It gets that, and that
    alone: searches are compared, not how often a known fault of TVM strikes.
    """
    from pruner_ms.tvm_compat.passes import MERGE_ONCE, TENSOR_MARKS, config_for
    from pruner_ms.tvm_compat.paths import ms

    if tuner.persistent:
        return "persistent"
    needed = {} if target is None else config_for(target, tensorized=True)
    config = {name: value for name, value in needed.items() if name == MERGE_ONCE}
    home = f"{ms.__name__}.builder.local_builder"
    build = partial(stock_build, home, TENSOR_MARKS, config) if config else None
    return ms.builder.LocalBuilder(timeout_sec=PATIENCE, f_build=build)


def stock_build(
    home: str,
    marks: Sequence[str],
    config: Mapping[str, Any],
    mod: Any,
    target: Any,
    params: Any,
) -> Any:
    """Build as stock's builder does, a tensorised module under a pass configuration.

    Stock's workers get it by value (it is of `__main__`) and import nothing of this package.

    Parameters
    ----------
    home
        Module that has stock's `default_build`.
    marks
        Text of which some is in the JSON of every tensorised module.
    """
    from importlib import import_module

    import tvm

    text = tvm.ir.save_json(mod)
    used = dict(config) if any(mark in text for mark in marks) else {}
    with tvm.transform.PassContext(config=used):
        return import_module(home).default_build(mod, target, params)


def tune(job: dict[str, Any], tuner: Tuner, report: Report) -> None:
    """Tune as a user would, with one more callback at the end."""
    from tvm.target import Target

    from pruner_ms.tvm_compat.paths import ms

    workload = on_target(workload_of(job["workload"]), job["target"])
    function, target = workload.func(), Target(job["target_json"])
    pair = "persistent" if tuner.persistent else "local"
    space = tuner.tensor_space if workload.space == TENSORCORE else workload.space
    report.line.wait()
    if job["weights"]:
        import pruner_ms

        pruner_ms.defaults(weights=job["weights"])
    ms.tune_tir(
        function,
        target=target,
        work_dir=job["folder"],
        max_trials_global=job["trials"],
        num_trials_per_iter=job["batch"],
        builder=builder_of(tuner, target),
        runner=pair,
        strategy=tuner.strategy,
        cost_model=tuner.cost_model,
        space=space,
        seed=job["seed"],
        measure_callbacks=callbacks_with(
            lambda _task, outcomes: report.results(outcomes, whole_round=True)
        ),
    )


def imported(tuner: Tuner, clock: Clock) -> float:
    """Import TVM, then the package on the tuner's bill; stock gets a TVM without any of it.

    Returns
    -------
    Wall seconds of importing TVM, which nobody is billed for.
    """
    begun = time.perf_counter()
    import tvm.s_tir.meta_schedule  # noqa: F401

    spent = round(time.perf_counter() - begun, 3)
    clock.start()
    import pruner_ms

    if tuner.registers:
        clock.stop()
        return spent
    pruner_ms.unregister()
    clock.reset()
    return spent


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait for the first turn, tune, say how it ended."""
    job = json.loads((arguments or sys.argv[1:])[0])
    clock = Clock()
    line = Line.standard(clock)
    logging.getLogger().setLevel(logging.ERROR)
    tuner = tuner_named(job["tuner"])
    spent = imported(tuner, clock)
    report, why = Report(line, Path(job["folder"]), job["batch"], ".json"), None
    report.imports = spent
    try:
        tune(job, tuner, report)
    except Exception as error:  # whatever ends a tuner is its result
        why = last_words(error)
    report.end(why)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
