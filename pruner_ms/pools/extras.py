"""The files of a half that may be missing: meta.json, trials.jsonl, rejected.jsonl.

A damaged line of them costs itself; a note says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pruner_ms.pools import archive
from pruner_ms.session.files import strict_loads
from pruner_ms.session.records import check_record
from pruner_ms.types import valid_latency


@dataclass(frozen=True)
class Trial:
    """What a trial cost: seconds of its build (None: not built), and why it failed, if it did."""

    build_s: float | None
    error: str | None


def lines_of(content: bytes) -> list[bytes]:
    """The lines of a file that are not blank."""
    return [line for line in content.split(b"\n") if line.strip()]


def read_meta(files: Mapping[str, bytes], notes: list[str]) -> dict[str, Any]:
    """meta.json; empty where there is none."""
    if archive.META not in files:
        return {}
    try:
        # a half without one good trial has a best latency of Infinity in its tuning curve
        value = json.loads(files[archive.META])
    except (ValueError, RecursionError) as error:
        notes.append(f"{archive.META} is left out: {error}")
        return {}
    if not isinstance(value, dict):
        notes.append(f"{archive.META} is left out: it is no object")
        return {}
    return value


def read_trials(
    files: Mapping[str, bytes], records: int, notes: list[str]
) -> list[Trial | None] | None:
    """A trial per record, None for a damaged line; None without trials.jsonl."""
    if archive.TRIALS not in files:
        return None
    lines = lines_of(files[archive.TRIALS])
    if len(lines) != records:
        # which row belongs to which record is known by its number only
        notes.append(f"{archive.TRIALS} is left out: {len(lines)} rows for {records} records")
        return None
    found: list[Trial | None] = []
    for number, raw in enumerate(lines, 1):
        try:
            found.append(_trial(strict_loads(raw)))
        except ValueError as error:
            notes.append(f"row {number} of {archive.TRIALS} is left out: {error}")
            found.append(None)
    return found


def _trial(value: Any) -> Trial:
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    seconds, error = value.get("build_s"), value.get("error")
    # the same rule as for latencies: finite and positive
    built = None if seconds is None else valid_latency([seconds])
    return Trial(built, None if error is None else str(error))


def read_rejected(files: Mapping[str, bytes], notes: list[str]) -> tuple[Any, ...] | None:
    """The refused traces as JSON values; None without rejected.jsonl."""
    if archive.REJECTED not in files:
        return None
    found = []
    for number, raw in enumerate(lines_of(files[archive.REJECTED]), 1):
        try:
            value = strict_loads(raw)
            if number == 1 and isinstance(value, dict):
                continue  # the counts
            # the trace of a rejected sample has the form of a record's
            check_record([0, [value, None, None, None]], 1)
        except ValueError as error:
            notes.append(f"line {number} of {archive.REJECTED} is left out: {error}")
            continue
        found.append(value)
    return tuple(found)
