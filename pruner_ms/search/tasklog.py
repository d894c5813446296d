"""MetaSchedule's loggers: a search logs to the files of MetaSchedule."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from pruner_ms.tvm_compat.paths import MS_NAME
from pruner_ms.tvm_compat.tensor_builds import remedy_of


def task_logger(task: str) -> logging.Logger:
    """The logger of a task, which writes `logs/...task_N_NAME.log` in the work-dir.

    `TuneContext.logger` cannot be read from Python, so it is looked up by its name
    (`meta_schedule/logging.py`); without one, MetaSchedule's logger. Earlier runs of this process
    may have left loggers of that name with other numbers: the newest that writes to MetaSchedule's
    current folder is used.
    """
    clipped = re.escape(task[:100])
    pattern = re.compile(rf"{re.escape(MS_NAME)}\.logging\.task_\d+_{clipped}")
    names = [name for name in logging.root.manager.loggerDict if pattern.fullmatch(name)]
    loggers, fallback = [logging.getLogger(name) for name in names], logging.getLogger(MS_NAME)
    where = _folders(fallback)
    if where:
        loggers = [logger for logger in loggers if _folders(logger) & where]
    return (loggers or [fallback])[-1]


def _folders(logger: logging.Logger) -> set[Path]:
    """Folders of a logger's files."""
    files = (h for h in logger.handlers if isinstance(h, logging.FileHandler))
    return {Path(handler.baseFilename).parent for handler in files}


def advise(log: logging.Logger, messages: Iterable[object], told: set[str]) -> None:
    """Log remedies of failures, each once.

    Parameters
    ----------
    messages
        Error messages of results; None where there is none.
    told
        Remedies logged already; updated.
    """
    for message in messages:
        remedy = remedy_of(str(message or ""))
        if remedy and remedy not in told:
            told.add(remedy)
            log.warning("%s", remedy)
