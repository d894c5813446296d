"""One tuner on one network in its own process: `python -m benchmarks.race.network_worker JOB`.

JOB is that of `benchmarks.race.worker`, with the name of a network. Reading and lowering the
network are the pipeline's, not the tuner's, and off its clock. What `ms.relax_integration` does
with extracted tasks is on it. After each round in which the best schedule of some task changed, the
race is told how many records the database had: the network as it was then can be compiled from
them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.race.networks import program_of
from benchmarks.race.report import Export, Outcome, Report, last_words
from benchmarks.race.tuners import Tuner, tuner_named
from benchmarks.race.turns import Clock, Line
from benchmarks.race.worker import builder_of, callbacks_with, imported

RECORDS = "database_tuning_record.json"


class NetworkReport(Report):
    """Says every result, and after a round whether the network would be another one.

    Parameters
    ----------
    line, folder, batch
        As for `Report`; the database is in the folder.
    """

    def __init__(self, line: Line, folder: Path, batch: int) -> None:
        super().__init__(line, folder, batch)
        self._changed = False

    def keep(self, export: Export) -> None:
        """A task has a new best, which is in the database."""
        self._changed = True

    def pause(self) -> None:
        """Say that the network changed, then give the turn back."""
        if self._changed:
            records = lines_of(self.folder / RECORDS)
            self.line.say("best", i=self.trials - 1, records=records)
            self._changed = False
        super().pause()


def lines_of(path: Path) -> int:
    """Whole lines of a file."""
    return path.read_bytes().count(b"\n")


def contexts(program: Any, target: Any, tuner: Tuner, job: Mapping[str, Any]) -> tuple[Any, Any]:
    """Tasks and their weights, as `tune_relax` makes them."""
    from pruner_ms.tvm_compat.paths import ms

    extracted = [
        ms.ExtractedTask(task.name, task.mod, target, [task.mod], task.weight)
        for task in program.tasks
    ]
    return ms.relax_integration.extracted_tasks_to_tune_contexts(
        extracted,
        job["folder"],
        space="post-order-apply",
        strategy=tuner.strategy,
        seed=job["seed"],
    )


def tune(job: Mapping[str, Any], tuner: Tuner, program: Any, report: NetworkReport) -> None:
    """Tune as `tune_relax` does, with one more callback at the end."""
    from tvm.target import Target

    from pruner_ms.tvm_compat.paths import ms

    def tell(task: int, outcomes: Sequence[Outcome]) -> None:
        report.results(outcomes, whole_round=True, task=program.tasks[task].name)

    target = Target(job["target_json"])
    pair = "persistent" if tuner.persistent else "local"
    report.line.wait()
    if job["weights"]:
        import pruner_ms

        pruner_ms.defaults(weights=job["weights"])
    tasks, weights = contexts(program, target, tuner, job)
    ms.tune.tune_tasks(
        tasks=tasks,
        task_weights=weights,
        work_dir=job["folder"],
        max_trials_global=job["trials"],
        num_trials_per_iter=job["batch"],
        builder=builder_of(tuner),
        runner=pair,
        cost_model=tuner.cost_model,
        measure_callbacks=callbacks_with(tell),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the network, wait for the first turn, tune, say how it ended."""
    from tvm.target import Target

    job = json.loads((arguments or sys.argv[1:])[0])
    clock = Clock()
    line = Line.standard(clock)
    logging.getLogger().setLevel(logging.ERROR)
    tuner = tuner_named(job["tuner"])
    spent = imported(tuner, clock)
    program = program_of(job["workload"], Target(job["target_json"]))
    report, why = NetworkReport(line, Path(job["folder"]), job["batch"]), None
    report.imports = spent
    try:
        tune(job, tuner, program, report)
    except Exception as error:  # whatever ends a tuner is its result
        why = last_words(error)
    report.end(why)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
