"""MetaSchedule's own loggers: what a search says appears where MetaSchedule's lines do."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from pruner_ms.tvm_compat.paths import MS_NAME
from pruner_ms.tvm_compat.tensor_builds import remedy_of


def task_logger(task: str) -> logging.Logger:
    """The logger of a task, which writes `logs/...task_N_NAME.log` in the work-dir.

    `TuneContext.logger` cannot be read from Python, so it is found by its name
    (`meta_schedule/logging.py`); without one, MetaSchedule's own. An earlier run of this process
    may have left one of that name, with another number: the newest is taken, of those that write
    where MetaSchedule does now.
    """
    clipped = re.escape(task[:100])
    pattern = re.compile(rf"{re.escape(MS_NAME)}\.logging\.task_\d+_{clipped}")
    names = [name for name in logging.root.manager.loggerDict if pattern.fullmatch(name)]
    found, own = [logging.getLogger(name) for name in names], logging.getLogger(MS_NAME)
    where = _folders(own)
    if where:
        found = [logger for logger in found if _folders(logger) & where]
    return (found or [own])[-1]


def _folders(logger: logging.Logger) -> set[Path]:
    """Where a logger's files lie."""
    files = (h for h in logger.handlers if isinstance(h, logging.FileHandler))
    return {Path(handler.baseFilename).parent for handler in files}


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
