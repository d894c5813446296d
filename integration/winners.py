"""Of each task's records, the one that goes into the library; a task without one stays untuned.

That a candidate ran and was fast says little of what it computes. So its schedule is tried, and
where it fails, the next best one is, a few of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pruner_ms.errors import last_line
from pruner_ms.integration.records import Ranked, replayed
from pruner_ms.integration.relax import TaskInfo
from pruner_ms.integration.verify import Check

log = logging.getLogger(__name__)

TRIES = 3
"""Schedules of a task that are tried: where as many are wrong, so are most."""

Judge = Callable[[TaskInfo, Any, Any], Check]
"""Tries a task's schedule: task, record, and the module that the record makes of the task."""


@dataclass
class Winners:
    """What was chosen.

    Attributes
    ----------
    records
        By hash of the task.
    checks
        Of what was chosen and judged; of every record that is right, where all were to be tried.
    refused
        Name of a task -> why schedules of it that are faster are not used.
    """

    records: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)


def winners(
    tasks: Sequence[TaskInfo], ranked: Ranked, judge: Judge | None = None, every: bool = False
) -> Winners:
    """The fastest record of each task that is fit for a library.

    Parameters
    ----------
    tasks
        Of the program.
    ranked
        Their records.
    judge
        Says whether a schedule is fit; None: one that can be replayed is.
    every
        Whether all records are judged, not `TRIES` of each task up to the first that is fit.
    """
    found = Winners()
    for task in tasks:
        _choose(task, ranked.records.get(task.hash, ()), judge, every, found)
    return found


def _choose(
    task: TaskInfo, records: Sequence[Any], judge: Judge | None, every: bool, found: Winners
) -> None:
    tried = 0
    for record in records:
        if not every and (task.hash in found.records or tried == TRIES):
            return
        try:
            scheduled = replayed(record)
        except Exception as error:  # TVM raises half a dozen classes for a trace it does not take
            log.warning("a record of %s cannot be replayed", task.name, exc_info=error)
            said = f"it cannot be replayed ({last_line(error)})"
            found.refused.setdefault(task.name, []).append(said)
            continue
        tried += 1
        check = Check(task.name, True) if judge is None else judge(task, record, scheduled)
        if check.ok:
            found.records.setdefault(task.hash, record)
            found.checks += [] if judge is None else [check]
        else:
            log.warning("a schedule of %s is not used: %s", task.name, check.message)
            found.refused.setdefault(task.name, []).append(check.message)
