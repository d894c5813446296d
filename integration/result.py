"""What a run leaves in Python, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pruner_ms.integration.export import describe
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import Program
from pruner_ms.integration.records import Best
from pruner_ms.integration.timing import Comparison
from pruner_ms.integration.verify import Check
from pruner_ms.session.options import TuneConfig
from pruner_ms.session.progress import CurvePoint, TaskState
from pruner_ms.session.run import SessionResult
from pruner_ms.tvm_compat.untuned import is_untuned
from pruner_ms.types import Funnel, valid_latency

SCHEMA = 1
"""Version of the summary."""

COMPLETE, PARTLY, NO_GAIN, UNTUNED = "complete", "partly untuned", "no gain", "untuned"
"""Status of a run that is over and has a library: a better one than the untuned one; the same with
some tasks that could not be tuned (see `TuneResult.left`); the untuned one, as nothing beats it;
the untuned one, as nothing could be tuned."""

ENDED = (COMPLETE, PARTLY, NO_GAIN, UNTUNED)
WITHOUT_GAIN = (NO_GAIN, UNTUNED)


@dataclass
class TuneResult:
    """A finished run.

    Attributes
    ----------
    program
        What was tuned.
    tasks
        State of each task, the heaviest first.
    records
        The best usable record of each workload.
    database
        TVM's database in the work-dir; None after a dry run.
    curve
        Improvements of this run.
    funnel
        Counts by task.
    interrupted
        The user pressed Ctrl-C.
    failures
        Task -> what went wrong.
    network
        Timing of the whole network before and after, None for kernels.
    untuned
        Whether the untuned network is delivered; None: no networks were compared.
    checks
        Comparisons made, of what is in the library.
    left
        Task -> why it is in the library without a tuned schedule.
    library, executable
        The exported library, and the same in this process.
    seconds
        Wall seconds by stage, and in total.
    notes
        What the user should read.
    cost_model
        Its name, mode, network and weights; see `SessionResult`.
    error
        Why TVM ended the tuning early, None: it did not.
    unfinished
        First line of the error that ended the run after its search, None: there was none.
    summary
        All of this as JSON values.
    """

    program: Program
    tasks: list[TaskState] = field(default_factory=list)
    records: Best | None = None
    database: Any = None
    curve: list[CurvePoint] = field(default_factory=list)
    funnel: dict[str, Funnel] = field(default_factory=dict)
    interrupted: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    network: Comparison | None = None
    untuned: bool | None = None
    checks: list[Check] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    library: Path | None = None
    executable: Any = None
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cost_model: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    unfinished: str | None = None
    summary: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def empty(cls, program: Program) -> TuneResult:
        """The result of a dry run."""
        return cls(program, [TaskState(t.name, t.weight, t.flops) for t in program.tasks])

    @classmethod
    def of(cls, program: Program, session: SessionResult, records: Best) -> TuneResult:
        """The result of a session, before anything is compiled."""
        return cls(
            program,
            session.tasks,
            records,
            session.database,
            session.curve,
            session.funnel,
            session.interrupted,
            dict(session.failures),
            cost_model=session.cost_model,
            error=session.error,
        )

    @property
    def best(self) -> dict[str, Any]:
        """Task name -> the best MetaSchedule `TuningRecord`; tasks without one are missing."""
        if self.records is None:
            return {}
        records = self.records.records
        return {t.name: records[t.hash] for t in self.program.tasks if t.hash in records}

    def improved(self) -> set[str]:
        """Tasks of which a schedule is the best record, and not the untuned function."""
        return {name for name, record in self.best.items() if not is_untuned(record.trace)}

    def delivered(self) -> set[str]:
        """Tasks that the library has with a schedule."""
        return set() if self.untuned else self.improved()

    def gains(self) -> bool:
        """Whether the library is better than the untuned one."""
        return bool(self.improved()) if self.untuned is None else not self.untuned

    def latency(self) -> float | None:
        """Seconds of the network that is delivered; None where it was not timed."""
        if self.network is None:
            return None
        return (self.network.before if self.untuned else self.network.after).median

    def kernels(self) -> float:
        """Seconds of the kernels of the library, each as it was measured by itself, added up."""
        tuned = self.delivered()
        seconds = ((t, t.best_s if t.name in tuned else t.untuned_s) for t in self.tasks)
        return sum(task.weight * one for task, one in seconds if one is not None)

    def without_gain(self) -> list[str]:
        """What a user should know of a library that gains nothing, in sentences."""
        if self.gains() or (self.left and not self.improved()):
            return []
        if self.network is None or not self.improved():
            return ["no gain: nothing that was measured beats the untuned functions"]
        return [
            f"no gain: the tuned network has {self.network.speedup:.2f} times the speed of the "
            "untuned one, so the library is the untuned one"
        ]

    def latencies(self) -> dict[str, float]:
        """Task name -> seconds of the best record."""
        latencies = {name: valid_latency(record.run_secs) for name, record in self.best.items()}
        return {name: seconds for name, seconds in latencies.items() if seconds is not None}


def summarize(
    result: TuneResult, target: Any, options: TuneOptions, config: TuneConfig
) -> dict[str, Any]:
    """The summary of a run as JSON values (`summary.json`)."""
    total = Funnel()
    for funnel in result.funnel.values():
        total.merge(funnel)
    about = describe(target, result.program.inputs, result.program.outputs)
    return {
        "schema": SCHEMA,
        "name": result.program.name,
        "model": result.program.file,
        "status": _status(result),
        "error": result.unfinished or result.error,
        "target": about["target"],
        "versions": about["versions"],
        "seed": options.seed,
        "options": options.facts(target),
        "cost_model": result.cost_model,
        "trials": {
            "total": sum(t.trials for t in result.tasks),
            "resumed": sum(t.resumed for t in result.tasks),
            "failed": sum(sum(t.failures.values()) for t in result.tasks),
            "budget": config.budget.trials,
        },
        "seconds": {"tuning": result.seconds.get("tune", 0.0), **result.seconds},
        "network": _network(result),
        "tasks": [_task(task, result) for task in result.tasks],
        "skipped": [asdict(skipped) for skipped in result.program.skipped],
        "funnel": {
            "total": asdict(total),
            "tasks": {name: asdict(one) for name, one in result.funnel.items()},
        },
        "curve": [asdict(point) for point in result.curve],
        "verification": _verification(result.checks),
        "failures": result.failures,
        "notes": result.notes,
        "library": str(result.library) if result.library is not None else None,
    }


def _status(result: TuneResult) -> str:
    if any(not check.ok for check in result.checks):
        return "wrong result"
    if result.unfinished is not None:
        valid = any(task.best_s is not None for task in result.tasks)
        return "not finished" if valid else "no valid schedule"
    if result.interrupted:
        return "interrupted"
    if result.error is not None:
        return "ended early"
    if result.left and not result.improved():
        return UNTUNED
    if not result.gains():
        return NO_GAIN
    return PARTLY if result.left else COMPLETE


def _task(task: TaskState, result: TuneResult) -> Mapping[str, Any]:
    """A task's state, whether a schedule of it is in the library, and if not what failed."""
    delivered = "tuned" if task.name in result.delivered() else "untuned"
    facts = {"delivered": delivered, "untuned": result.left.get(task.name)}
    return {**asdict(task), "failures": dict(task.failures), **facts}


def _network(result: TuneResult) -> Mapping[str, Any] | None:
    """Latencies of the untuned network, of the one that is delivered, and of the tuned one."""
    timing = result.network
    if timing is None:
        return None
    after = timing.before if result.untuned else timing.after
    return {
        "before_s": timing.before.median,
        "after_s": after.median,
        "tuned_s": timing.after.median,
        "before_iqr_s": timing.before.iqr,
        "after_iqr_s": after.iqr,
        "kernels_s": result.kernels(),
        "delivered": "untuned" if result.untuned else "tuned",
        "gain": 1.0 if result.untuned else timing.speedup,
        "speedup": timing.speedup,
        "speedup_quartiles": [timing.low, timing.high],
    }


def _verification(checks: Sequence[Check]) -> Mapping[str, Any] | None:
    if not checks:
        return None
    passed = sum(check.ok for check in checks)
    return {
        "passed": passed == len(checks),
        "what": f"{passed} of {len(checks)} comparisons of outputs",
        "checks": [asdict(check) for check in checks],
    }
