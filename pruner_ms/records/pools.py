"""Databases as pools: plain values, checked line by line before TVM sees any of them.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pruner_ms.files import strict_loads
from pruner_ms.records import RECORDS, WORKLOADS, archive
from pruner_ms.records.archive import SUFFIX, read_files, refused
from pruner_ms.records.tables import Line, damaged, parse_tables, read_lines
from pruner_ms.tvm_compat.marks import marks_untuned
from pruner_ms.tvm_compat.safe_traces import check_trace
from pruner_ms.types import valid_latency

HALVES = ("random", "evolved", "drafted")
_FILE_NAME = re.compile(rf"(?P<name>[^.]+)\.(?P<platform>.+)\.(?P<half>{'|'.join(HALVES)})")
_PLAIN = re.compile(r"[\w.+-]{1,80}")


@dataclass(frozen=True)
class Trial:
    """What a trial cost: seconds of its build (None: not built), and why it failed, if it did."""

    build_s: float | None
    error: str | None


@dataclass(frozen=True)
class PoolRecord:
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
        One of `HALVES`, or "" where neither file name nor meta.json says.
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
    lines: tuple[PoolRecord, ...]
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
        for pool_half in reversed(self.halves):
            merged.update(pool_half.meta)
        return merged


def read_half(path: Path) -> Half:
    """Read one half.

    Raises
    ------
    DatabaseError
        See `archive.read_files`; also: no record is readable, or they are of several workloads.
    """
    halves = _read(path)
    if len(halves) > 1:
        raise refused(path, f"its records are of {len(halves)} workloads, a pool is of one")
    return halves[0]


def read_database(path: Path) -> list[Half]:
    """Read a folder with TVM's JSON database, a work-dir for instance: a half for each workload.

    Of several workloads, each is named by the folder and the number of its line.

    Raises
    ------
    DatabaseError
        As for `read_half`, but for the number of workloads.
    """
    halves = _read(path)
    if len(halves) == 1:
        return halves
    numbered = enumerate(halves, 1)
    return [
        replace(pool_half, name=f"{pool_half.name}.{n}", rejected=None) for n, pool_half in numbered
    ]


def _read(path: Path) -> list[Half]:
    """The records of every workload, in the order of the first ones."""
    files = read_files(path)
    notes: list[str] = []
    meta = _meta(files, notes)
    tables = parse_tables(files[WORKLOADS], files[RECORDS])
    trials = _trials(files, len(tables.records), notes)
    _leave_out(tables.workloads, f"line {{}} of {WORKLOADS}", notes)
    _leave_out(tables.records, "record {}", notes)
    by_workload: dict[tuple[str, str], list[PoolRecord]] = {}
    for number, line in enumerate(tables.records):
        if line.reason is not None:
            continue
        place, (trace, run_secs, target, _) = line.value
        if not marks_untuned(trace):  # a pool is of schedules
            trial = trials[number] if trials else None
            record = PoolRecord(trace, target, valid_latency(run_secs), trial)
            shash, module = tables.workloads[place].value
            by_workload.setdefault((shash, module), []).append(record)
    if not by_workload:
        raise refused(path, f"it has no record that can be read{_why(notes)}")
    rejected = _rejected(files, notes)
    name, platform, half_name = _named(path, meta)
    told = tuple(notes)
    return [
        Half(path, name, platform, half_name, meta, module, tuple(own), rejected, told)
        for module, own in by_workload.items()
    ]


def _leave_out(lines: Sequence[Line], name: str, notes: list[str]) -> None:
    """Add a note for each damaged line; `name` has a placeholder for its number."""
    notes += [f"{name.format(one.number)} is left out: {one.reason}" for one in damaged(lines)]


def _meta(files: Mapping[str, bytes], notes: list[str]) -> dict[str, Any]:
    """meta.json; empty where there is none."""
    try:
        # a half without one good trial has a best latency of Infinity in its tuning curve
        value = json.loads(files.get(archive.META, b"{}"))
        if not isinstance(value, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        notes.append(f"{archive.META} is left out: {error}")
        return {}
    return value


def _trials(files: Mapping[str, bytes], records: int, notes: list[str]) -> list[Trial | None]:
    """A trial per record, None for a damaged line; empty without trials.jsonl."""
    lines = read_lines(files.get(archive.TRIALS, b""), _checked(_trial))
    if archive.TRIALS in files and len(lines) != records:
        # which row belongs to which record is known by its number only
        notes.append(f"{archive.TRIALS} is left out: {len(lines)} rows for {records} records")
        return []
    _leave_out(lines, f"row {{}} of {archive.TRIALS}", notes)
    return [line.value for line in lines]


def _checked(check: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    return lambda raw: check(strict_loads(raw))


def _trial(value: Any) -> Trial:
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    seconds, error = value.get("build_s"), value.get("error")
    # the same rule as for latencies: finite and positive
    built = None if seconds is None else valid_latency([seconds])
    return Trial(built, None if error is None else str(error))


def _rejected(files: Mapping[str, bytes], notes: list[str]) -> tuple[Any, ...] | None:
    """The refused traces as JSON values; None without rejected.jsonl."""
    if archive.REJECTED not in files:
        return None
    lines = read_lines(files[archive.REJECTED], _checked(_refused_trace))
    _leave_out(lines, f"line {{}} of {archive.REJECTED}", notes)
    return tuple(line.value for line in lines if line.value is not None)


def _refused_trace(value: Any) -> Any:
    """A trace, checked; None for the counts."""
    if isinstance(value, dict):
        return None
    check_trace(value)
    return value


def _why(notes: Sequence[str]) -> str:
    return f" ({notes[0]})" if notes else ""


def grouped(halves: Sequence[Half]) -> list[Pool]:
    """Halves as pools, in the order given; no two pools have one name.

    Two halves are one pool when their name and platform agree, and module, target and machine with
    them; a half that is there already (of another machine, say) begins another pool.
    """
    groups: list[list[Half]] = []
    for pool_half in halves:
        for group in groups:
            if _identity(pool_half) == _identity(group[0]) and _adds(pool_half, group):
                group.append(pool_half)
                break
        else:
            groups.append([pool_half])
    names = [_pool_name(group[0]) for group in groups]
    full = [
        name if names.count(name) == 1 else f"{group[0].source.resolve().parent.name}/{name}"
        for name, group in zip(names, groups, strict=True)
    ]
    before = [full[:i].count(name) for i, name in enumerate(full)]
    return [
        Pool(name if not again else f"{name} ({again + 1})", tuple(sorted(group, key=_order)))
        for name, again, group in zip(full, before, groups, strict=True)
    ]


def _order(pool_half: Half) -> int:
    """Position of a half in its pool: a seed takes the same records in any order of the files."""
    return HALVES.index(pool_half.half) if pool_half.half in HALVES else len(HALVES)


def _adds(pool_half: Half, group: Sequence[Half]) -> bool:
    if not pool_half.half or not group[0].half or pool_half.half in {h.half for h in group}:
        return False
    machines = {m for m in (machine_of(h.meta) for h in (pool_half, *group)) if m}
    return len(machines) <= 1


def machine_of(meta: Mapping[str, Any]) -> str:
    """What meta.json says a half was measured on; empty where it says nothing."""
    return str(meta.get("gpu") or meta.get("cpu") or "")


def _identity(pool_half: Half) -> tuple[Any, ...]:
    target = next((line.target for line in pool_half.lines if line.target is not None), None)
    target_text = None if target is None else repr(sorted((k, repr(v)) for k, v in target.items()))
    return pool_half.name, pool_half.platform, pool_half.workload, target_text


def _pool_name(pool_half: Half) -> str:
    return f"{pool_half.name}.{pool_half.platform}" if pool_half.platform else pool_half.name


def _named(path: Path, meta: Mapping[str, Any]) -> tuple[str, str, str]:
    """Name, platform and half, by the file's name and meta.json.

    For name and platform the file's name comes first, for the half meta.json: a file is easily
    renamed, and a half that is mistaken for the other one spoils an evaluation.
    """
    stem = path.resolve().name.removesuffix(SUFFIX)
    said, half_name = str(meta.get("name", "")), str(meta.get("half", ""))
    match = _FILE_NAME.fullmatch(stem)
    if half_name not in HALVES:
        half_name = next((h for h in HALVES if stem.endswith(f".{h}")), "")
    if match:
        return match["name"], match["platform"], half_name
    if not _PLAIN.fullmatch(said):
        return stem.removesuffix(f".{half_name}") if half_name else stem, "", half_name
    return said, _platform(meta), half_name


def _platform(meta: Mapping[str, Any]) -> str:
    if "gpu" in meta:
        return "cuda"
    named = f"llvm-{meta.get('mcpu')}-{meta.get('cores')}"
    return named if "mcpu" in meta and _PLAIN.fullmatch(named) else ""
