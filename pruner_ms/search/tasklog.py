"""MetaSchedule's own loggers: what a search says appears where MetaSchedule's lines do."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from pruner_ms.tvm_compat.paths import MS_NAME
from pruner_ms.tvm_compat.tensor_builds import remedy_of


def task_logger(task: str) -> logging.Logger:
    """The logger of a task, which writes `logs/...task_N_NAME.log` in the work-dir.

    `TuneContext.logger` cannot be read from Python, so it is found by its name
    (`meta_schedule/logging.py`); without one, MetaSchedule's own.
    """
    clipped = re.escape(task[:100])
    pattern = re.compile(rf"{re.escape(MS_NAME)}\.logging\.task_\d+_{clipped}")
    for name in logging.root.manager.loggerDict:
        if pattern.fullmatch(name):
            return logging.getLogger(name)
    return logging.getLogger(MS_NAME)


def advise(log: logging.Logger, messages: Iterable[object], told: set[str]) -> None:
    """Say what cures failures, each remedy once.

    Parameters
    ----------
    messages
        Error messages of results; None where there is none.
    told
        What was said already; grows.
    """
    for message in messages:
        remedy = remedy_of(str(message or ""))
        if remedy and remedy not in told:
            told.add(remedy)
            log.warning("%s", remedy)
