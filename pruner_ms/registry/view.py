"""A database that answers queries with records of the query's target only. Needs the whole TVM."""

from __future__ import annotations

from typing import Any

from pruner_ms.registry.targets import Verdicts
from pruner_ms.tvm_compat.paths import Schedule, derived_object, ms


@derived_object
class TargetView(ms.database.PyDatabase):  # type: ignore[misc]
    """A view of another database: it forwards everything, and chooses a query's answer by target.

    Parameters
    ----------
    source
        The database.
    verdicts
        Whether a record's target contradicts a query's.
    """

    def __init__(self, source: Any, verdicts: Verdicts) -> None:
        super().__init__()
        self.source, self.verdicts = source, verdicts

    def has_workload(self, mod: Any) -> bool:
        """As the source."""
        return bool(self.source.has_workload(mod))

    def commit_workload(self, mod: Any) -> Any:
        """Into the source."""
        return self.source.commit_workload(mod)

    def commit_tuning_record(self, record: Any) -> None:
        """Into the source."""
        self.source.commit_tuning_record(record)

    def get_top_k(self, workload: Any, top_k: int) -> Any:
        """As the source, whatever the target."""
        return self.source.get_top_k(workload, top_k)

    def get_all_tuning_records(self) -> Any:
        """As the source, whatever the target."""
        return self.source.get_all_tuning_records()

    def query_tuning_record(self, mod: Any, target: Any, workload_name: Any = None) -> Any:
        """The best record of a program for a target; None where there is none."""
        record = self.source.query_tuning_record(mod, target, workload_name or "main")
        if record is None or not self.verdicts.foreign(record, target):
            return record
        several = self.source.get_top_k(record.workload, len(self.source))
        return next((one for one in several if not self.verdicts.foreign(one, target)), None)

    def query_schedule(self, mod: Any, target: Any, workload_name: Any = None) -> Any:
        """The schedule of that record (tvm `database.cc`, QuerySchedule)."""
        record = self.query_tuning_record(mod, target, workload_name)
        if record is None:
            return None
        schedule = Schedule(record.workload.mod)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        return schedule

    def query_ir_module(self, mod: Any, target: Any, workload_name: Any = None) -> Any:
        """The scheduled program of that record."""
        schedule = self.query_schedule(mod, target, workload_name)
        return None if schedule is None else schedule.mod

    def __len__(self) -> int:
        return len(self.source)

    def __str__(self) -> str:
        return f"TargetView({self.source})"
