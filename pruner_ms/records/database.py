"""TVM's JSON database: opened safely, what is in it, and trials added to it."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pruner_ms.errors import DatabaseError, last_line
from pruner_ms.files import strict_loads
from pruner_ms.records.tables import Identity, Repair, Tables, read_tables, repair
from pruner_ms.records.workdir import WorkDir
from pruner_ms.tensorcore.registration import register_named_in
from pruner_ms.tvm_compat.marks import marks_untuned
from pruner_ms.tvm_compat.paths import VERSION, ArgInfo, Schedule, Target, Trace, ms, plain
from pruner_ms.tvm_compat.safe_traces import REFUSALS
from pruner_ms.types import FAILED_SECONDS, Failed, FailureKind, Measurement, Ok, valid_latency

log = logging.getLogger(__name__)

Stored = dict[str, dict[str, Measurement]]
"""Workload hash -> trace identity -> outcome."""

UNTUNED = "untuned"
"""The `trace_id` of an untuned function."""


# Names that are equal for objects that TVM treats as equal.


def workload_hash(parsed: Any) -> str:
    """This TVM's structural hash of a parsed workload line.

    Raises
    ------
    ValueError
        TVM cannot read the module.
    """
    return _hash_of(parsed[0], parsed[1])


def workload_of(parsed: Any) -> Any:
    """TVM's workload of a parsed workload line.

    Raises
    ------
    ValueError
        TVM cannot read the module.
    """
    return _workload(parsed[0], parsed[1])


@functools.lru_cache(maxsize=1024)
def _workload(shash: str, module: str) -> Any:
    try:
        return ms.database.Workload.from_json([shash, module])
    except REFUSALS as error:
        raise ValueError(f"TVM cannot read the module ({last_line(error)})") from error


@functools.lru_cache(maxsize=1024)
def _hash_of(shash: str, module: str) -> str:
    return str(ms.utils.shash2hex(_workload(shash, module).mod))


def target_text(target: Any) -> str:
    """A target as canonical JSON, equal for equal targets; the name of its tag plays no part."""
    exported = {k: v for k, v in plain(target.export()).items() if k != "tag"}
    return json.dumps(exported, sort_keys=True, separators=(",", ":"), default=str)


def target_of(stored: Any) -> Any:
    """TVM's target of a record.

    Raises
    ------
    ValueError
        The record has none, or this TVM does not take it.
    """
    return _target(json.dumps(stored, sort_keys=True, separators=(",", ":")))


@functools.lru_cache(maxsize=64)
def _target(text: str) -> Any:
    config = json.loads(text)
    if config is None:
        raise ValueError("the record has no target")
    try:
        return Target(config)
    except REFUSALS as error:
        raise ValueError(f"this TVM does not take the target: {last_line(error)}") from error


def target_of_record(stored: Any) -> str:
    """A record's target as `target_text` would have it; its own text if TVM does not know it."""
    return _target_text(json.dumps(stored, sort_keys=True, separators=(",", ":")))


@functools.lru_cache(maxsize=64)
def _target_text(text: str) -> str:
    try:
        return target_text(_target(text))
    except ValueError:
        return text


def trace_id(trace: Any) -> str:
    """An identity for a trace in JSON form, the same for a live trace and a stored one.

    Floats (the odds of `SampleCategorical`) are cut to six digits: TVM prints them in full, and
    whole ones without a fraction. Booleans become numbers: TVM stores them as 0 and 1. A layout
    (`TransformLayout`) is JSON within a text, which is indented in a stored trace and not in a live
    one. The identity of an untuned function is `UNTUNED`, whatever follows its mark.
    """
    if marks_untuned(trace):
        return UNTUNED
    text = json.dumps(_rounded(trace), separators=(",", ":"))
    return hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).hexdigest()


def _rounded(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    if isinstance(value, str) and value.startswith("{"):
        with suppress(ValueError):
            return json.dumps(strict_loads(value.encode()), separators=(",", ":"))
    return value


# Opening.


def open_database(work_dir: WorkDir, module_equality: str = "structural") -> tuple[Any, Repair]:
    """Repair a work-dir's database and open it.

    Form is checked first, in Python, because TVM aborts the process on some damage. Only when TVM
    then refuses the file is each record tried on its own.

    Parameters
    ----------
    work_dir
        The directory, owned.
    module_equality
        As for `tvm...meta_schedule.database.JSONDatabase`.

    Returns
    -------
    tuple of Database and Repair
        The database, what was read, and what was set aside.

    Raises
    ------
    DatabaseError
        Another version of TVM wrote it, and this one reads no workload of it (no file has
        changed); or TVM refuses the files though each line of them is fine.
    WorkDirError
        The files cannot be read or written.
    """
    first = mended(work_dir)
    try:
        return _load(work_dir, module_equality), first
    except Exception as error:  # every class TVM raises, see above
        log.debug("TVM refuses the database, trying each record: %s", error)
    second = repair(work_dir.root, read_tables(work_dir.root, workload_hash, _check_trial))
    for name, lines in first.rejected.items():
        second.rejected[name] = lines + second.rejected.get(name, [])
    try:
        return _load(work_dir, module_equality), second
    except Exception as error:
        raise DatabaseError(
            f"TVM cannot open {work_dir.records} ({last_line(error)}); "
            "move the two database_*.json files away, or give another --work-dir"
        ) from error


def _load(work_dir: WorkDir, module_equality: str) -> Any:
    return ms.database.JSONDatabase(
        str(work_dir.workloads), str(work_dir.records), module_equality=module_equality
    )


def _check_trial(workload: Any, record: Any) -> None:
    """Raise ValueError unless TVM reads this record (it replays the trace)."""
    try:
        ms.database.TuningRecord.from_json(record, workload_of(workload))
    except REFUSALS as error:
        raise ValueError(f"TVM cannot read the record ({last_line(error)})") from error


def mended(work_dir: WorkDir, identity: Identity = workload_hash) -> Repair:
    """Repair a work-dir's database; refuse that of another TVM, which a repair would empty.

    Raises
    ------
    DatabaseError
        This TVM reads no workload of it because another version wrote it. No file has changed.
    WorkDirError
        The files cannot be read or written.
    """
    tables = read_tables(work_dir.root, identity)
    writer = work_dir.manifest().get("tvm")
    if writer != VERSION and tables.workloads and not tables.names:
        if not isinstance(writer, str):  # garbled lines do not say that another TVM was here
            writer = "another TVM" if read_tables(work_dir.root).names else None
        else:
            writer = f"TVM {writer}"
        if writer:
            raise DatabaseError(
                f"{work_dir.root} was written by {writer}, and this TVM ({VERSION}) can read no "
                f"workload of it; carry it over with `pruner-ms db import {work_dir.root} --into "
                "OTHER`"
            )
    return repair(work_dir.root, tables)


# What is stored.


def stored_trials(folder: Path, tables: Tables, target: Any) -> Stored:
    """What an opened database holds.

    A trace may have several records, as merged databases do; the best outcome counts.

    Parameters
    ----------
    folder
        Where the database is.
    tables
        `Repair.tables`, from when it was opened.
    target
        The target that its records must be of.

    Raises
    ------
    DatabaseError
        It holds records of another target. TVM would use them for this one.
    """
    wanted = target_text(target)
    foreign: dict[str, int] = {}
    stored: Stored = {name: {} for name in tables.names.values()}
    for index, (trace, run_secs, stored_target, _) in tables.usable():
        text = wanted if stored_target is None else target_of_record(stored_target)
        if text != wanted:
            foreign[text] = foreign.get(text, 0) + 1
        outcomes, name = stored[tables.names[index]], trace_id(trace)
        outcome = outcome_of_record(run_secs)
        outcomes[name] = _better(outcomes.get(name, outcome), outcome)
    if foreign:
        text, count = max(foreign.items(), key=lambda item: item[1])
        raise DatabaseError(
            f"{folder} holds {count} records for the target {text}, not for {wanted}, and "
            "TVM does not tell them apart; give another --work-dir"
        )
    return stored


def _better(one: Measurement, other: Measurement) -> Measurement:
    """A success rather than a failure, and the faster of two successes."""
    if isinstance(other, Failed) or (isinstance(one, Ok) and one.latency <= other.latency):
        return one
    return other


def outcome_of_record(run_secs: Any) -> Measurement:
    """What a stored latency says: TVM keeps a failure as 1e10 seconds."""
    if valid_latency(run_secs) is None:
        return Failed(FailureKind.RUN, "failed when it was measured")
    return Ok(tuple(float(v) for v in run_secs))


# Adding trials.


def replayed_json(trace: Any, mod: Any) -> Any:
    """The schedule that a trace in JSON form makes of a module; its intrinsics are registered.

    Raises
    ------
    Exception
        One of `REFUSALS`: this TVM cannot replay it.
    """
    register_named_in(json.dumps(trace))
    schedule = Schedule(mod)
    Trace.apply_json_to_schedule(trace, schedule)
    return schedule


def recover(
    database: Any,
    stored: Stored,
    trials: Iterable[tuple[str, Any, Measurement]],
    modules: Mapping[str, Any],
    target: Any,
) -> int:
    """Commit journaled trials that the database lacks (a kill inside a batch leaves such).

    Parameters
    ----------
    database, stored
        The database and what it holds; `stored` is extended.
    trials
        Workload hash, trace in JSON form and outcome of each; those without a trace, or of other
        workloads, are passed over.
    modules
        Workload hash -> IRModule of the session's tasks.
    target
        Target of the trials.

    Returns
    -------
    int
        Records committed.
    """
    count = 0
    for workload, trace, outcome in trials:
        if trace is None or workload not in modules:
            continue
        name = trace_id(trace)
        outcomes = stored.setdefault(workload, {})
        if name in outcomes:
            continue
        try:
            schedule = replayed_json(trace, modules[workload])
        except REFUSALS as error:
            log.warning("a journaled trace cannot be replayed: %s", last_line(error))
            continue
        commit(database, modules[workload], schedule, outcome, target)
        outcomes[name] = outcome
        count += 1
    return count


def commit(database: Any, mod: Any, schedule: Any, outcome: Measurement, target: Any) -> None:
    """Add one trial to a database, failures as TVM stores them (1e10 seconds)."""
    seconds = list(outcome.run_secs) if isinstance(outcome, Ok) else [FAILED_SECONDS]
    database.commit_tuning_record(
        ms.database.TuningRecord(
            schedule.trace,
            database.commit_workload(mod),
            seconds,
            target,
            ArgInfo.from_entry_func(schedule.mod, remove_preproc=True),
        )
    )
