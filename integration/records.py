"""Which records of a database may go into a library: the target's own, valid, and replayable.

TVM's own query knows no target and takes NaN for the best latency, so the records of each workload
are ranked here, and the one chosen is put into a database in memory, all that the compiler sees.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pruner_ms.tvm_compat.paths import Schedule, module_key, ms, target_key
from pruner_ms.types import valid_latency

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Best:
    """One record of each workload: what the compiler is given.

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
    other_target: int = 0
    invalid: int = 0
    unusable: int = 0

    @classmethod
    def of(cls, records: Mapping[str, Any], **counts: int) -> Best:
        """Those of the records given, by hash of their workload."""
        memory = ms.database.MemoryDatabase()
        for one in records.values():
            workload = memory.commit_workload(one.workload.mod)
            memory.commit_tuning_record(
                ms.database.TuningRecord(
                    # TVM passes over a record without a latency
                    one.trace,
                    workload,
                    one.run_secs or [1.0],
                    one.target,
                    one.args_info,
                )
            )
        return cls(memory, dict(records), **counts)

    @property
    def count(self) -> int:
        """Workloads with a record."""
        return len(self.records)


@dataclass(frozen=True)
class Ranked:
    """The valid records of each workload for a target, the fastest first.

    Attributes
    ----------
    records
        By structural hash of the workload, in hexadecimal.
    other_target, invalid
        See `Best`.
    """

    records: dict[str, list[Any]]
    other_target: int = 0
    invalid: int = 0

    def best(self) -> Best:
        """The fastest record of each workload that can be replayed."""
        chosen: dict[str, Any] = {}
        unusable = 0
        for key, ranked in self.records.items():
            record, failures = _first_usable(ranked)
            unusable += failures
            if record is not None:
                chosen[key] = record
        return Best.of(
            chosen, other_target=self.other_target, invalid=self.invalid, unusable=unusable
        )


def replayed(record: Any) -> Any:
    """The module that a record's trace makes of its workload.

    Raises
    ------
    Exception
        Of any class: the trace cannot be replayed by this TVM.
    """
    schedule = Schedule(record.workload.mod)
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule.mod


def uses_tf32(record: Any) -> bool:
    """Whether a record's schedule multiplies as tf32: it names the instruction."""
    return "tf32tf32" in str(record.trace)


def ranked_records(database: Any, target: Any, allow_tf32: bool = False) -> Ranked:
    """The records of each workload of a database that may be used for a target.

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
    ranked = {
        key: [record for _, record in sorted(pairs, key=lambda pair: pair[0])]
        for key, pairs in by_workload.items()
    }
    return Ranked(ranked, other, invalid)


def best_records(database: Any, target: Any, allow_tf32: bool = False) -> Best:
    """The fastest of `ranked_records` of each workload that can be replayed."""
    return ranked_records(database, target, allow_tf32).best()


def _first_usable(records: Iterable[Any]) -> tuple[Any | None, int]:
    failures = 0
    for record in records:
        try:
            replayed(record)
        except Exception:  # TVM raises half a dozen classes for a trace that it does not take
            failures += 1
            log.warning("a record's trace cannot be replayed: passed over", exc_info=True)
            continue
        return record, failures
    return None, failures
