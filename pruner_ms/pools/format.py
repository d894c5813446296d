"""A pool's files as plain values, checked line by line before TVM sees any of them.

Files of a half (`archive.FILES`)
---------------------------------
database_*.json   the two tables of TVM's JSON database
trials.jsonl      row i belongs to record i: {"build_s", "run_s", "error"}; the database itself
                  keeps a failure only as 1e10 seconds
rejected.jsonl    first line counts of accepted and rejected samples, then the traces that a
                  postprocessor refused, as TVM writes traces to JSON
meta.json         name, half, target, space, machine, versions, seed, tuning curve

Only the database is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pruner_ms.pools import archive
from pruner_ms.pools.archive import SUFFIX, read_files, refused
from pruner_ms.session.files import strict_loads
from pruner_ms.session.records import check_record, check_workload
from pruner_ms.types import valid_latency

HALVES = ("random", "evolved")
_FILE_NAME = re.compile(rf"(?P<name>[^.]+)\.(?P<platform>.+)\.(?P<half>{'|'.join(HALVES)})")
_PLAIN = re.compile(r"[\w.+-]{1,80}")


@dataclass(frozen=True)
class Trial:
    """What a trial cost: seconds of its build (None: not built), and why it failed, if it did."""

    build_s: float | None
    error: str | None


@dataclass(frozen=True)
class Line:
    """One record of the database.

    Attributes
    ----------
    trace, target
        As JSON values; target None where the record names none.
    latency
        Mean seconds; None: the trial failed.
    trial
        None where trials.jsonl is missing.
    """

    trace: Any
    target: dict[str, Any] | None
    latency: float | None
    trial: Trial | None


@dataclass(frozen=True)
class Half:
    """One half of a pool.

    Attributes
    ----------
    source
        Where it was read.
    name, platform
        Its pool is `name.platform`.
    half
        "random", "evolved" or "" where neither file name nor meta.json says.
    meta
        meta.json; empty where there is none.
    workload
        The module's line of TVM's table: hash and base64 text.
    lines
        The records that can be read, in the order in which they were measured.
    rejected
        Traces as JSON; None without rejected.jsonl.
    notes
        What could not be read.
    """

    source: Path
    name: str
    platform: str
    half: str
    meta: Mapping[str, Any]
    workload: tuple[str, str]
    lines: tuple[Line, ...]
    rejected: tuple[Any, ...] | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pool:
    """Halves that belong together: same name, platform, module and target."""

    name: str
    halves: tuple[Half, ...]

    @property
    def meta(self) -> dict[str, Any]:
        """The meta of all halves, the first one's values first."""
        merged: dict[str, Any] = {}
        for half in reversed(self.halves):
            merged.update(half.meta)
        return merged


def read_half(path: Path) -> Half:
    """Read one half.

    Raises
    ------
    DatabaseError
        See `archive.read_files`; also: not one readable record, or of more than one workload.
    """
    files = read_files(path)
    notes: list[str] = []
    meta = _meta(files, notes)
    workloads = _workloads(path, files)
    lines = _lines(files[archive.RECORDS])
    trials = _trials(files, len(lines), notes)
    kept, used = [], set()
    for number, raw in enumerate(lines):
        try:
            index, line = _record(raw, len(workloads), trials[number] if trials else None)
        except ValueError as error:
            notes.append(f"record {number + 1} is left out: {error}")
            continue
        used.add(index)
        kept.append(line)
    if not kept:
        raise refused(path, "it has no record that can be read")
    if len({workloads[i] for i in used}) > 1:
        raise refused(path, f"its records are of {len(used)} workloads, a pool is of one")
    rejected = _rejected(files, notes)
    name, platform, half = _named(path, meta)
    workload = workloads[used.pop()]
    return Half(path, name, platform, half, meta, workload, tuple(kept), rejected, tuple(notes))


def grouped(halves: Sequence[Half]) -> list[Pool]:
    """Halves as pools, in the order given.

    Two halves are one pool when their name and platform agree, and module and target with them; a
    half that is there already (of another machine, say) begins another pool.
    """
    groups: list[list[Half]] = []
    for half in halves:
        for group in groups:
            if _identity(half) == _identity(group[0]) and _adds(half, group):
                group.append(half)
                break
        else:
            groups.append([half])
    names = [_pool_name(group[0]) for group in groups]
    return [
        Pool(
            name if names.count(name) == 1 else f"{group[0].source.parent.name}/{name}",
            tuple(group),
        )
        for name, group in zip(names, groups, strict=True)
    ]


def _adds(half: Half, group: Sequence[Half]) -> bool:
    return bool(half.half) and half.half not in {h.half for h in group} and bool(group[0].half)


def _identity(half: Half) -> tuple[Any, ...]:
    target = next((line.target for line in half.lines if line.target is not None), None)
    known = None if target is None else repr(sorted((k, repr(v)) for k, v in target.items()))
    return half.name, half.platform, half.workload, known


def _pool_name(half: Half) -> str:
    return f"{half.name}.{half.platform}" if half.platform else half.name


def _named(path: Path, meta: Mapping[str, Any]) -> tuple[str, str, str]:
    """Name, platform and half: by the file's name, else by meta.json."""
    stem = path.resolve().name.removesuffix(SUFFIX)
    match = _FILE_NAME.fullmatch(stem)
    if match:
        return match["name"], match["platform"], match["half"]
    said = str(meta.get("name", ""))
    half = str(meta.get("half", ""))
    if not _PLAIN.fullmatch(said):
        return stem, "", half if half in HALVES else ""
    return said, _platform(meta), half if half in HALVES else ""


def _platform(meta: Mapping[str, Any]) -> str:
    if "gpu" in meta:
        return "cuda"
    named = f"llvm-{meta.get('mcpu')}-{meta.get('cores')}"
    return named if "mcpu" in meta and _PLAIN.fullmatch(named) else ""


def _lines(content: bytes) -> list[bytes]:
    return [line for line in content.split(b"\n") if line.strip()]


def _workloads(path: Path, files: Mapping[str, bytes]) -> list[tuple[str, str]]:
    found = []
    for number, raw in enumerate(_lines(files[archive.WORKLOADS]), 1):
        try:
            value = strict_loads(raw)
            check_workload(value)
        except ValueError as error:
            raise refused(path, f"line {number} of {archive.WORKLOADS}: {error}") from error
        found.append((value[0], value[1]))
    return found


def _record(raw: bytes, workloads: int, trial: Trial | None) -> tuple[int, Line]:
    value = strict_loads(raw)
    check_record(value, workloads)
    index, (trace, run_secs, target, _) = value
    return index, Line(trace, target, valid_latency(run_secs), trial)


def _meta(files: Mapping[str, bytes], notes: list[str]) -> dict[str, Any]:
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


def _trials(files: Mapping[str, bytes], records: int, notes: list[str]) -> list[Trial] | None:
    if archive.TRIALS not in files:
        return None
    try:
        rows = [_trial(strict_loads(raw)) for raw in _lines(files[archive.TRIALS])]
    except ValueError as error:
        notes.append(f"{archive.TRIALS} is left out: {error}")
        return None
    if len(rows) != records:
        notes.append(f"{archive.TRIALS} is left out: {len(rows)} rows for {records} records")
        return None
    return rows


def _trial(value: Any) -> Trial:
    if not isinstance(value, dict):
        raise ValueError("a row is no object")
    seconds, error = value.get("build_s"), value.get("error")
    # the same rule as for latencies: finite and positive
    built = None if seconds is None else valid_latency([seconds])
    return Trial(built, None if error is None else str(error))


def _rejected(files: Mapping[str, bytes], notes: list[str]) -> tuple[Any, ...] | None:
    if archive.REJECTED not in files:
        return None
    try:
        values = [strict_loads(raw) for raw in _lines(files[archive.REJECTED])]
        # the trace of a rejected sample has the form of a record's
        for trace in values[1:]:
            check_record([0, [trace, None, None, None]], 1)
    except ValueError as error:
        notes.append(f"{archive.REJECTED} is left out: {error}")
        return None
    return tuple(values[1:])
