"""What a database already knows about a task, so that nothing is measured twice."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from pruner_ms.tvm_compat.paths import target_key
from pruner_ms.types import telling, valid_latency

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
