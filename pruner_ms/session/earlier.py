"""What earlier runs of a work-dir tried for the tasks of a session, as far as it counts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pruner_ms.session.database import Stored, recover, stored_trials
from pruner_ms.session.journal import Journal, untelling
from pruner_ms.session.parts import Task
from pruner_ms.session.records import UNTUNED
from pruner_ms.session.workdir import WorkDir

log = logging.getLogger(__name__)


def earlier_trials(
    directory: WorkDir, database: Any, journal: Journal, tasks: Sequence[Task], target: Any
) -> tuple[Stored, str]:
    """The trials of an opened database, those of the journal among them.

    Those of a task that failed one and all are left out, and the journal forgets them: they speak
    of the machine, and what is left out is made again.

    Parameters
    ----------
    directory, database, journal
        Of the session; what the database lacks is committed to it.
    tasks
        What is tuned; trials of other workloads are not judged.
    target
        Target of the trials.

    Returns
    -------
    tuple
        The trials by workload, and what the user should know of those left out; empty: none are.

    Raises
    ------
    DatabaseError
        The database holds records of another target.
    """
    stored = stored_trials(directory, target)
    modules = {task.workload: task.mod for task in tasks}
    recovered = recover(database, stored, journal.entries.values(), modules, target)
    if recovered:
        log.info("%d trials were in the journal only", recovered)
    failed = untelling({name: stored.get(name, {}).values() for name in modules})
    count = sum(len(stored.pop(name, {}).keys() - {UNTUNED}) for name in failed)
    journal.forget(failed)
    return stored, _told(count, [t.state.name for t in tasks if t.workload in failed], tasks)


def _told(count: int, names: Sequence[str], tasks: Sequence[Task]) -> str:
    if not count:
        return ""
    whose = "" if len(names) == len(tasks) else f" of {', '.join(names)}"
    return f"all {count} earlier trials{whose} failed; they are made again"
