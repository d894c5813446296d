"""Ansor (TVM's `auto_scheduler`) as it comes: `python -m benchmarks.race.old.ansor JOB`.

Its own builder, runner and cost model with their defaults: 64 trials a round, XGBoost, 3 runs and
at least 100 ms a measurement as in MetaSchedule, 15 s to build and 10 s to run. It has no way of
its own to say how many cores a target has: TVM_NUM_THREADS says it, and how many builds go on
beside each other is said here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import LocalBuilder, LocalRunner, PythonBasedMeasureCallback

from benchmarks.race.old.kernels import KERNEL, described, export, operator, target_of
from benchmarks.race.report import Outcome, Report, run

_FAILURES = (
    "none",
    "instantiation",
    "build",
    "build",
    "run",
    "wrong answer",
    "build timeout",
    "run timeout",
    "unknown",
)
"""By `auto_scheduler.measure.MeasureErrorNo`."""


def outcome(task: Any, target: Any, measured: Any, result: Any) -> Outcome:
    """What one measurement came to."""
    number = int(result.error_no)
    keep = partial(keep_state, task, target, measured.state)
    if number:
        return Outcome(None, _FAILURES[min(number, len(_FAILURES) - 1)], keep)
    costs = [float(getattr(cost, "value", cost)) for cost in result.costs]
    return Outcome(sum(costs) / len(costs), None, keep)


def keep_state(task: Any, target: Any, state: Any, path: Path) -> list[tuple[list[int], str]]:
    """Build a state as its builder did, and export it."""
    schedule, arguments = task.compute_dag.apply_steps_from_state(
        state, layout_rewrite=task.layout_rewrite_option
    )
    export(tvm.build(schedule, arguments, target=target, name=KERNEL), path)
    return described(arguments)


class _Callback(PythonBasedMeasureCallback):
    def __init__(self, task: Any, target: Any, report: Report) -> None:
        super().__init__()
        self._facts = task, target, report

    def callback(self, policy: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        task, target, report = self._facts
        report.results(
            [
                outcome(task, target, one, result)
                for one, result in zip(inputs, results, strict=True)
            ]
        )


def tune(job: dict[str, Any], report: Report) -> None:
    """Tune one task as the tutorial of `auto_scheduler` does."""
    target = target_of(job["target_json"])
    auto_scheduler.register_workload("operator", operator)
    task = auto_scheduler.SearchTask(
        func="operator", args=(job["function"], job["dtype"], *job["shape"]), target=target
    )
    options = auto_scheduler.TuningOptions(
        num_measure_trials=job["trials"],
        num_measures_per_round=job["batch"],
        builder=LocalBuilder(n_parallel=int(job["target_json"]["num-cores"])),
        runner=LocalRunner(),
        measure_callbacks=[_Callback(task, target, report)],
        verbose=0,
    )
    # Zero would be taken for "none given"
    policy = auto_scheduler.SketchPolicy(
        task, auto_scheduler.XGBModel(), seed=job["seed"] + 1, verbose=0
    )
    task.tune(options, search_policy=policy)


if __name__ == "__main__":
    raise SystemExit(run(json.loads(sys.argv[1]), tune))
