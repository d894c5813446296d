"""A search starts from what the database holds of its task: elites, calibration, the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.search import verify
from pruner_ms.search.reuse import Known, known_records
from pruner_ms.symbolic.lowered import read
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import Sketch
from pruner_ms.tvm_compat.untuned import is_untuned
from pruner_ms.types import BoolArray, IntArray

if TYPE_CHECKING:
    from pruner_ms.search.task import TaskRun


_REPLAYED = 64
"""Records that are looked at for one that is the untuned function: of more, that takes longer than
to measure it."""


def recall(run: TaskRun, database: Any) -> None:
    """Learn the records of a task."""
    known = known_records(database, run.facts.mod, run.facts.target)
    by_sketch: dict[int, list[tuple[IntArray, Known]]] = {}
    others = []
    for record in known:
        if is_untuned(record.trace):
            run.untuned_known()
            continue
        found = run.space.find(record.trace)
        if found is None:
            others.append(record)
            continue
        sketch, row = found
        key = run.space[sketch].key(row[None, :])[0]
        run.search.tell(sketch, row, key, record.latency)
        if run.space[sketch].closed:
            by_sketch.setdefault(sketch, []).append((row, record))
        else:
            others.append(record)
    if run.untuned_due:  # else its module is known
        closed = [one.trace for members in by_sketch.values() for _, one in members]
        done = run.replayer.replay([(trace, 1) for trace in closed[:_REPLAYED]])
        run.search.modules.update(one.key for one in done if one is not None)
    for sketch, members in by_sketch.items():
        others += _drafted(run, run.space[sketch], members)
    _read(run, others)
    run.drafting.calibrate()
    if known:
        run.log.info("%d records of this task are in the database", len(known))


def _drafted(
    run: TaskRun, sketch: Sketch, members: Sequence[tuple[IntArray, Known]]
) -> list[Known]:
    """Learn records of a design space by its closed form; gives those that it is unsure of."""
    rows = np.stack([row for row, _ in members])
    try:
        program = sketch.program(rows)
    except UnsupportedTrace:
        return [one for _, one in members]
    sure = program.supported
    if sure.any():
        seconds = np.array([np.nan if one.latency is None else one.latency for _, one in members])
        ran = np.isfinite(seconds)
        run.drafting.learn(_of_rows(sketch, rows, program, sure), seconds[sure].tolist())
        if (sure & ran).any():
            measured = _of_rows(sketch, rows, program, sure & ran)
            _observe(run, measured, seconds[sure & ran].tolist())
    return [one for (_, one), good in zip(members, sure, strict=True) if not good]


def _of_rows(
    sketch: Sketch, rows: IntArray, program: SketchProgram, kept: BoolArray
) -> SketchProgram:
    """The program of some of the rows; the one of all of them where all are kept."""
    return program if kept.all() else sketch.program(rows[kept])


def _read(run: TaskRun, records: Sequence[Known]) -> None:
    """Learn records of schedules without a closed form, as far as they can be replayed."""
    replayed = run.replayer.stream([(record.trace, 1) for record in records])
    for record, done in zip(records, replayed, strict=True):
        if done is None:
            continue
        run.search.modules.add(done.key)
        try:
            program = read(done.schedule.mod, run.facts.target)
        except UnsupportedTrace as verdict:
            run.log.debug("a record cannot be read: %s", verdict)
            continue
        # of a failure is known that nothing like it is new
        run.drafting.learn(program, [np.nan if record.latency is None else record.latency])
        if record.latency is not None:
            _observe(run, program, [record.latency])


def _observe(run: TaskRun, program: SketchProgram, latencies: Sequence[float]) -> None:
    """The model learns measured schedules of the database."""
    model = verify.our_model(run.cost_model)
    if model is not None:
        model.observe(run.key, program, latencies)
