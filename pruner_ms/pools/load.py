"""A pool's records as TVM objects: module, target, schedules. Every trace is replayed once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pruner_ms.errors import DatabaseError, last_line
from pruner_ms.pools.extras import Trial
from pruner_ms.pools.format import Half, Line, Pool
from pruner_ms.tensorcore.registration import register_named_in
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import Schedule, Target, Trace, ms, target_key
from pruner_ms.tvm_compat.safe_traces import REFUSALS


@dataclass(frozen=True, eq=False)
class Record:
    """One measured schedule.

    Attributes
    ----------
    schedule
        With its postprocessors applied, as it was built.
    latency
        Mean seconds; None: the trial failed.
    half
        "random", "evolved" or "" (not known).
    trial
        None without trials.jsonl.
    """

    schedule: Any
    latency: float | None
    half: str
    trial: Trial | None


@dataclass(frozen=True, eq=False)
class Loaded:
    """A pool in TVM's terms.

    Attributes
    ----------
    name
        "workload.platform".
    mod, target
        What was tuned, and for what.
    meta
        See `format.Pool.meta`.
    records
        Those that TVM can replay.
    refused
        Traces that a postprocessor refused; None where no half lists them.
    notes
        What was left out.
    """

    name: str
    mod: Any
    target: Any
    meta: Mapping[str, Any]
    records: tuple[Record, ...]
    refused: tuple[Any, ...] | None
    notes: tuple[str, ...]


def load(pool: Pool) -> Loaded:
    """Replay a pool's records.

    Raises
    ------
    DatabaseError
        TVM cannot read the module or one target of all records, or replays no record.
    """
    import_intrinsics()  # tensorised records name them
    _register_named(pool)
    target = _target(pool)
    mod = _module(pool)
    records: list[Record] = []
    notes = [note for half in pool.halves for note in half.notes]
    lost = []
    for half in pool.halves:
        for line in half.lines:
            found = _replayed(mod, half, line)
            if isinstance(found, Record):
                records.append(found)
            else:
                lost.append(found)
    if lost:
        notes.append(f"{len(lost)} records are left out, TVM cannot replay them: {lost[0]}")
    if not records:
        raise DatabaseError(f"{pool.name}: TVM can replay none of its records ({lost[0]})")
    refused = _refused(pool, mod, notes)
    return Loaded(pool.name, mod, target, pool.meta, tuple(records), refused, tuple(notes))


def _register_named(pool: Pool) -> None:
    """Register those intrinsics of ours that traces name: this process made no design space."""
    for half in pool.halves:
        traces = [line.trace for line in half.lines] + list(half.rejected or ())
        register_named_in(json.dumps(traces))


def _target(pool: Pool) -> Any:
    """The one target of the records; where they name none, that of meta.json."""
    named: list[Any] = [line.target for half in pool.halves for line in half.lines if line.target]
    said = pool.meta.get("target")
    if not named and not said:
        raise DatabaseError(f"{pool.name}: neither its records nor meta.json name a target")
    found: dict[str, Any] = {}
    for config in named or [said]:
        try:
            target = Target(config)
        except REFUSALS as error:
            raise DatabaseError(
                f"{pool.name}: TVM does not know the target {str(config)[:120]} "
                f"({last_line(error)[:120]}); use the TVM that recorded it"
            ) from error
        found[target_key(target)] = target
    if len(found) > 1:
        texts = " and ".join(sorted(found)[:2])
        raise DatabaseError(f"{pool.name}: its records are of several targets, {texts}")
    return next(iter(found.values()))


def _module(pool: Pool) -> Any:
    shash, text = pool.halves[0].workload
    try:
        return ms.database.Workload.from_json([shash, text]).mod
    except REFUSALS as error:
        raise DatabaseError(
            f"{pool.name}: TVM cannot read its module ({last_line(error)[:160]}); use the TVM "
            "that recorded it"
        ) from error


def _replayed(mod: Any, half: Half, line: Line) -> Record | str:
    """A record, or why TVM cannot replay it."""
    schedule = Schedule(mod, seed=1, error_render_level="none")
    try:
        Trace.apply_json_to_schedule(line.trace, schedule)
    except Exception as error:  # ScheduleError and the classes in REFUSALS
        return last_line(error)[:160]
    return Record(schedule, line.latency, half.half, line.trial)


def _refused(pool: Pool, mod: Any, notes: list[str]) -> tuple[Any, ...] | None:
    lists = [half.rejected for half in pool.halves if half.rejected is not None]
    if not lists:
        return None
    found, lost = [], 0
    for text in (trace for traces in lists for trace in traces):
        schedule = Schedule(mod, seed=1, error_render_level="none")
        try:
            Trace.apply_json_to_schedule(text, schedule)
        except Exception:  # a schedule error is a refusal too, but has no row to be judged by
            lost += 1
            continue
        found.append(schedule.trace)
    if lost:
        notes.append(f"{lost} refused traces are left out: TVM cannot replay them")
    return tuple(found)
