"""What a database already knows about a task, so that nothing is measured twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pruner_ms.tvm_compat.paths import target_key
from pruner_ms.types import valid_latency


@dataclass(frozen=True)
class Known:
    """One record: its trace, and its mean latency in seconds (None: the trial failed)."""

    trace: Any
    latency: float | None


def known_records(database: Any, mod: Any, target: Any) -> list[Known]:
    """Every record of a module on a target, in the order of the database.

    TVM's own query ignores the target, so records of another one are left out here.
    """
    if database is None or not database.has_workload(mod):
        return []
    workload = database.commit_workload(mod)
    wanted = target_key(target)
    return [
        Known(record.trace, valid_latency(record.run_secs))
        for record in database.get_all_tuning_records()
        if record.workload.same_as(workload)
        and (record.target is None or target_key(record.target) == wanted)
    ]
