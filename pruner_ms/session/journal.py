"""The journal: a write-ahead log with one line per trial.

A line is a JSON object: `key` (structural hash of the scheduled module), `workload` (hash of the
task's module), `context` (TVM's version and the target, for which the numbers are valid),
`run_secs`, or `failure` and `message`, and, where known, `trace` (TVM's JSON form), from which a
lost database record is rebuilt. A kill loses at most the line being written; a partial last line is
truncated before the next one is appended.
"""

from __future__ import annotations

import json
import logging
import os
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pruner_ms.errors import WorkDirError
from pruner_ms.files import disk_fault, strict_loads, whole_lines
from pruner_ms.records.tables import Line, damaged, numbered, read_lines
from pruner_ms.tvm_compat.safe_traces import check_trace
from pruner_ms.types import Failed, FailureKind, Measurement, Ok, telling, valid_latency

log = logging.getLogger(__name__)

_MESSAGE_CHARACTERS = 2000


@dataclass(frozen=True)
class Entry:
    """One trial: hashes of its module and task, outcome, and trace where known."""

    key: str
    workload: str
    measurement: Measurement
    trace: Any = None

    def as_json(self, context: str) -> str:
        """The line for the file, without the newline."""
        line: dict[str, Any] = {"key": self.key, "workload": self.workload, "context": context}
        if isinstance(self.measurement, Ok):
            line["run_secs"] = list(self.measurement.run_secs)
        else:
            line["failure"] = self.measurement.kind.value
            line["message"] = self.measurement.message[:_MESSAGE_CHARACTERS]
        if self.trace is not None:
            line["trace"] = self.trace
        return json.dumps(line, separators=(",", ":"), allow_nan=False)


def parse_entry(line: bytes) -> tuple[str, Entry]:
    """The context and the trial of one line.

    Raises
    ------
    ValueError
        The line is damaged.
    """
    value = strict_loads(line)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    texts = [value.get(name) for name in ("key", "workload", "context")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("key, workload or context is missing")
    measurement: Measurement
    if "run_secs" in value:
        run_secs = value["run_secs"]
        if not isinstance(run_secs, list) or valid_latency(run_secs) is None:
            raise ValueError("the latency is not finite and positive")
        measurement = Ok(tuple(float(v) for v in run_secs))
    else:
        measurement = Failed(FailureKind(value.get("failure")), str(value.get("message", "")))
    trace = value.get("trace")
    if trace is not None:
        check_trace(trace)
    return str(texts[2]), Entry(str(texts[0]), str(texts[1]), measurement, trace)


def uninformative_workloads(outcomes: Mapping[str, Iterable[Measurement]]) -> set[str]:
    """Workloads whose trials are not informative about candidates (`types.telling`).

    All workloads, if not even all trials together are informative: a task may have had few.
    """
    worked = {
        name: [isinstance(one, Ok) for one in measurements]
        for name, measurements in outcomes.items()
    }
    if not telling(chain.from_iterable(worked.values())):
        return set(worked)
    return {name for name, measurements in worked.items() if not telling(measurements)}


class Journal:
    """The trials of a work-dir that are valid in one context, and their file.

    Parameters
    ----------
    path
        The file; made on the first append.
    context
        Trials of other contexts stay in the file and are not used.

    Attributes
    ----------
    entries
        The latest trial by key.
    damaged
        Unusable lines, which stay in the file.

    Raises
    ------
    WorkDirError
        The file cannot be read or written.
    """

    def __init__(self, path: Path, context: str) -> None:
        self.path = path
        self.context = context
        try:
            cut = whole_lines(path)
            lines = read_lines(path.read_bytes() if path.exists() else b"", parse_entry)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise disk_fault(path, error, "open") from error
        self.damaged: list[Line] = damaged(lines)
        usable = [line.value for line in lines if line.reason is None]
        self.entries = {entry.key: entry for where, entry in usable if where == context}
        if cut or self.damaged:
            log.warning("%s: %d bytes cut; %s", path, cut, self.line())
        by_workload: dict[str, list[Measurement]] = defaultdict(list)
        for entry in self.entries.values():
            by_workload[entry.workload].append(entry.measurement)
        self.forget(uninformative_workloads(by_workload))

    def line(self) -> str:
        """The damaged lines as one line of text; empty where there are none."""
        if not self.damaged:
            return ""
        return f"passed over damaged lines: {numbered(self.path.name, self.damaged)}"

    def lookup(self, key: str) -> Measurement | None:
        """The known outcome of a module, None when it was never tried."""
        entry = self.entries.get(key)
        return None if entry is None else entry.measurement

    def forget(self, workloads: Container[str]) -> None:
        """Drop the trials of workloads; their lines stay in the file."""
        left = {key: one for key, one in self.entries.items() if one.workload not in workloads}
        if len(left) < len(self.entries):
            count = len(self.entries) - len(left)
            log.warning("%s: %d trials, which all failed, are not reused", self.path, count)
        self.entries = left

    def append(self, entry: Entry) -> None:
        """Store a trial and write its line; it is on disk when this returns.

        Raises
        ------
        WorkDirError
            The line cannot be written. The trial is stored in memory, the message names it, and
            the file has no partial line.
        """
        self.entries[entry.key] = entry
        size = self.path.stat().st_size
        try:
            self._write(entry.as_json(self.context).encode("utf-8") + b"\n")
        except OSError as error:
            os.truncate(self.path, size)
            fault = disk_fault(self.path, error)
            raise WorkDirError(f"{fault}; not written: {_short(entry)}") from error

    def _write(self, data: bytes) -> None:
        """Unbuffered, so that nothing of a failed line is flushed later."""
        while data:
            data = data[self._file.write(data) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _short(entry: Entry) -> str:
    if isinstance(entry.measurement, Ok):
        return f"module {entry.key} ran in {entry.measurement.latency:.3e} s"
    return f"module {entry.key} failed ({entry.measurement.kind.value})"
