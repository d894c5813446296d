"""The lines of TVM's two tables, parsed strictly, and repaired before TVM sees them.

TVM aborts the process on a blank line and refuses a whole file for one torn, garbled or non-finite
line, and it writes such lines itself (a kill, a full disk, a NaN latency). The two files are
therefore read here first. Damaged lines move to `<file>.rejected` (one JSON object a line: number,
reason, text); the good ones stay byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pruner_ms.errors import DatabaseError
from pruner_ms.files import atomic_write, disk_fault, strict_loads
from pruner_ms.records import RECORDS, TABLES, WORKLOADS
from pruner_ms.tvm_compat.safe_traces import check_plain, check_trace
from pruner_ms.types import FAILED_SECONDS, valid_latency

log = logging.getLogger(__name__)

_UNREAD = re.compile(rb"(?<!\\)(?:\\\\)*\\u")
"""An escape of JSON that TVM's parser does not read (`database_utils.cc`)."""

LENGTH_BYTES = 8
"""Bytes of the length that precedes a stored module, little-endian."""

T = TypeVar("T")
Identity = Callable[[Any], str]
"""Names a parsed workload line, equal for equal workloads; ValueError for one of no use."""


@dataclass(frozen=True)
class Line:
    """A line that is not blank.

    Attributes
    ----------
    number
        From 1.
    raw
        Its bytes, blanks around them cut off.
    value
        What was parsed; None where it cannot be used.
    reason
        Why it cannot be used; None: it can.
    """

    number: int
    raw: bytes
    value: Any
    reason: str | None


def read_lines(content: bytes, parse: Callable[[bytes], Any]) -> list[Line]:
    """The lines of a file that are not blank, each parsed and judged.

    Parameters
    ----------
    parse
        Gives a line's value; ValueError for a line that cannot be used.
    """
    lines = []
    for number, raw in enumerate(content.split(b"\n"), 1):
        if not raw.strip():
            continue
        value, reason = None, None
        try:
            value = parse(raw)
        except ValueError as error:  # includes JSONDecodeError and UnicodeDecodeError
            reason = str(error)
        lines.append(Line(number, raw.strip(), value, reason))
    return lines


def damaged(lines: Iterable[Line]) -> list[Line]:
    """Those that cannot be used."""
    return [line for line in lines if line.reason is not None]


def numbered(name: str, lines: Sequence[Line]) -> str:
    """How many lines of a file are damaged, which, and why the first is."""
    numbers = ", ".join(str(line.number) for line in lines[:5])
    more = ", ..." if len(lines) > 5 else ""
    return f"{len(lines)} of {name} (line {numbers}{more}: {lines[0].reason})"


def line_of(value: Any) -> bytes:
    """A value as a line that TVM reads: text beyond ASCII as it is, not as escapes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def fastest_first(
    records: Iterable[T], run_secs: Callable[[T], Iterable[Any] | None]
) -> list[tuple[float, T]]:
    """(mean seconds, record) of the records with a valid latency; equals keep their order.

    Parameters
    ----------
    run_secs
        Gives a record's seconds per run.
    """
    timed = [(valid_latency(run_secs(record)), record) for record in records]
    return sorted(((s, one) for s, one in timed if s is not None), key=lambda pair: pair[0])


# What a line must look like.


def check_workload(value: Any) -> None:
    """Raise ValueError unless a parsed workload line has the form TVM reads."""
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value)):
        raise ValueError("not a pair of a hash and a module")
    if not value[0].isdecimal():
        raise ValueError(f"the hash {value[0][:24]!r} is not a number")
    _check_graph(stored_module(value))


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
    has_length = length == len(decoded) - LENGTH_BYTES
    start = LENGTH_BYTES if has_length else decoded.find(b"{")
    if start < 0:
        raise ValueError("the module is empty")
    return decoded[start:]


def _check_graph(graph: Any) -> None:
    """Raise ValueError unless a serialised object graph refers to its own nodes only."""
    if not isinstance(graph, dict) or not isinstance(graph.get("nodes"), list):
        raise ValueError("the module has no nodes")
    root = graph.get("root_index", graph.get("root"))
    if not isinstance(root, int) or not 0 <= root < len(graph["nodes"]):
        raise ValueError("the module's root is not one of its nodes")


def check_record(value: Any, workloads: int) -> None:
    """Raise ValueError unless a parsed record line has the form TVM reads.

    Parameters
    ----------
    workloads
        Lines of the other table.
    """
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


def _check_seconds(run_secs: Any) -> None:
    numbers = isinstance(run_secs, list) and all(type(v) in (int, float) for v in run_secs)
    if not numbers or not run_secs:
        raise ValueError("the latency is not a list of seconds")
    failed = all(v == FAILED_SECONDS for v in run_secs)
    if not failed and valid_latency(run_secs) is None:
        raise ValueError(f"the latency {run_secs[:3]} is not finite and positive")


# Both tables together.


@dataclass(frozen=True)
class Tables:
    """Both tables, read.

    Attributes
    ----------
    workloads, records
        Their lines, damaged ones among them. A record of a damaged workload is damaged, too.
    names
        Identity of each workload that can be used, by its place, from 0.
    """

    workloads: list[Line]
    records: list[Line]
    names: dict[int, str]

    def usable(self) -> Iterator[tuple[int, Any]]:
        """Place of the workload, and the record, of each record that can be used."""
        return ((line.value[0], line.value[1]) for line in self.records if line.reason is None)

    def damaged(self) -> dict[str, list[Line]]:
        """Lines that cannot be used, by the file's name; files without one are missing."""
        both = {RECORDS: damaged(self.records), WORKLOADS: damaged(self.workloads)}
        return {name: lines for name, lines in both.items() if lines}


def parse_line(raw: bytes) -> Any:
    """The JSON value of a line; ValueError where TVM would read another one, or none."""
    value = strict_loads(raw)
    if _UNREAD.search(raw):
        raise ValueError("an escape (\\u) that TVM does not read")
    return value


def parse_tables(
    workloads: bytes,
    records: bytes,
    identity: Identity = "|".join,
    check_trial: Callable[[Any, Any], None] | None = None,
) -> Tables:
    """Both tables from what is in their files.

    Parameters
    ----------
    identity
        Names a workload; by default by its text.
    check_trial
        A further check, called with a parsed workload line and the record of a line; raises
        ValueError for a record that cannot be used.
    """

    def workload(raw: bytes) -> Any:
        value = parse_line(raw)
        check_workload(value)
        identity(value)
        return value

    def record(raw: bytes) -> Any:
        value = parse_line(raw)
        check_record(value, len(lines))
        of = lines[value[0]]
        if of.reason is not None:
            raise ValueError(f"its workload (index {value[0]}) is damaged: {of.reason}")
        if check_trial is not None:
            check_trial(of.value, value[1])
        return value

    lines = read_lines(workloads, workload)
    names = {i: identity(line.value) for i, line in enumerate(lines) if line.reason is None}
    return Tables(lines, read_lines(records, record), names)


def read_tables(
    folder: Path,
    identity: Identity = "|".join,
    check_trial: Callable[[Any, Any], None] | None = None,
) -> Tables:
    """`parse_tables` of a folder; a missing file is an empty one.

    Raises
    ------
    WorkDirError
        A file cannot be read.
    """
    workloads, records = (_content(folder / name) for name in TABLES)
    return parse_tables(workloads, records, identity, check_trial)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise disk_fault(path, error, "read") from error


def require_database(folder: Path) -> None:
    """Raise a DatabaseError unless a folder has TVM's tables."""
    if not (folder / WORKLOADS).is_file():
        raise DatabaseError(f"{folder} holds no database; name folders with {' and '.join(TABLES)}")


def databases_in(store: Path) -> list[Path]:
    """The databases of a store, in the order of their names; a store may not be there yet."""
    return sorted(path.parent for path in store.glob(f"*/{WORKLOADS}"))


# Repair.


@dataclass
class Repair:
    """What was done to a database.

    Attributes
    ----------
    tables
        As they were read. Their records that can be used are those of the repaired files.
    rejected
        Rejected lines by file name.
    """

    tables: Tables
    rejected: dict[str, list[Line]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Rejected lines of both files."""
        return sum(len(lines) for lines in self.rejected.values())

    def line(self) -> str:
        """One line for a log."""
        parts = [numbered(name, lines) for name, lines in self.rejected.items()]
        return f"moved damaged lines to *.rejected: {'; '.join(parts)}"


def repair(folder: Path, tables: Tables | None = None) -> Repair:
    """Make a pair of database files loadable.

    TVM numbers new workloads wrongly after a duplicate, so workloads with one identity are merged.

    Parameters
    ----------
    folder
        Holds TVM's two tables; a missing file is an empty one.
    tables
        What was read of it; by default it is read here.

    Raises
    ------
    WorkDirError
        The files cannot be read or written.
    """
    tables = tables or read_tables(folder)
    outcome = Repair(tables, tables.damaged())
    for name, lines in outcome.rejected.items():
        aside = folder / f"{name}.rejected"
        atomic_write(aside, _content(aside) + b"".join(map(_rejected_line, lines)))
    _rewrite(folder, tables)
    if outcome.count:
        log.warning("%s", outcome.line())
    return outcome


def _rejected_line(line: Line) -> bytes:
    text = line.raw.decode("utf-8", "backslashreplace")
    entry = {"line": line.number, "reason": line.reason, "text": text}
    return json.dumps(entry).encode("utf-8") + b"\n"


def _rewrite(folder: Path, tables: Tables) -> None:
    """Write what can be used; a kill between any two writes leaves each record with its workload.

    Two files cannot be replaced at once. So first the records are rewritten, so that none refers to
    a line that will go. Then the last workloads are copied into the free places, then the records
    are made to refer to the copies, and only then are the originals cut off the end of the table.
    """
    workloads, records = folder / WORKLOADS, folder / RECORDS
    trials = [line for line in tables.records if line.reason is None]
    place: dict[str, int] = {}
    firsts = {index: place.setdefault(name, index) for index, name in tables.names.items()}
    used = set(place.values())
    free = [index for index in range(len(used)) if index not in used]
    moved = dict(zip(sorted(i for i in used if i >= len(used)), free, strict=True))
    table = [line.raw for line in tables.workloads]
    _write(records, [_reindexed(trial, firsts) for trial in trials])
    if moved:
        for old, new in moved.items():
            table[new] = table[old]
        _write(workloads, table)
        places = {index: moved.get(first, first) for index, first in firsts.items()}
        _write(records, [_reindexed(trial, places) for trial in trials])
    _write(workloads, table[: len(used)])


def _reindexed(line: Line, places: Mapping[int, int]) -> bytes:
    old, record = line.value
    if places[old] == old:
        return line.raw
    return line_of([places[old], record])


def _write(path: Path, lines: Sequence[bytes]) -> None:
    content = b"".join(line + b"\n" for line in lines)
    if path.exists() and _content(path) != content:
        atomic_write(path, content)
