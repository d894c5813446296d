"""Which records of a database may go into a library: the target's own, valid, and replayable.

TVM's own query knows no target and takes NaN for the best latency, so the best record of each
workload is chosen here and put into a database in memory, which is all that the compiler sees.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pruner_ms.tvm_compat.paths import Schedule, module_key, ms, target_key
from pruner_ms.tvm_compat.relax_paths import CALL_ERRORS
from pruner_ms.types import valid_latency

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Best:
    """The best record of each workload.

    Attributes
    ----------
    database
        MetaSchedule database in memory with those records only.
    records
        The records by structural hash of their workload, in hexadecimal.
    other_target, invalid, unusable
        How many records were left out: for another target; without a valid latency; with a trace
        that cannot be replayed, though better than the one taken.
    """

    database: Any
    records: dict[str, Any]
    other_target: int
    invalid: int
    unusable: int

    @property
    def count(self) -> int:
        """Workloads with a record."""
        return len(self.records)


def replayed(record: Any) -> Any:
    """The module that a record's trace makes of its workload.

    Raises
    ------
    Exception
        One of `relax_paths.CALL_ERRORS`: the trace cannot be replayed by this TVM.
    """
    schedule = Schedule(record.workload.mod)
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule.mod


def uses_tf32(record: Any) -> bool:
    """Whether a record's schedule multiplies as tf32: it names the instruction."""
    return "tf32tf32" in str(record.trace)


def best_records(database: Any, target: Any, allow_tf32: bool = False) -> Best:
    """The best usable record of each workload of a database for a target.

    Parameters
    ----------
    database
        A MetaSchedule database of any kind.
    target
        A TVM `Target`; records for another one are never used.
    allow_tf32
        Whether factors of float32 may lose 13 bits; else records that multiply so are left out.
    """
    wanted = target_key(target)
    exact = not allow_tf32 and str(target.kind.name) == "cuda"
    by_workload: dict[str, list[tuple[float, Any]]] = defaultdict(list)
    same: dict[str, bool] = {}
    other = invalid = inexact = 0
    for record in database.get_all_tuning_records():
        text = target_key(record.target) if record.target is not None else ""
        if not same.setdefault(text, text == wanted):
            other += 1
            continue
        latency = valid_latency(record.run_secs)
        if latency is None:
            invalid += 1
            continue
        if exact and uses_tf32(record):
            inexact += 1
            continue
        by_workload[module_key(record.workload.mod)].append((latency, record))
    if inexact:
        log.info("%d records multiply as tf32, which is not allowed now: passed over", inexact)
    return _collected(by_workload, other, invalid)


def _collected(by_workload: dict[str, list[tuple[float, Any]]], other: int, invalid: int) -> Best:
    memory = ms.database.MemoryDatabase()
    records: dict[str, Any] = {}
    unusable = 0
    for key, ranked in by_workload.items():
        chosen, failures = _first_usable(r for _, r in sorted(ranked, key=lambda pair: pair[0]))
        unusable += failures
        if chosen is not None:
            workload = memory.commit_workload(chosen.workload.mod)
            memory.commit_tuning_record(
                ms.database.TuningRecord(
                    chosen.trace, workload, chosen.run_secs, chosen.target, chosen.args_info
                )
            )
            records[key] = chosen
    return Best(memory, records, other, invalid, unusable)


def _first_usable(records: Iterable[Any]) -> tuple[Any | None, int]:
    failures = 0
    for record in records:
        try:
            replayed(record)
        except CALL_ERRORS as error:
            failures += 1
            log.warning("a record's trace cannot be replayed and is passed over: %s", error)
            continue
        return record, failures
    return None, failures
