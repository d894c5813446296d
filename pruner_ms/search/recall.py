"""Warm start: a search begins with what the database holds of its task.

Nothing is measured twice; the elites, the draft's calibration and the cost model learn the records.
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
class Known:
    """One record: its trace, and its mean latency in seconds (None: the trial failed)."""

    trace: Any
    latency: float | None


def known_records(database: Any, mod: Any, target: Any) -> list[Known]:
    """The records of a module on a target, in the order of the database.

    TVM's own query ignores the target, so records of another one are left out here. So are those
    that say nothing of schedules (`types.telling`), of the module or of the whole database: what
    failed for want of a compiler or a device is tried again.
    """
    if database is None or not database.has_workload(mod):
        return []
    workload = database.commit_workload(mod)
    wanted = target_key(target)
    records = database.get_all_tuning_records()
    known = [
        Known(record.trace, valid_latency(record.run_secs))
        for record in records
        if record.workload.same_as(workload) and _is_for(record, wanted)
    ]
    if not known or any(one.latency is not None for one in known):
        return known
    ran = (valid_latency(one.run_secs) is not None for one in records if _is_for(one, wanted))
    if telling(False for _ in known) and telling(ran):
        return known
    _log.warning("all %d records of a task failed: its schedules are tried again", len(known))
    return []


def _is_for(record: Any, target: str) -> bool:
    return record.target is None or target_key(record.target) == target


_REPLAYED = 64
"""Records that are looked at for one that is the untuned function: of more, that takes longer than
to measure it."""


@dataclass(frozen=True)
class Learners:
    """What learns the records of a task, which is named `key`."""

    key: str
    target: Any
    space: DecisionSpace
    search: TaskSearch
    drafting: Drafting
    replayer: Replayer
    cost_model: Any
    log: logging.Logger

    def observe(self, program: SketchProgram, latencies: Sequence[float]) -> None:
        """The cost model learns measured schedules; one that is not ours does not."""
        model = verify.our_model(self.cost_model)
        if model is not None:
            model.observe(self.key, program, latencies)


def recall(learners: Learners, records: Sequence[Known], untuned_due: bool) -> bool:
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
    by_sketch: dict[int, list[tuple[IntArray, Known]]] = {}
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
    learners: Learners, sketch: Sketch, members: Sequence[tuple[IntArray, Known]]
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
        learners.drafting.learn(_of_rows(sketch, rows, program, sure), seconds[sure].tolist())
        if (sure & ran).any():
            measured = _of_rows(sketch, rows, program, sure & ran)
            learners.observe(measured, seconds[sure & ran].tolist())
    return [one for (_, one), good in zip(members, sure, strict=True) if not good]


def _of_rows(
    sketch: Sketch, rows: IntArray, program: SketchProgram, kept: BoolArray
) -> SketchProgram:
    """The program of some of the rows; the one of all of them where all are kept."""
    return program if kept.all() else sketch.program(rows[kept])


def _read(learners: Learners, records: Sequence[Known]) -> None:
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
        # of a failure is known that nothing like it is new
        learners.drafting.learn(program, [np.nan if record.latency is None else record.latency])
        if record.latency is not None:
            learners.observe(program, [record.latency])
