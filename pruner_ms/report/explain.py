"""Why the draft predicts what it does: each symbol, penalty and term of two schedules of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pruner_ms.draft import Draft, draft, symbols
from pruner_ms.draft.calibrate import rank_correlation
from pruner_ms.draft.cpu.latency import CPU_TERMS
from pruner_ms.draft.gpu.latency import GPU_TERMS
from pruner_ms.draft.paper.penalties import PENALTIES, limits_at
from pruner_ms.draft.paper.symbols import MEANINGS
from pruner_ms.errors import OptionError, UnsupportedTrace
from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.records.trials import RunTask, run_tasks, task_of
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import DecisionSpace, decision_space
from pruner_ms.tvm_compat.intrinsics import enough_for
from pruner_ms.tvm_compat.paths import Schedule, TuneContext
from pruner_ms.tvm_compat.targets import attrs_of
from pruner_ms.types import FloatArray

VARIANTS = ("ours", "paper", "released")


@dataclass(frozen=True)
class _Found:
    """A trial: seconds, its program (N = 1), and where that came from."""

    seconds: float
    program: SketchProgram
    origin: str
    decisions: Any


def explain(run: Path, wanted: str, hardware: HardwareSpec | None = None) -> dict[str, Any]:
    """Every symbol, penalty and term of the best and of the median schedule of a task.

    Parameters
    ----------
    run
        Work-dir of a run.
    wanted
        Number or name of the task.
    hardware
        The device's figures; by default those of the task's target.

    Returns
    -------
    dict
        JSON values: "task", "target", "hardware", "trials", "rank_correlation", "schedules" (the
        best, the median and, where it was measured, the untuned function) and "legend".

    Raises
    ------
    DatabaseError, OptionError
        The path is no run, or the task does not exist or has no trial that ran.
    """
    task = task_of(run_tasks(run), wanted)
    with enough_for(task.target):  # traces may name them
        return _explained(task, wanted, hardware)


def _explained(task: RunTask, wanted: str, hardware: HardwareSpec | None) -> dict[str, Any]:
    row = hardware or hardware_for(attrs_of(task.target))
    space = _space(task)
    trials = task.usable()
    if not trials:
        raise OptionError(
            f"TVM replays none of the {len(task.valid)} valid trials of task {wanted!r}; tune it "
            "again, in another --work-dir"
        )
    chosen = {"best": trials[0], "median": trials[(len(trials) - 1) // 2]}
    if task.untuned is not None:
        chosen["untuned"] = task.untuned
    schedules = []
    for which, (seconds, trace) in chosen.items():
        trial = _found(task, space, seconds, trace)
        schedules.append({"which": which, **_figures(trial, row)})
    return {
        "task": {"index": task.index, "name": task.name},
        "target": str(task.target),
        "hardware": {"row": row.describe(), "source": row.source},
        "trials": {
            "valid": len(task.valid),
            "failed": len(task.records) - len(task.valid),
            "passed_over": len(task.valid) - len(trials),
        },
        "rank_correlation": _ranks(trials, space, row),
        "schedules": schedules,
        "legend": legend(row.kind),
    }


def legend(kind: str) -> dict[str, dict[str, dict[str, str]]]:
    """Unit and meaning of every figure, by group."""
    terms = CPU_TERMS if kind == "cpu" else GPU_TERMS
    return {
        "symbols": {n: {"unit": unit, "meaning": text} for n, (unit, text) in MEANINGS.items()},
        "penalties": {p.name: {"unit": "1", "meaning": p.meaning} for p in PENALTIES},
        "terms": {t.name: {"unit": t.unit, "meaning": t.meaning} for t in terms},
    }


def _space(task: RunTask) -> DecisionSpace:
    context = TuneContext(
        task.workload.mod,
        target=task.target,
        space_generator=task.space,
        search_strategy=None,
        num_threads=1,
        rand_state=1,
    )
    return decision_space(list(context.generate_design_space()), context.mod, task.target)


def _found(task: RunTask, space: DecisionSpace, seconds: float, trace: Any) -> _Found:
    """A trial's program: in closed form where there is one, else read off its schedule."""
    place = space.find(trace)
    if place is not None and space[place[0]].closed:
        sketch, row = space[place[0]], place[1]
        program = sketch.program(row[None, :])
        if program.supported.all():
            return _Found(seconds, program, f"design space {place[0]}", sketch.decisions(row))
    schedule = Schedule(task.workload.mod, error_render_level="none")
    trace.apply_to_schedule(schedule, remove_postproc=False)
    decisions = None if place is None else space[place[0]].decisions(place[1])
    return _Found(seconds, read(schedule.mod, task.target), "read off the schedule", decisions)


def _figures(trial: _Found, hardware: HardwareSpec) -> dict[str, Any]:
    program = trial.program
    drafts = {name: draft(program, hardware, name) for name in VARIANTS}
    ours = drafts["ours"]
    facts = program.gpu
    return {
        "measured_s": trial.seconds,
        "draft_s": {name: _finite(one.latency) for name, one in drafts.items()},
        "valid": bool(ours.valid[0]),
        "compile_s": _finite(ours.compile_seconds),
        "origin": trial.origin,
        "decisions": trial.decisions,
        "terms": {name: float(value[0]) for name, value in ours.terms.items()},
        "gpu": None if facts is None else {n: int(v[0]) for n, v in vars(facts).items()},
        "statements": _statements(program, hardware),
    }


def _statements(program: SketchProgram, hardware: HardwareSpec) -> list[dict[str, Any]]:
    """Symbols and penalties of the statements that are there."""
    out = []
    for statement, values in zip(program.statements, symbols(program), strict=True):
        if not statement.alive[0]:
            continue
        limits = limits_at(statement, program, hardware)
        out.append(
            {
                "name": statement.name,
                "role": statement.role.value,
                "symbols": {n: float(getattr(values, n.lower())[0]) for n in MEANINGS},
                "penalties": {p.name: float(p.compute(values, limits)[0]) for p in PENALTIES},
            }
        )
    return out


def _finite(values: FloatArray) -> float | None:
    return float(values[0]) if np.isfinite(values[0]) else None


def _ranks(
    trials: Sequence[tuple[float, Any]], space: DecisionSpace, hardware: HardwareSpec
) -> Mapping[str, Any]:
    """Spearman's correlation of the draft with what was measured, over the closed-form trials."""
    rows: dict[int, list[tuple[Any, float]]] = {}
    for seconds, trace in trials:
        place = space.find(trace)
        if place is not None and space[place[0]].closed:
            rows.setdefault(place[0], []).append((place[1], seconds))
    drafted: list[Draft] = []
    measured: list[float] = []
    for index, members in rows.items():
        try:
            program = space[index].program(np.stack([row for row, _ in members]))
        except UnsupportedTrace:
            continue
        drafted.append(draft(program, hardware))
        measured += [seconds for _, seconds in members]
    return {"trials": len(measured), "spearman": _spearman(drafted, np.array(measured))}


def _spearman(drafted: Sequence[Draft], measured: FloatArray) -> float | None:
    latency = np.concatenate([d.latency for d in drafted]) if drafted else np.zeros(0)
    good = np.isfinite(latency)
    if good.sum() < 3:
        return None
    return rank_correlation(latency[good], measured[good])
