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
from pruner_ms.types import BoolArray, IntArray

if TYPE_CHECKING:
    from pruner_ms.search.task import TaskRun

TWINS = 1024
"""Decisions of a design space up to which its records are replayed for their modules. In one of
elementwise operations a fourth of the decisions are different programs; in a large one hardly any
two make the same."""


def recall(run: TaskRun, database: Any) -> None:
    """Learn the records of a task."""
    known = known_records(database, run.facts.mod, run.facts.target)
    by_sketch: dict[int, list[tuple[IntArray, Known]]] = {}
    others = []
    for record in known:
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
    for sketch, members in by_sketch.items():
        others += _drafted(run, run.space[sketch], members)
    _read(run, others)
    small = [s for s in by_sketch if run.space[s].choices.count() <= TWINS]
    _replay(run, [one for sketch in small for _, one in by_sketch[sketch]])
    run.drafting.calibrate()
    if known:
        run.log.info("%d records of this task are in the database", len(known))


def _drafted(
    run: TaskRun, sketch: Sketch, members: Sequence[tuple[IntArray, Known]]
) -> list[Known]:
    """Learn records of a design space by its closed form; gives those that it is unsure of."""
    sure = _sure(sketch, np.stack([row for row, _ in members]))
    kept = [member for member, good in zip(members, sure, strict=True) if good]
    if kept:
        rows, ran = np.stack([row for row, _ in kept]), [one.latency for _, one in kept]
        run.drafting.learn(sketch.program(rows), [np.nan if s is None else s for s in ran])
        seconds = [s for s in ran if s is not None]
        if seconds:
            _observe(run, sketch.program(rows[[s is not None for s in ran]]), seconds)
    return [one for (_, one), good in zip(members, sure, strict=True) if not good]


def _sure(sketch: Sketch, rows: IntArray) -> BoolArray:
    """Rows of which the closed form is sure, bool (N,)."""
    try:
        return sketch.program(rows).supported
    except UnsupportedTrace:
        return np.zeros(len(rows), np.bool_)


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


def _replay(run: TaskRun, records: Sequence[Known]) -> None:
    """Note the modules of records: other decisions may make the same one."""
    replayed = run.replayer.stream([(record.trace, 1) for record in records])
    run.search.modules.update(done.key for done in replayed if done is not None)


def _observe(run: TaskRun, program: SketchProgram, latencies: Sequence[float]) -> None:
    """The model learns measured schedules of the database."""
    model = verify.our_model(run.cost_model)
    if model is not None:
        model.observe(run.key, program, latencies)
