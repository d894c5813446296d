"""Redirection of loggers to files in the work-dir."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_FORMAT = "%(asctime)s [%(levelname)s] %(name)s: %(message)s"
_NAME_CHARACTERS = 80


def task_file(index: int, name: str) -> str:
    """A file name for a task's log."""
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:_NAME_CHARACTERS]
    return f"task_{index:03d}_{safe}.log"


@contextmanager
def to_file(names: Sequence[str], path: Path, level: int = logging.INFO) -> Iterator[None]:
    """Redirect these loggers to a file; restored at the end."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter(_FORMAT))
    loggers = [logging.getLogger(name) for name in names]
    before = [(one.handlers[:], one.propagate, one.level) for one in loggers]
    for one in loggers:
        one.handlers, one.propagate = [handler], False
        one.setLevel(level)
    try:
        yield
    finally:
        for one, (handlers, propagate, old) in zip(loggers, before, strict=True):
            one.handlers, one.propagate = handlers, propagate
            one.setLevel(old)
        handler.close()
