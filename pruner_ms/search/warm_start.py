"""Warm start from the tuning database.

No schedule is measured twice; elites, the draft's calibration and the cost model learn the records.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.search import verify
from pruner_ms.search.core import TaskSearch
from pruner_ms.search.drafting import Drafting
from pruner_ms.search.replay import Replayer
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import DecisionSpace, Sketch
from pruner_ms.tvm_compat.paths import target_key
from pruner_ms.tvm_compat.untuned import is_untuned
from pruner_ms.types import BoolArray, IntArray, telling, valid_latency

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PastRecord:
    """One record: its trace, and its mean latency in seconds (None: the trial failed)."""

    trace: Any
    latency: float | None


def records_of_task(database: Any, mod: Any, target: Any) -> list[PastRecord]:
    """The records of a module on a target, in the order of the database.

    TVM's query ignores the target, so records of other targets are left out here. So are failures
    that say nothing about schedules (`types.telling`), for lack of a compiler or a device: those
    are tried again.
    """
    if database is None or not database.has_workload(mod):
        return []
    workload = database.commit_workload(mod)
    wanted = target_key(target)
    records = database.get_all_tuning_records()
    matching = [
        PastRecord(record.trace, valid_latency(record.run_secs))
        for record in records
        if record.workload.same_as(workload) and _is_for(record, wanted)
    ]
    if not matching or any(one.latency is not None for one in matching):
        return matching
    ran = (valid_latency(one.run_secs) is not None for one in records if _is_for(one, wanted))
    if telling(False for _ in matching) and telling(ran):
        return matching
    _log.warning("all %d records of a task failed: its schedules are tried again", len(matching))
    return []


def _is_for(record: Any, target: str) -> bool:
    return record.target is None or target_key(record.target) == target


_REPLAYED = 64
"""Most records that are replayed to find the untuned function: replaying more takes longer than
measuring it."""


@dataclass(frozen=True)
class Learners:
    """The parts of a search that learn the records of the task `key`."""

    key: str
    target: Any
    space: DecisionSpace
    search: TaskSearch
    drafting: Drafting
    replayer: Replayer
    cost_model: Any
    log: logging.Logger

    def observe(self, program: SketchProgram, latencies: Sequence[float]) -> None:
        """Pass measured schedules to the cost model if it is one of this package."""
        model = verify.our_model(self.cost_model)
        if model is not None:
            model.observe(self.key, program, latencies)


def warm_start(learners: Learners, records: Sequence[PastRecord], untuned_due: bool) -> bool:
    """Learn the records of a task.

    Parameters
    ----------
    untuned_due
        Whether the untuned function is still to be measured: its module may be among the records.

    Returns
    -------
    bool
        Whether a record is that of the untuned function.
    """
    schedules = [record for record in records if not is_untuned(record.trace)]
    by_sketch: dict[int, list[tuple[IntArray, PastRecord]]] = {}
    others = []
    for record in schedules:
        place = learners.space.find(record.trace)
        if place is None:
            others.append(record)
            continue
        sketch, row = place
        key = learners.space[sketch].key(row[None, :])[0]
        learners.search.tell(sketch, row, key, record.latency)
        if learners.space[sketch].closed:
            by_sketch.setdefault(sketch, []).append((row, record))
        else:
            others.append(record)
    if untuned_due and len(schedules) == len(records):
        closed = [one.trace for members in by_sketch.values() for _, one in members]
        done = learners.replayer.replay([(trace, 1) for trace in closed[:_REPLAYED]])
        learners.search.modules.update(one.key for one in done if one is not None)
    for sketch, members in by_sketch.items():
        others += _drafted(learners, learners.space[sketch], members)
    _read(learners, others)
    learners.drafting.calibrate()
    if records:
        learners.log.info("%d records of this task are in the database", len(records))
    return len(schedules) < len(records)


def _drafted(
    learners: Learners, sketch: Sketch, members: Sequence[tuple[IntArray, PastRecord]]
) -> list[PastRecord]:
    """Learn records of a design space by its closed form; returns unsupported ones."""
    rows = np.stack([row for row, _ in members])
    try:
        program = sketch.program(rows)
    except UnsupportedTrace:
        return [one for _, one in members]
    sure = program.supported
    if sure.any():
        seconds = np.array([np.nan if one.latency is None else one.latency for _, one in members])
        ran = np.isfinite(seconds)
        learners.drafting.learn(_of_rows(sketch, rows, program, sure), seconds[sure].tolist())
        if (sure & ran).any():
            measured = _of_rows(sketch, rows, program, sure & ran)
            learners.observe(measured, seconds[sure & ran].tolist())
    return [one for (_, one), good in zip(members, sure, strict=True) if not good]


def _of_rows(
    sketch: Sketch, rows: IntArray, program: SketchProgram, selected: BoolArray
) -> SketchProgram:
    """The program of selected rows; the given one where all are selected."""
    return program if selected.all() else sketch.program(rows[selected])


def _read(learners: Learners, records: Sequence[PastRecord]) -> None:
    """Learn records of schedules without a closed form, as far as they can be replayed."""
    replayed = learners.replayer.stream([(record.trace, 1) for record in records])
    for record, done in zip(records, replayed, strict=True):
        if done is None:
            continue
        learners.search.modules.add(done.key)
        try:
            program = read(done.schedule.mod, learners.target)
        except UnsupportedTrace as verdict:
            learners.log.debug("a record cannot be read: %s", verdict)
            continue
        # a failure (NaN) makes schedules like it less novel
        learners.drafting.learn(program, [np.nan if record.latency is None else record.latency])
        if record.latency is not None:
            learners.observe(program, [record.latency])
