"""TVM's JSON database, parsed strictly and repaired before TVM sees it.

TVM aborts the process on a blank line and refuses a whole file for one torn, garbled or non-finite
line, and it writes such lines itself (a kill, a full disk, a NaN latency). The two files are
therefore read here first. Damaged lines move to `<file>.rejected` (one JSON object a line: number,
reason, text); the good ones stay byte for byte.

Format (tvm `meta_schedule/database/json_database.cc`, `database.cc`): a workload line is
`[hash as decimal text, module in base64]`; a record line is
`[index of the workload's line, [[instructions, decisions], seconds, target, argument infos]]`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pruner_ms.session.files import atomic_write, strict_loads
from pruner_ms.tvm_compat.marks import marks_untuned
from pruner_ms.tvm_compat.safe_traces import check_plain, check_trace
from pruner_ms.types import FAILED_SECONDS, valid_latency

log = logging.getLogger(__name__)

UNTUNED = "untuned"
"""The `trace_id` of an untuned function."""

_UNREAD = re.compile(rb"(?<!\\)(?:\\\\)*\\u")
"""In JSON, but not in TVM's parser (`database_utils.cc`)."""

LENGTH_BYTES = 8
"""Of the length before a stored module, little-endian."""


@dataclass(frozen=True)
class Rejected:
    """A line that cannot be used: its number (from 1), why, and its bytes."""

    number: int
    reason: str
    raw: bytes


@dataclass
class Repair:
    """What was done to a database: rejected lines by file name, and blank lines dropped."""

    rejected: dict[str, list[Rejected]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Rejected lines of both files."""
        return sum(len(lines) for lines in self.rejected.values())

    def line(self) -> str:
        """One line for a log."""
        parts = [numbered(name, lines) for name, lines in self.rejected.items()]
        return f"moved damaged lines to *.rejected: {'; '.join(parts)}"


def numbered(name: str, lines: Sequence[Rejected]) -> str:
    """How many lines of a file are damaged, which, and why the first is."""
    numbers = ", ".join(str(line.number) for line in lines[:5])
    more = ", ..." if len(lines) > 5 else ""
    return f"{len(lines)} of {name} (line {numbers}{more}: {lines[0].reason})"


def line_of(value: Any) -> bytes:
    """A value as a line that TVM reads: text beyond ASCII as it is, not as escapes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def trace_id(trace: Any) -> str:
    """An identity for a trace in JSON form, the same for a live trace and a stored one.

    Floats (the odds of `SampleCategorical`) are cut to six digits, and booleans are numbers: TVM
    prints the former in full, a whole one without its fraction, and stores the latter as 0 and 1.
    A layout (`TransformLayout`) is JSON within a text, which a stored trace has indented and a live
    one has not. That of an untuned function is `UNTUNED`, whatever follows its mark.
    """
    if marks_untuned(trace):
        return UNTUNED
    text = json.dumps(_rounded(trace), separators=(",", ":"))
    return hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).hexdigest()


def _rounded(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    if isinstance(value, str) and value.startswith("{"):
        with suppress(ValueError):
            return json.dumps(strict_loads(value.encode()), separators=(",", ":"))
    return value


def check_workload(value: Any) -> None:
    """Raise ValueError unless a parsed workload line has the form TVM reads."""
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value)):
        raise ValueError("not a pair of a hash and a module")
    if not value[0].isdecimal():
        raise ValueError(f"the hash {value[0][:24]!r} is not a number")
    check_graph(stored_module(value))


def stored_module(value: Any) -> Any:
    """The parsed module in a parsed workload line.

    Raises
    ------
    ValueError
        It is not base64, or not JSON.
    """
    try:
        decoded = base64.b64decode(value[1], validate=True)
    except binascii.Error as error:
        raise ValueError(f"the module is not base64 ({error})") from error
    try:
        return json.loads(_text_of(decoded))  # an infinity in a program is no fault (tvm-ffi)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _text_of(decoded: bytes) -> bytes:
    """The JSON in a stored module: TVM writes its length in eight bytes before it.

    A byte of the length may be a brace itself, so that the first brace is not the beginning.
    """
    length = int.from_bytes(decoded[:LENGTH_BYTES], "little")
    whole = length == len(decoded) - LENGTH_BYTES
    start = LENGTH_BYTES if whole else decoded.find(b"{")
    if start < 0:
        raise ValueError("the module is empty")
    return decoded[start:]


def check_graph(graph: Any) -> None:
    """Raise ValueError unless a serialised object graph refers to its own nodes only."""
    if not isinstance(graph, dict) or not isinstance(graph.get("nodes"), list):
        raise ValueError("the module has no nodes")
    root = graph.get("root_index", graph.get("root"))
    if not isinstance(root, int) or not 0 <= root < len(graph["nodes"]):
        raise ValueError("the module's root is not one of its nodes")


def check_record(value: Any, workloads: int) -> None:
    """Raise ValueError unless a parsed record line has the form TVM reads."""
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("not a pair of a workload and a record")
    index, record = value
    if type(index) is not int or not 0 <= index < workloads:
        raise ValueError(f"workload {index!r} does not exist")
    if not isinstance(record, list) or len(record) != 4:
        raise ValueError("the record has not four parts")
    trace, run_secs, target, arguments = record
    check_trace(trace)
    if run_secs is not None:
        _check_seconds(run_secs)
    if target is not None:
        if not isinstance(target, dict):
            raise ValueError("the target is not an object")
        check_plain(target)
    if arguments is not None:
        if not isinstance(arguments, list):
            raise ValueError("the argument infos are not a list")
        check_plain(arguments)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_seconds(run_secs: Any) -> None:
    if not isinstance(run_secs, list) or not run_secs or not all(map(_is_number, run_secs)):
        raise ValueError("the latency is not a list of seconds")
    failed = all(v == FAILED_SECONDS for v in run_secs)
    if not failed and valid_latency(run_secs) is None:
        raise ValueError(f"the latency {run_secs[:3]} is not finite and positive")


@dataclass(frozen=True)
class Line:
    """A line that is not blank; `reason` says why it cannot be used, None: it can."""

    number: int
    raw: bytes
    value: Any
    reason: str | None


def read_lines(path: Path, check: Callable[[Any], None]) -> list[Line]:
    """The lines of a table that are not blank, each parsed and judged; a missing file has none."""
    data = path.read_bytes() if path.exists() else b""
    found = []
    for number, raw in enumerate(data.split(b"\n"), 1):
        if not raw.strip():
            continue
        value, reason = None, None
        try:
            value = strict_loads(raw)
            if _UNREAD.search(raw):
                raise ValueError("an escape (\\u) that TVM does not read")
            check(value)
        except ValueError as error:  # includes JSONDecodeError and UnicodeDecodeError
            reason = str(error)
        found.append(Line(number, raw.strip(), value, reason))
    return found


def repair(
    workloads: Path,
    records: Path,
    identity: Callable[[Any], str] = "|".join,
    check_trial: Callable[[Any, Any], None] | None = None,
) -> Repair:
    """Make a pair of database files loadable.

    Parameters
    ----------
    workloads, records
        TVM's two tables; a missing file is an empty one.
    identity
        Names a parsed workload line, equal for equal workloads; raises ValueError for one that
        cannot be used. TVM numbers new workloads wrongly after a double one, so those are merged.
    check_trial
        A further check, called with a parsed workload line and the parsed record of a line;
        raises ValueError for a record that cannot be used.

    Returns
    -------
    Repair
        What was rejected; empty when no line was.
    """

    def check_named(value: Any) -> None:
        check_workload(value)
        identity(value)

    lines = read_lines(workloads, check_named)
    firsts = _firsts(lines, identity)

    def check(value: Any) -> None:
        check_record(value, len(lines))
        if value[0] not in firsts:
            raise ValueError(f"its workload (index {value[0]}) is damaged")
        if check_trial is not None:
            check_trial(lines[value[0]].value, value[1])

    trials = read_lines(records, check)
    outcome = Repair()
    _set_aside(records, trials, outcome)
    _set_aside(workloads, lines, outcome)
    _rewrite(workloads, records, lines, [t for t in trials if not t.reason], firsts)
    if outcome.count:
        log.warning("%s", outcome.line())
    return outcome


def _firsts(lines: Sequence[Line], identity: Callable[[Any], str]) -> dict[int, int]:
    """Index of each line that can be used -> index of the first line that equals it."""
    place: dict[str, int] = {}
    usable = [(index, line) for index, line in enumerate(lines) if line.reason is None]
    return {index: place.setdefault(identity(line.value), index) for index, line in usable}


def _rewrite(
    workloads: Path,
    records: Path,
    lines: Sequence[Line],
    trials: Sequence[Line],
    firsts: Mapping[int, int],
) -> None:
    """Write what is kept; a kill between any two writes leaves each record with its workload.

    No two files are replaced at once. So first no record refers to a line that goes, then the last
    workloads are copied into the places that are free, then the records follow them, and only then
    the workloads lose what was copied.
    """
    kept = set(firsts.values())
    free = [index for index in range(len(kept)) if index not in kept]
    moved = dict(zip(sorted(i for i in kept if i >= len(kept)), free, strict=True))
    table = [line.raw for line in lines]
    _write(records, [_reindexed(trial, firsts) for trial in trials])
    if moved:
        for old, new in moved.items():
            table[new] = table[old]
        _write(workloads, table)
        places = {index: moved.get(first, first) for index, first in firsts.items()}
        _write(records, [_reindexed(trial, places) for trial in trials])
    _write(workloads, table[: len(kept)])


def _reindexed(line: Line, places: Mapping[int, int]) -> bytes:
    old, record = line.value
    if places[old] == old:
        return line.raw
    return line_of([places[old], record])


def _write(path: Path, lines: Sequence[bytes]) -> None:
    content = b"".join(line + b"\n" for line in lines)
    if path.exists() and path.read_bytes() != content:
        atomic_write(path, content)


def _set_aside(path: Path, lines: Sequence[Line], outcome: Repair) -> None:
    bad = [Rejected(line.number, line.reason, line.raw) for line in lines if line.reason]
    if bad:
        outcome.rejected[path.name] = bad
        aside = path.with_name(path.name + ".rejected")
        old = aside.read_bytes() if aside.exists() else b""
        atomic_write(aside, old + b"".join(_rejected_line(r) for r in bad))


def _rejected_line(rejected: Rejected) -> bytes:
    text = rejected.raw.decode("utf-8", "backslashreplace")
    entry = {"line": rejected.number, "reason": rejected.reason, "text": text}
    return json.dumps(entry).encode("utf-8") + b"\n"
