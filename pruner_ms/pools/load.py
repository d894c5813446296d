"""A pool's records as TVM objects: module, target, schedules. Every trace is replayed once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pruner_ms.errors import DatabaseError, last_line
from pruner_ms.records.database import target_of, workload_of
from pruner_ms.records.pools import Pool, Trial
from pruner_ms.tensorcore.registration import register_named_in
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import Schedule, Trace, target_key


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
        The tuned module and its target.
    meta
        See `records.pools.Pool.meta`.
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
    try:
        target = _target(pool)
        mod = workload_of(pool.halves[0].workload).mod
    except ValueError as error:
        raise DatabaseError(
            f"{pool.name}: {str(error)[:240]}; use the TVM that recorded it"
        ) from error
    records: list[Record] = []
    notes = [note for pool_half in pool.halves for note in pool_half.notes]
    lost: list[str] = []
    for pool_half in pool.halves:
        for line in pool_half.lines:
            schedule = _replayed(line.trace, mod, lost)
            if schedule is not None:
                records.append(Record(schedule, line.latency, pool_half.half, line.trial))
    if lost:
        notes.append(f"{len(lost)} records are left out, TVM cannot replay them: {lost[0]}")
    if not records:
        raise DatabaseError(f"{pool.name}: TVM can replay none of its records ({lost[0]})")
    refused = _refused(pool, mod, notes)
    return Loaded(pool.name, mod, target, pool.meta, tuple(records), refused, tuple(notes))


def _register_named(pool: Pool) -> None:
    """Register our intrinsics named in the traces: this process generated no design space."""
    for pool_half in pool.halves:
        traces = [line.trace for line in pool_half.lines] + list(pool_half.rejected or ())
        register_named_in(json.dumps(traces))


def _target(pool: Pool) -> Any:
    """The target of all records; without one, that of meta.json."""
    named: list[Any] = [
        line.target for pool_half in pool.halves for line in pool_half.lines if line.target
    ]
    stated = pool.meta.get("target")
    if not named and not stated:
        raise DatabaseError(f"{pool.name}: neither its records nor meta.json name a target")
    targets = {target_key(target): target for target in map(target_of, named or [stated])}
    if len(targets) > 1:
        texts = " and ".join(sorted(targets)[:2])
        raise DatabaseError(f"{pool.name}: its records are of several targets, {texts}")
    return next(iter(targets.values()))


def _replayed(trace: Any, mod: Any, lost: list[str]) -> Any:
    """The schedule of a trace; None where TVM cannot replay it, with the reason in `lost`."""
    schedule = Schedule(mod, seed=1, error_render_level="none")
    try:
        Trace.apply_json_to_schedule(trace, schedule)
    except Exception as error:  # ScheduleError and the classes in `safe_traces.REFUSALS`
        lost.append(last_line(error)[:160])
        return None
    return schedule


def _refused(pool: Pool, mod: Any, notes: list[str]) -> tuple[Any, ...] | None:
    lists = [pool_half.rejected for pool_half in pool.halves if pool_half.rejected is not None]
    if not lists:
        return None
    lost: list[str] = []  # a schedule error is a refusal, too, but has no row
    schedules = [_replayed(trace, mod, lost) for traces in lists for trace in traces]
    if lost:
        notes.append(f"{len(lost)} refused traces are left out: TVM cannot replay them")
    return tuple(schedule.trace for schedule in schedules if schedule is not None)
