"""All design spaces of a task as integer arrays, with conversion to and from TVM's traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace, unsupported
from pruner_ms.symbolic import tiles
from pruner_ms.symbolic.decisions import Decision, Decisions, Place, Tile, read_decisions
from pruner_ms.symbolic.interpret import Compiled, compile_space, probed
from pruner_ms.symbolic.primitives.trace import UNDECIDED, Inst, decision_of, read_trace, sampling
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.target import read_limits
from pruner_ms.tvm_compat.paths import Schedule, Trace
from pruner_ms.types import BoolArray, IntArray

# Exact number of candidates of a design space whose compute locations depend on the tiles.
#
# A loop is a candidate for a compute location unless it runs once, and the loops that run once
# follow from the factors that are 1. Rows that agree in these have the same locations: one row of
# each such class is evaluated, and counts for all of its class.


CHUNK = 4096
"""Classes evaluated at once."""


def classes_of(item: Decision) -> tuple[IntArray, list[int]]:
    """One value of each class of a decision, int64 (C, width), and the size of the class."""
    if isinstance(item, Tile):
        table = tiles.table(item.spec)
        _, first, sizes = np.unique(table == 1, axis=0, return_index=True, return_counts=True)
        return table[first], [int(n) for n in sizes]
    if isinstance(item, Place):
        return np.full((1, 1), -1, np.int64), [1]  # enumerated later
    # a number that the trace uses later may be a loop's extent: each is a class
    return np.arange(item.options, dtype=np.int64)[:, None], [1] * item.options


def count_distinct(choices: Decisions, canonical: Callable[[IntArray], IntArray]) -> int:
    """Number of distinct candidates.

    Parameters
    ----------
    choices
        Decisions of a closed-form design space.
    canonical
        Repairs rows as TVM does; takes and returns int64 (N, columns).
    """
    if not choices.places:
        return choices.count()
    return sum(_counted(choices, *classes, canonical) for classes in _classes(choices))


def _counted(
    choices: Decisions, rows: IntArray, sizes: IntArray, canonical: Callable[[IntArray], IntArray]
) -> int:
    """Candidates of some classes, with locations placed one after the other, as in TVM."""
    for item, where in choices.slices():
        if isinstance(item, Place):
            rows, sizes = _located(rows, sizes, where.start, item.depth, canonical)
    return sum(int(n) for n in sizes)


def _classes(choices: Decisions) -> Iterator[tuple[IntArray, IntArray]]:
    """Rows, one per class, int64 (N, columns), and the sizes of their classes, (N,)."""
    parts = [classes_of(item) for item in choices.items]
    shape = [len(values) for values, _ in parts]
    for start in range(0, prod(shape), CHUNK):
        places = np.unravel_index(np.arange(start, min(start + CHUNK, prod(shape))), shape)
        chosen = [v[place] for (v, _), place in zip(parts, places, strict=True)]
        sizes = np.ones(len(places[0]), object)  # products may exceed 64 bits
        for (_, many), place in zip(parts, places, strict=True):
            sizes = sizes * np.array(many, object)[place]
        yield np.concatenate(chosen, axis=1), sizes


def _located(
    rows: IntArray,
    sizes: IntArray,
    column: int,
    depth: int,
    canonical: Callable[[IntArray], IntArray],
) -> tuple[IntArray, IntArray]:
    """Each row once for every location that TVM would keep as it is."""
    values = np.arange(-2, depth)
    tried = np.repeat(rows, len(values), axis=0)
    tried[:, column] = np.tile(values, len(rows))
    canonical_rows = canonical(tried)[:, column] == tried[:, column]
    return tried[canonical_rows], np.repeat(sizes, len(values))[canonical_rows]


PROBE_ROWS = 4
"""Rows on which a space is run when it is compiled; if that fails it has no closed form."""

MAX_DEPTH = 32
"""Positions drawn for a compute location in a space without a closed form."""


@dataclass(eq=False)
class Sketch:
    """One design space of a task.

    Attributes
    ----------
    index
        Index among the task's design spaces.
    closed
        Whether `program` works without a replay.
    reason
        Why it does not; empty if closed.
    """

    index: int
    insts: tuple[Inst, ...]
    trace: Any
    mod: Any
    choices: Decisions
    compiled: Compiled | None
    reason: str
    _sampled: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self._sampled = sampling(self.trace)

    @property
    def closed(self) -> bool:
        """Whether `program` works without a replay."""
        return self.compiled is not None

    @property
    def columns(self) -> int:
        """Columns of a row."""
        return self.choices.columns

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Draw rows as TVM draws schedules, int64 (n, columns).

        In a space without a closed form compute locations stay `UNDECIDED`: TVM draws one at the
        replay, since legal positions are not known before.
        """
        rows = self.choices.sample(n, rng)
        if self.closed:
            return self._with_locations(rows, rng) if self.choices.places else rows
        rows[:, list(self.choices.places)] = UNDECIDED
        return rows

    def canonical(self, rows: IntArray) -> IntArray:
        """Rows as TVM would repair them, which identify candidates.

        Tiles are made exact; compute locations are moved to a candidate if the space is closed.
        """
        return self._with_locations(self.choices.repair(rows), None)

    def _with_locations(self, rows: IntArray, rng: np.random.Generator | None) -> IntArray:
        if self.compiled is None or not self.choices.places or not len(rows):
            return rows
        located = np.array(rows, np.int64)
        try:
            with unsupported("the closed form"):
                locations = self.compiled.locations(rows, rng)
        except UnsupportedTrace as verdict:
            self.mark_open(verdict)
            locations = dict.fromkeys(self.choices.places, np.full(len(rows), UNDECIDED))
        for column, values in locations.items():
            located[:, column] = values
        return located

    def mark_open(self, verdict: UnsupportedTrace) -> None:
        """Record that rows have no closed form or no draft: the space is no longer `closed`."""
        self.compiled, self.reason = None, str(verdict)

    def mutate(self, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """Change one decision of every row; see `Decisions.mutate`.

        Without a closed form, a changed compute location becomes `UNDECIDED`.
        """
        mutants = self.choices.mutate(rows, rng)
        return mutants if self.closed else self._undecided(mutants, rows)

    def _undecided(self, rows: IntArray, before: IntArray) -> IntArray:
        """Rows with changed compute locations left `UNDECIDED`, for TVM to draw."""
        places = list(self.choices.places)
        same = rows[:, places] == before[:, places]
        rows[:, places] = np.where(same, rows[:, places], UNDECIDED)
        return rows

    def crossover(self, a: IntArray, b: IntArray, rng: np.random.Generator) -> IntArray:
        """Each decision from one of two parents."""
        return self.choices.crossover(a, b, rng)

    def neighbours(self, row: IntArray) -> IntArray:
        """Rows one step of one decision away, as TVM would repair them, int64 (n, columns).

        Each once, without the row itself. Without a closed form a changed compute location becomes
        `UNDECIDED`.
        """
        near = self.choices.neighbours(row)
        near = self.canonical(near) if self.closed else self._undecided(near, row[None])
        others: IntArray = np.unique(near[(near != row).any(axis=1)], axis=0)
        return others

    def count(self) -> int:
        """Number of distinct candidates: exact, with compute locations, if the space is closed.

        An upper bound without a closed form, since legal locations are unknown.
        """
        return count_distinct(self.choices, self.canonical) if self.closed else self.choices.count()

    def key(self, rows: IntArray) -> list[bytes]:
        """One bytes object per row, for de-duplication over all design spaces of the task."""
        packed = np.ascontiguousarray(rows, np.int32)
        width = packed.shape[1] * packed.itemsize
        flat, head = packed.tobytes(), self.index.to_bytes(2, "little")
        return [head + flat[i * width : (i + 1) * width] for i in range(len(packed))]

    def program(self, rows: IntArray, narrow: bool = False) -> SketchProgram:
        """The schedules of N rows, int64 (N, columns).

        Parameters
        ----------
        narrow
            Whether arrays may be int32, which is faster: for callers that do not multiply them.

        Raises
        ------
        UnsupportedTrace
            The space has no closed form, or has none for these rows: it is then no longer `closed`.
        """
        if self.compiled is None:
            raise UnsupportedTrace(f"design space {self.index} has no closed form: {self.reason}")
        try:
            with unsupported("the closed form"):
                return self.compiled.program(rows, narrow)
        except UnsupportedTrace as verdict:
            self.mark_open(verdict)
            raise

    def accepted(self, rows: IntArray) -> BoolArray:
        """Rows that the target's limits allow, bool (N,), far faster than `program`.

        On a GPU nine in ten random rows fail VerifyGPUCode. Without a closed form all rows are
        accepted.
        """
        if self.compiled is None:
            return np.ones(len(rows), np.bool_)
        try:
            with unsupported("the closed form"):
                return self.compiled.accepted(rows)
        except UnsupportedTrace as verdict:
            self.mark_open(verdict)
            return np.ones(len(rows), np.bool_)

    def screened(self, rows: IntArray) -> BoolArray:
        """Rows worth scoring, bool (N,): `accepted` ones, or all if screening costs more.

        To be called before `program` on unscreened rows.
        """
        if self.compiled is not None and self.compiled.cheap_to_score(len(rows)):
            return np.ones(len(rows), np.bool_)
        return self.accepted(rows)

    def decisions(self, row: IntArray) -> list[list[int] | int]:
        """A row as TVM's decisions, in the order of the sampling instructions."""
        return self.choices.split(row)

    def trace_of(self, row: IntArray) -> Any:
        """The TVM trace of a row."""
        pairs = zip(self._sampled, self.decisions(row), strict=True)
        decided = {inst: value for inst, value in pairs if value != UNDECIDED}
        return Trace(list(self.trace.insts), decided)

    def replay(self, row: IntArray) -> Any:
        """The TVM schedule of a row, before the postprocessors.

        TVM repairs decisions on the way; `row_of(schedule.trace)` gives the repaired row.
        """
        schedule = Schedule(self.mod, seed=1, error_render_level="none")
        self.trace_of(row).apply_to_schedule(schedule, remove_postproc=True)
        return schedule

    def row_of(self, trace: Any) -> IntArray | None:
        """The row of a TVM trace, int64 (columns,); None if it is not of this design space."""
        clean = trace.simplified(True)
        return self.row_from(clean, read_trace(clean))

    def row_from(self, clean: Any, insts: tuple[Inst, ...]) -> IntArray | None:
        """`row_of` for a trace without postprocessors, whose instructions were read before."""
        if insts != self.insts:
            return None
        values = [v for inst in sampling(clean) for v in decision_of(clean, inst)]
        if len(values) != self.columns:
            return None
        row = np.array(values, np.int64)
        # a hand-written trace may have factors that TVM makes exact at replay
        return row if self.choices.valid(row[None]).all() else self.choices.repair(row[None])[0]


@dataclass(frozen=True)
class DecisionSpace:
    """The design spaces of a task."""

    sketches: tuple[Sketch, ...]

    def __len__(self) -> int:
        return len(self.sketches)

    def __iter__(self) -> Iterator[Sketch]:
        return iter(self.sketches)

    def __getitem__(self, index: int) -> Sketch:
        return self.sketches[index]

    @property
    def closed(self) -> tuple[Sketch, ...]:
        """The design spaces with a closed form."""
        return tuple(s for s in self.sketches if s.closed)

    def count(self) -> int:
        """Number of distinct candidates; see `Sketch.count`."""
        return sum(s.count() for s in self.sketches)

    def find(self, trace: Any) -> tuple[int, IntArray] | None:
        """Design space and row of a TVM trace, None if it belongs to none of them."""
        clean = trace.simplified(True)
        insts = read_trace(clean)
        for sketch in self.sketches:
            row = sketch.row_from(clean, insts)
            if row is not None:
                return sketch.index, row
        return None


def read_sketch(index: int, schedule: Any, mod: Any, target: Any) -> Sketch:
    """One design space of a task for a TVM target, compiled if it can be."""
    trace = schedule.trace.simplified(True)
    insts = read_trace(trace)
    defaults = [decision_of(trace, inst) for inst in sampling(trace)]
    choices = read_decisions(insts, defaults, MAX_DEPTH)
    return Sketch(index, insts, trace, mod, *_compile(insts, mod, choices, target))


def _compile(
    insts: tuple[Inst, ...], mod: Any, choices: Decisions, target: Any
) -> tuple[Decisions, Compiled | None, str]:
    """The decisions with their bounds, and the closed form or the reason why there is none."""
    tables = {
        i: np.array(item.values, np.int64)
        for i, item in enumerate(choices.items)
        if hasattr(item, "values")
    }
    fixed = frozenset(
        i for i, x in enumerate(choices.items) if isinstance(x, Tile) and x.spec.extent == 1
    )
    try:
        with unsupported("the closed form"):
            space = compile_space(insts, mod, choices.starts, tables, read_limits(target), fixed)
            probe = choices.sample(PROBE_ROWS, np.random.default_rng(0))
            compiled, depths = probed(space, probe)
    except UnsupportedTrace as verdict:
        return choices, None, str(verdict)
    return choices.with_depths(depths), compiled, ""


def decision_space(design_spaces: Sequence[Any], mod: Any, target: Any) -> DecisionSpace:
    """The design spaces of a task.

    Parameters
    ----------
    design_spaces
        Schedules, as returned by `generate_design_space`.
    mod
        The module from which they were made.
    target
        The task's target.
    """
    pairs = enumerate(design_spaces)
    return DecisionSpace(tuple(read_sketch(i, schedule, mod, target) for i, schedule in pairs))
