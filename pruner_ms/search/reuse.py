"""What a database already knows about a task, so that nothing is measured twice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pruner_ms.tvm_compat.paths import target_key

WORST_LATENCY = 1e9
"""Seconds at and above which MetaSchedule's 1e10 marks a failure."""


@dataclass(frozen=True)
class Known:
    """One record: its trace, and its mean latency in seconds (None: the trial failed)."""

    trace: Any
    latency: float | None


def mean_latency(run_secs: Any) -> float | None:
    """Mean of a record's run times in seconds; None where it failed or is not a time.

    MetaSchedule keeps a failure as 1e10; NaN, infinities, zero and less are no latencies.
    """
    values = [float(x) for x in run_secs] if run_secs is not None else []
    if not values:
        return None
    mean = sum(values) / len(values)
    return mean if math.isfinite(mean) and min(values) > 0 and mean < WORST_LATENCY else None


def known_records(database: Any, mod: Any, target: Any) -> list[Known]:
    """Every record of a module on a target, in the order of the database.

    TVM's own query ignores the target, so records of another one are left out here.
    """
    if database is None or not database.has_workload(mod):
        return []
    workload = database.commit_workload(mod)
    wanted = target_key(target)
    return [
        Known(record.trace, mean_latency(record.run_secs))
        for record in database.get_all_tuning_records()
        if record.workload.same_as(workload)
        and (record.target is None or target_key(record.target) == wanted)
    ]
