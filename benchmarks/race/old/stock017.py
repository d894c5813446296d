"""MetaSchedule of TVM 0.17 as it comes: `python -m benchmarks.race.old.stock017 JOB`.

Evolutionary search, XGBoost, local builder and runner, 64 trials a round.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import tvm
import xgboost
from tvm import meta_schedule as ms
from tvm import te
from tvm.meta_schedule.builder.local_builder import default_build

from benchmarks.race.old.kernels import KERNEL, described, export, operator, target_of
from benchmarks.race.report import Outcome, Report, run

xgboost.rabit = xgboost.collective
"""The name it had when TVM 0.17 was written; no XGBoost that is small has it still."""


def outcome(target: Any, candidate: Any, result: Any) -> Outcome:
    """What one measurement came to."""
    keep = partial(keep_module, target, candidate.sch.mod)
    if result.error_msg is not None or not result.run_secs:
        text = str(result.error_msg or "no latency").strip().splitlines()
        return Outcome(None, text[-1][:120], keep)
    seconds = [float(getattr(cost, "value", cost)) for cost in result.run_secs]
    return Outcome(sum(seconds) / len(seconds), None, keep)


def keep_module(target: Any, mod: Any, path: Path) -> list[tuple[list[int], str]]:
    """Build a module as the local builder does, under the name of the kernel, and export it."""
    arguments = ms.arg_info.ArgInfo.from_entry_func(mod, True)
    (function,) = mod.functions.values()
    named = tvm.IRModule({KERNEL: function.with_attr("global_symbol", KERNEL)})
    export(default_build(named, target, None), path)
    return described(arguments)


def tune(job: dict[str, Any], report: Report) -> None:
    """Tune one operator as a user would, with one more callback at the end."""
    target = target_of(job["target_json"])

    @ms.utils.derived_object
    class _Callback(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
        def apply(
            self,
            task_scheduler: Any,
            task_id: int,
            measure_candidates: Any,
            builder_results: Any,
            runner_results: Any,
        ) -> None:
            pairs = zip(measure_candidates, runner_results, strict=True)
            report.results([outcome(target, *pair) for pair in pairs], whole_round=True)

    ms.tune_tir(
        te.create_prim_func(operator(job["function"], job["dtype"], *job["shape"])),
        target=target,
        work_dir=job["folder"],
        max_trials_global=job["trials"],
        num_trials_per_iter=job["batch"],
        builder="local",
        runner="local",
        strategy="evolutionary",
        cost_model="xgb",
        measure_callbacks=[*ms.measure_callback.MeasureCallback.create("default"), _Callback()],
        seed=job["seed"],
    )


if __name__ == "__main__":
    raise SystemExit(run(json.loads(sys.argv[1]), tune))
