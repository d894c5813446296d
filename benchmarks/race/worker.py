"""One tuner on one workload, in a process of its own: `python -m benchmarks.race.worker JOB`.

JOB is JSON: tuner, workload, target (JSON or a name), seed, trials, batch, folder, weights. The
clock starts with the first turn, when TVM itself has been imported; everything else, the package
of the tuner and TVM's tensor intrinsics among it, is on the tuner's bill. New best schedules are
left in the folder as TVM's JSON of their module.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.race.rows import kind_of
from benchmarks.race.specs import on_target, workload_of
from benchmarks.race.tuners import Tuner, tuner_named
from benchmarks.race.turns import Clock, Line


class Watch:
    """Reports every batch, keeps every new best, and gives the turn back.

    Parameters
    ----------
    line
        To the race.
    folder
        Where modules go.
    save
        Text of a module.
    """

    def __init__(self, line: Line, folder: Path, save: Any) -> None:
        self.line, self.folder, self.save = line, folder, save
        self.trials = self.rounds = 0
        self.best, self.first = float("inf"), None

    def batch(self, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Note one batch of measure candidates and runner results."""
        now = self.line.clock.seconds()
        for candidate, result in zip(candidates, results, strict=True):
            latency, why = _outcome(result)
            facts = {"i": self.trials, "r": self.rounds, "s": round(now, 3), "l": latency, "e": why}
            self.line.say("trial", **facts)
            if latency is not None:
                self.first = now if self.first is None else self.first
                if latency < self.best:
                    self.best = latency
                    path = self.folder / f"best-{self.trials}.json"
                    path.write_text(self.save(candidate.sch.mod))
                    self.line.say("best", i=self.trials)
            self.trials += 1
        self.rounds += 1
        if candidates:
            self.line.wait()


def _outcome(result: Any) -> tuple[float | None, str | None]:
    """Mean latency in seconds and None, or None and the failure's last words, without paths."""
    if result.error_msg is not None or not result.run_secs:
        text = str(result.error_msg or "no latency").strip().splitlines()
        return None, kind_of(text[-1])
    return sum(float(x) for x in result.run_secs) / len(result.run_secs), None


def tune(job: dict[str, Any], tuner: Tuner, watch: Watch) -> None:
    """Tune as a user would, with one more callback at the end."""
    from tvm.target import Target

    from pruner_ms.tvm_compat.paths import derived_object, ms

    class _Callback(ms.measure_callback.PyMeasureCallback):
        def apply(
            self,
            task_scheduler: Any,
            task_id: int,
            measure_candidates: Any,
            builder_results: Any,
            runner_results: Any,
        ) -> None:
            watch.batch(list(measure_candidates), list(runner_results))

    workload = on_target(workload_of(job["workload"]), job["target"])
    function, target = workload.func(), Target(job["target_json"])
    callbacks = [
        *ms.measure_callback.MeasureCallback.create("default"),
        derived_object(_Callback)(),
    ]
    pair = "persistent" if tuner.persistent else "local"
    watch.line.wait()
    if job["weights"]:
        import pruner_ms

        pruner_ms.defaults(weights=job["weights"])
    ms.tune_tir(
        function,
        target=target,
        work_dir=job["folder"],
        max_trials_global=job["trials"],
        num_trials_per_iter=job["batch"],
        builder=pair,
        runner=pair,
        strategy=tuner.strategy,
        cost_model=tuner.cost_model,
        space=workload.space,
        seed=job["seed"],
        measure_callbacks=callbacks,
    )


def imported(tuner: Tuner, clock: Clock) -> None:
    """Import TVM, then the package on the tuner's bill; stock gets a TVM without any of it."""
    import tvm.s_tir.meta_schedule  # noqa: F401

    clock.start()
    import pruner_ms

    if tuner.registers:
        clock.stop()
        return
    pruner_ms.unregister()
    clock.reset()


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait for the first turn, tune, say how it ended."""
    job = json.loads((arguments or sys.argv[1:])[0])
    clock = Clock()
    line = Line.standard(clock)
    logging.getLogger().setLevel(logging.ERROR)
    tuner = tuner_named(job["tuner"])
    imported(tuner, clock)
    from pruner_ms.tvm_compat.paths import save_json

    watch, why = Watch(line, Path(job["folder"]), save_json), None
    try:
        tune(job, tuner, watch)
    except Exception as error:  # whatever ends a tuner is its result
        why = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1][:200]}"
    line.say(
        "end",
        s=round(clock.seconds(), 3),
        first=watch.first,
        rounds=watch.rounds,
        peak_mb=_peak_megabytes(),
        why=why,
    )
    return 0


def _peak_megabytes() -> int:
    """Of this process and, each alone, of its children: the largest."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) // 1024


if __name__ == "__main__":
    raise SystemExit(main())
