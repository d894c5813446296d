"""A pool's records as programs: closed-form rows in batches, the others read by the oracle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from pruner_ms.draft.score import Draft, concatenated, draft
from pruner_ms.draft.shares import log_shares
from pruner_ms.errors import DatabaseError, UnsupportedTrace, last_line
from pruner_ms.features.pack import FeatureBatch, concatenate, features_of
from pruner_ms.hardware import HardwareSpec
from pruner_ms.pools.load import Loaded, Record
from pruner_ms.pools.machine import hardware_of
from pruner_ms.pools.spaces import Place, Spaces, place_records
from pruner_ms.records.pools import machine_of
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.primitives.trace import UNDECIDED
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import DecisionSpace, Sketch
from pruner_ms.tvm_compat.paths import target_key, task_key
from pruner_ms.tvm_compat.safe_traces import REFUSALS
from pruner_ms.types import BoolArray, FloatArray, IntArray

TIMED, TIMED_ROWS = 2, 4096
"""Runs and rows of a timing; the pool's rows are repeated. A search ranks thousands at once; with
the few records of a pool the overhead of calls would dominate."""

CHUNK = 16384
"""Records interpreted at once."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Group:
    """Records that are interpreted together.

    Attributes
    ----------
    members
        Their indices.
    program
        One row each.
    timed
        The same rows repeated to `TIMED_ROWS`; None for records read by the oracle.
    """

    members: IntArray
    program: SketchProgram
    timed: SketchProgram | None = None


@dataclass(eq=False)
class Described:
    """A pool, ready to be ranked. n records in all.

    Attributes
    ----------
    name, task
        Of the pool; `task_key` of its task.
    spaces
        The design spaces.
    hardware
        The device's row.
    schedules
        TVM's, (n).
    latency
        Seconds, (n,); infinite for failed trials.
    uniform
        bool (n,): records of the "random" half; None: unknown.
    build_seconds
        Of each trial, (n,); NaN where not known.
    groups
        Programs of all records.
    interpret_seconds
        Of one record, on average.
    oracle_rows
        Records that were read off their schedule.
    refused
        See `load.Loaded`.
    notes
        What was left out.
    machine
        The machine that measured it; empty: unknown.
    """

    name: str
    task: str
    spaces: Spaces
    hardware: HardwareSpec
    schedules: tuple[Any, ...]
    latency: FloatArray
    uniform: BoolArray | None
    build_seconds: FloatArray
    groups: tuple[Group, ...]
    interpret_seconds: float
    oracle_rows: int
    refused: tuple[Any, ...] | None
    notes: tuple[str, ...]
    machine: str = ""
    _cache: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.latency)

    @property
    def platform(self) -> str:
        """Target and machine, the same for all pools measured there."""
        target = target_key(self.spaces.context.target)
        return f"{target} on {self.machine}" if self.machine else target

    def built(self, index: int) -> bool:
        """Whether a record's build is known to have succeeded."""
        return bool(np.isfinite(self.build_seconds[index]))

    def once(self, key: str, make: Callable[[], T]) -> T:
        """A value that is computed at the first call only."""
        if key not in self._cache:
            self._cache[key] = make()
        value: T = self._cache[key]
        return value

    def draft(self, variant: str) -> tuple[Draft, float]:
        """The draft of every record, and seconds per record, interpretation included."""
        seconds = self.once(
            f"seconds {variant}",
            lambda: self._seconds(lambda program: draft(program, self.hardware, variant)),
        )
        value = self.once(f"draft {variant}", lambda: self._draft(variant))
        return value, seconds + self.interpret_seconds

    def features_and_prior(self) -> tuple[FeatureBatch, FloatArray]:
        """Features and drafted seconds of every record, not timed."""
        drafted = self.once("draft ours", lambda: self._draft("ours"))
        return self.once("features", self._features), drafted.latency

    def features(self) -> tuple[FeatureBatch, float]:
        """Features of every record, and seconds per record, interpretation included."""
        seconds = self.once("seconds features", lambda: self._seconds(features_of))
        return self.once("features", self._features), seconds + self.interpret_seconds

    def _seconds(self, call: Callable[[SketchProgram], Any]) -> float:
        """Of a call, per record."""
        total = 0.0
        for group in self.groups:
            program = group.timed or group.program
            total += fastest(partial(call, program)) * len(group.members) / program.rows
        return total / len(self)

    def _draft(self, variant: str) -> Draft:
        parts = [draft(group.program, self.hardware, variant) for group in self.groups]
        return concatenated(parts).take(self._back())

    def _features(self) -> FeatureBatch:
        drafted = self.once("draft ours", lambda: self._draft("ours"))
        plain = concatenate([features_of(g.program) for g in self.groups]).rows(self._back())
        return replace(plain, shares=log_shares(drafted))

    def _back(self) -> IntArray:
        """Position of each record in the concatenated groups."""
        joined = np.concatenate([group.members for group in self.groups])
        return np.argsort(joined, kind="stable")


def describe(loaded: Loaded, timed: bool = True) -> Described:
    """Interpret a pool's records.

    Parameters
    ----------
    loaded
        The records as TVM objects.
    timed
        Whether to time the interpretation; without, `interpret_seconds` is NaN.

    Raises
    ------
    DatabaseError
        No design space can be made, or no record described.
    TargetError
        No hardware row fits the target.
    """
    hardware = hardware_of(loaded.target, loaded.meta)
    spaces, places = place_records(loaded)
    closed, rest, seconds = _closed(spaces.space, places, timed)
    start = time.perf_counter()
    oracle, lost = _by_oracle(loaded, rest)
    seconds += time.perf_counter() - start
    groups = [*closed, *oracle]
    if not groups:
        raise DatabaseError(f"{loaded.name}: none of its records can be described ({lost[0]})")
    described = np.sort(np.concatenate([group.members for group in groups]))
    numbered = [replace(g, members=np.searchsorted(described, g.members)) for g in groups]
    notes = [*loaded.notes, *_lost(lost)]
    records = [loaded.records[i] for i in described]
    return Described(
        name=loaded.name,
        task=task_key(loaded.mod, loaded.target),
        spaces=spaces,
        hardware=hardware,
        schedules=tuple(record.schedule for record in records),
        latency=np.array([np.inf if r.latency is None else r.latency for r in records]),
        uniform=_uniform(records),
        build_seconds=np.array([_build_seconds(r) for r in records]),
        groups=tuple(numbered),
        interpret_seconds=seconds / len(records),
        oracle_rows=len(oracle),
        refused=loaded.refused,
        notes=tuple(notes),
        machine=machine_of(loaded.meta),
    )


def _closed(
    space: DecisionSpace, places: Sequence[Place | None], timed: bool
) -> tuple[list[Group], list[int], float]:
    """Groups of the closed-form rows, the indices of the others, and the seconds."""
    groups: list[Group] = []
    rest = [i for i, place in enumerate(places) if place is None]
    seconds = 0.0
    for sketch in space:
        rows = [(i, p[1]) for i, p in enumerate(places) if p is not None and p[0] == sketch.index]
        open_rows = {i for i, row in rows if not sketch.closed or UNDECIDED in row}
        rest += open_rows
        rows = [(i, row) for i, row in rows if i not in open_rows]
        for at in range(0, len(rows), CHUNK):
            part = rows[at : at + CHUNK]
            members = np.array([i for i, _ in part])
            group, left, spent = _interpreted(
                sketch, members, np.stack([row for _, row in part]), timed
            )
            groups += [] if group is None else [group]
            rest += left
            seconds += spent
    return groups, sorted(rest), seconds


def _interpreted(
    sketch: Sketch, members: IntArray, rows: IntArray, timed: bool
) -> tuple[Group | None, list[int], float]:
    """A group if there is one, the indices of rows without a closed form, the group's seconds."""
    try:
        program = sketch.program(rows)
    except UnsupportedTrace:  # only some rows of it were ever tried
        return None, members.tolist(), 0.0
    good = program.supported
    left = [int(i) for i in members[~good]]
    if not good.any():
        return None, left, 0.0
    rows = rows[good]
    if left:
        program = sketch.program(rows)
    if not timed:
        return Group(members[good], program), left, float("nan")
    many = np.resize(rows, (max(TIMED_ROWS, len(rows)), rows.shape[1]))
    seconds = fastest(lambda: sketch.program(many)) * len(rows) / len(many)
    return Group(members[good], program, sketch.program(many)), left, seconds


def fastest(call: Callable[[], Any]) -> float:
    """Seconds of the fastest of `TIMED` calls."""
    times = []
    for _ in range(TIMED):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _by_oracle(loaded: Loaded, rest: Sequence[int]) -> tuple[list[Group], list[str]]:
    """Groups of one record each, and why others could not be read."""
    groups, lost = [], []
    for index in rest:
        try:
            program = read(loaded.records[index].schedule.mod, loaded.target)
        except UnsupportedTrace as verdict:
            lost.append(str(verdict))
        except REFUSALS as error:  # TVM's lowering fails for schedules that cannot be built
            lost.append(last_line(error)[:160])
        else:
            groups.append(Group(np.array([index]), program))
    return groups, lost


def _lost(reasons: Sequence[str]) -> list[str]:
    count = len(reasons)
    return [f"{count} records are left out, they cannot be read: {reasons[0]}"] if count else []


def _uniform(records: Sequence[Record]) -> BoolArray | None:
    if not all(record.half for record in records):
        return None
    return np.array([record.half == "random" for record in records])


def _build_seconds(record: Record) -> float:
    trial = record.trial
    return float("nan") if trial is None or trial.build_s is None else trial.build_s
