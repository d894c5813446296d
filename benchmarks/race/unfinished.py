"""What the tuners of a block left, kept until the block is written: it need not be raced twice.

What is measured after a race may fail for reasons of its own, and a race takes up to an hour.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import digest_of
from benchmarks.race.task import Said, Task

FOLDER = "unfinished"
"""In the directory of a race; a folder for each block."""

FILE = "said.json"


@dataclass(frozen=True)
class Left:
    """What a race left beside its files.

    Attributes
    ----------
    said
        What the tuners said.
    commit
        Of the source that raced.
    """

    said: Said
    commit: str | None


def folder_of(out: Path, task: Task) -> Path:
    """Where a block's tuners leave their files."""
    return out / FOLDER / slug(task.name)


def slug(name: str) -> str:
    """A name as that of a folder."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)


def write(folder: Path, task: Task, machine: Mapping[str, Any], left: Left) -> None:
    """Say that a race has ended; all or nothing."""
    record = {"task": _facts(task, machine), "said": left.said, "commit": left.commit}
    part = folder / f"{FILE}.part"
    part.write_text(json.dumps(record))
    part.replace(folder / FILE)


def read(folder: Path, task: Task, machine: Mapping[str, Any]) -> Left | None:
    """What `write` wrote of the same task on the same machine; None: there is none."""
    try:
        record = json.loads((folder / FILE).read_text())
    except (OSError, json.JSONDecodeError):
        return None
    # through JSON, as it was written: tuples are lists there
    if record["task"] != json.loads(json.dumps(_facts(task, machine))):
        return None
    return Left(record["said"], record["commit"])


def keep_databases(folder: Path, out: Path) -> None:
    """Copy what the tuners of a block measured: OUT/BLOCK/TUNER, MetaSchedule's two JSON files."""
    for path in sorted(folder.glob("*/database_*.json")):
        destination = out / folder.name / path.parent.name / path.name
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, destination)


def remove(folder: Path) -> None:
    """What a block left, once the block is written; others may have left something, too."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def _facts(task: Task, machine: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": task.name,
        "trials": task.trials,
        "config": task.config,
        "tuners": task.tuners,
        "batch": task.batch,
        "weights": digest_of(task.weights),
        "machine": dict(machine),
    }
