"""Opening TVM's JSON database safely, and what is in it."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pruner_ms.errors import DatabaseError, last_line
from pruner_ms.session.files import strict_loads
from pruner_ms.session.foreign import mended
from pruner_ms.session.journal import Entry
from pruner_ms.session.records import Repair, repair, trace_id
from pruner_ms.session.workdir import WorkDir
from pruner_ms.tensorcore.registration import register_named_in
from pruner_ms.tvm_compat.paths import ArgInfo, Schedule, Target, Trace, ms, plain
from pruner_ms.tvm_compat.safe_traces import REFUSALS
from pruner_ms.types import FAILED_SECONDS, Failed, FailureKind, Measurement, Ok, valid_latency

log = logging.getLogger(__name__)

Stored = dict[str, dict[str, Measurement]]
"""Workload hash -> trace identity -> outcome."""


def target_text(target: Any) -> str:
    """A target as canonical JSON, equal for equal targets; the name of its tag plays no part."""
    exported = {k: v for k, v in plain(target.export()).items() if k != "tag"}
    return json.dumps(exported, sort_keys=True, separators=(",", ":"), default=str)


def workload_hash(parsed: Any) -> str:
    """This TVM's structural hash of a parsed workload line.

    Raises
    ------
    ValueError
        TVM cannot read the module.
    """
    return _hash_of(parsed[0], parsed[1])


@functools.lru_cache(maxsize=1024)
def _workload(shash: str, module: str) -> Any:
    try:
        return ms.database.Workload.from_json([shash, module])
    except REFUSALS as error:
        raise ValueError(f"TVM cannot read the module ({last_line(error)})") from error


@functools.lru_cache(maxsize=1024)
def _hash_of(shash: str, module: str) -> str:
    return str(ms.utils.shash2hex(_workload(shash, module).mod))


def _check_trial(workload: Any, record: Any) -> None:
    """Raise ValueError unless TVM reads this record (it replays the trace)."""
    try:
        ms.database.TuningRecord.from_json(record, _workload(workload[0], workload[1]))
    except REFUSALS as error:
        raise ValueError(f"TVM cannot read the record ({last_line(error)})") from error


def _load(work_dir: WorkDir, module_equality: str) -> Any:
    return ms.database.JSONDatabase(
        str(work_dir.workloads), str(work_dir.records), module_equality=module_equality
    )


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
        The database, and what was set aside.

    Raises
    ------
    DatabaseError
        Another version of TVM wrote it, and this one reads no workload of it (no file has
        changed); or TVM refuses the files though each line of them is fine.
    WorkDirError
        The files cannot be read or written.
    """
    first = mended(work_dir, workload_hash)
    try:
        return _load(work_dir, module_equality), first
    except Exception as error:  # every class TVM raises, see above
        log.debug("TVM refuses the database, trying each record: %s", error)
    second = repair(work_dir.workloads, work_dir.records, workload_hash, _check_trial)
    for name, lines in first.rejected.items():
        second.rejected[name] = lines + second.rejected.get(name, [])
    try:
        return _load(work_dir, module_equality), second
    except Exception as error:
        raise DatabaseError(
            f"TVM cannot open {work_dir.records} ({last_line(error)}); "
            "move the two database_*.json files away, or give another --work-dir"
        ) from error


def stored_trials(work_dir: WorkDir, target: Any) -> Stored:
    """What an opened (hence repaired) database holds, read from its files.

    A trace may have several records, as merged databases do; the best outcome counts.

    Raises
    ------
    DatabaseError
        It holds records of another target. TVM would use them for this one.
    """
    hashes = [workload_hash(value) for value in _lines(work_dir.workloads)]
    wanted = target_text(target)
    foreign: dict[str, int] = {}
    found: Stored = {name: {} for name in hashes}
    for index, (trace, run_secs, stored_target, _) in _lines(work_dir.records):
        text = wanted if stored_target is None else target_of_record(stored_target)
        if text != wanted:
            foreign[text] = foreign.get(text, 0) + 1
        outcomes, name = found[hashes[index]], trace_id(trace)
        outcome = outcome_of_record(run_secs)
        outcomes[name] = _better(outcomes.get(name, outcome), outcome)
    if foreign:
        text, count = max(foreign.items(), key=lambda item: item[1])
        raise DatabaseError(
            f"{work_dir.root} holds {count} records for the target {text}, not for {wanted}, and "
            "TVM does not tell them apart; give another --work-dir"
        )
    return found


def _better(one: Measurement, other: Measurement) -> Measurement:
    """A success rather than a failure, and the faster of two successes."""
    if isinstance(other, Failed) or (isinstance(one, Ok) and one.latency <= other.latency):
        return one
    return other


def target_of_record(stored: Any) -> str:
    """A record's target as `target_text` would have it."""
    return _normal(json.dumps(stored))


@functools.lru_cache(maxsize=64)
def _normal(text: str) -> str:
    config = json.loads(text)
    try:
        return target_text(Target(config))
    except REFUSALS:
        # a target this TVM does not know: its own text will do for the comparison
        return json.dumps(config, sort_keys=True, separators=(",", ":"))


def _lines(path: Path) -> list[Any]:
    return [strict_loads(line) for line in path.read_bytes().splitlines()]


def outcome_of_record(run_secs: Any) -> Measurement:
    """What a stored latency says: TVM keeps a failure as 1e10 seconds."""
    if valid_latency(run_secs) is None:
        return Failed(FailureKind.RUN, "failed when it was measured")
    return Ok(tuple(float(v) for v in run_secs))


def recover(
    database: Any,
    stored: Stored,
    entries: Iterable[Entry],
    modules: Mapping[str, Any],
    target: Any,
) -> int:
    """Commit the journal's trials that the database lacks (a kill inside a batch leaves such).

    Parameters
    ----------
    database, stored
        The database and what it holds; `stored` is extended.
    entries
        The journal's trials; those without a trace, or of other workloads, stay in the journal.
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
    for entry in entries:
        if entry.trace is None or entry.workload not in modules:
            continue
        name = trace_id(entry.trace)
        outcomes = stored.setdefault(entry.workload, {})
        if name in outcomes:
            continue
        register_named_in(json.dumps(entry.trace))
        schedule = Schedule(modules[entry.workload])
        try:
            Trace.apply_json_to_schedule(entry.trace, schedule)
        except REFUSALS as error:
            log.warning("a journaled trace cannot be replayed: %s", last_line(error))
            continue
        commit(database, modules[entry.workload], schedule, entry.measurement, target)
        outcomes[name] = entry.measurement
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
