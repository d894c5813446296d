"""The draft stage of one task: closed-form spaces explored on arrays, the others replayed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.calibrate import Calibration, fit
from pruner_ms.draft.explore.experience import build_factor, shares
from pruner_ms.draft.explore.explored import DraftedCandidate
from pruner_ms.draft.explore.explorer import explore
from pruner_ms.draft.explore.novelty import unexplained
from pruner_ms.draft.score import Draft, concatenated, draft_once, draft_rows
from pruner_ms.errors import UnsupportedTrace
from pruner_ms.hardware import HardwareSpec
from pruner_ms.search.candidate import Candidate
from pruner_ms.search.core import Measured, Stream, TaskSearch
from pruner_ms.search.donors import Transfer
from pruner_ms.search.programs import Programs
from pruner_ms.search.replay import SEED_RANGE, Replayed, Replayer
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.primitives.trace import UNDECIDED
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import DecisionSpace, Sketch
from pruner_ms.types import FloatArray, Funnel, IntArray

# Drafts for design spaces that are not closed-form: replay, then read the schedule.
#
# The slow path (2-30 ms a draft instead of a microsecond): sampled and mutated decisions are
# replayed with their postprocessors, and the resulting schedule is read by the oracle
# (`symbolic.lowered`). Schedules that cannot be read (calls of packed functions, loops without
# blocks) have no draft; they are measured only where there are no others.

log = logging.getLogger(__name__)

_MUTATED_SHARE = 0.5
"""Share of the decisions that are mutations of measured ones, where there are any."""
_BATCH = 64
"""Decisions per batch; fixed, so that draws do not depend on threads."""


def _rows(sketch: Sketch, elites: Sequence[Measured], rng: np.random.Generator) -> IntArray:
    """A batch of decisions of a design space: (`_BATCH`, columns)."""
    parents = [m.row for m in elites if m.sketch == sketch.index]
    mutated = int(_BATCH * _MUTATED_SHARE) if parents else 0
    rows = sketch.sample(_BATCH - mutated, rng)
    if mutated:
        chosen = rng.integers(0, len(parents), mutated)
        rows = np.concatenate([rows, sketch.mutate(np.stack([parents[i] for i in chosen]), rng)])
    return rows


def _draws(
    sketches: Sequence[Sketch],
    elites: Sequence[Measured],
    seen: set[bytes],
    rng: np.random.Generator,
    funnel: Funnel,
) -> Iterator[list[tuple[Sketch, IntArray, bytes, int]]]:
    """Infinite batches of unseen (design space, row, key, replay seed).

    Design spaces are shuffled, so that a search that stops early has tried each.
    """
    drawn = set(seen)
    while True:
        batch = []
        for sketch in sketches:
            rows = _rows(sketch, elites, rng)
            seeds = rng.integers(1, SEED_RANGE, len(rows))
            for row, key, seed in zip(rows, sketch.key(rows), seeds, strict=True):
                # undecided values are drawn by TVM at each replay
                if key in drawn and UNDECIDED not in row:
                    funnel.duplicate += 1
                    continue
                drawn.add(key)
                batch.append((sketch, row, key, int(seed)))
        yield [batch[i] for i in rng.permutation(len(batch))]


def oracle_drafts(
    sketches: Sequence[Sketch],
    elites: Sequence[Measured],
    seen: set[bytes],
    wanted: int,
    limit: int,
    replayer: Replayer,
    read: Callable[[Any], tuple[SketchProgram, float]],
    rng: np.random.Generator,
    funnel: Funnel,
) -> list[Candidate]:
    """Drafts from replayed schedules.

    Parameters
    ----------
    sketches
        The design spaces that are not closed-form.
    elites, seen
        Measured schedules to mutate, and keys not to draw again.
    wanted, limit
        Valid drafts to find, and most replays. Without a valid draft, invalid ones are returned;
        without those, candidates that cannot be read.
    read
        From a schedule's module to its program and predicted latency in seconds.
    """
    valid: list[Candidate] = []
    invalid: list[Candidate] = []
    unread: list[Candidate] = []
    tried, used_keys = 0, set(seen)
    for batch in _draws(sketches, elites, seen, rng, funnel):
        traces = [(sketch.trace_of(row), seed) for sketch, row, _, seed in batch]
        for (sketch, row, key, _), replayed in zip(batch, replayer.stream(traces), strict=False):
            if len(valid) >= wanted or tried >= limit:
                return valid or invalid[:wanted] or unread[:wanted]
            tried += 1
            funnel.drafted += 1
            funnel.replayed += 1
            if replayed is None:
                funnel.rejected += 1
                continue
            candidate = _candidate(sketch, row, key, replayed, read)
            if candidate.key in used_keys:
                funnel.duplicate += 1
                continue
            used_keys.add(candidate.key)
            good = bool(np.isfinite(candidate.latency))
            (unread if candidate.program is None else valid if good else invalid).append(candidate)
            funnel.unsupported += candidate.program is None
            funnel.invalid += candidate.program is not None and not good
        if not batch:
            break
    return valid or invalid[:wanted] or unread[:wanted]


def _candidate(
    sketch: Sketch,
    row: IntArray,
    key: bytes,
    replayed: Replayed,
    read: Callable[[Any], tuple[SketchProgram, float]],
) -> Candidate:
    """The candidate of a replayed schedule, identified by the decisions as TVM repaired them.

    It has no program, and an infinite latency, where its schedule cannot be read.
    """
    repaired = sketch.row_of(replayed.schedule.trace)
    if repaired is not None:
        row, key = repaired, sketch.key(repaired[None, :])[0]
    try:
        program, latency = read(replayed.schedule.mod)
    except UnsupportedTrace as verdict:
        log.debug("a schedule has no draft: %s", verdict)
        program, latency = None, float("inf")
    return Candidate(sketch.index, row, key, latency, program, replayed)


_TRIES_PER_WANTED = 24
"""Most replays per valid draft wanted, in a search without closed form (docs/constants.md)."""

DONOR = "donor: "
"""Prefix of the origin of a candidate that a donor gave."""

DESCENT = "descent"
"""Origin of a neighbour of a task's best."""

_NOT_SLOW = 2.0
"""Builds of up to so many times the quickest one are allowed, even beyond the build limit."""


@dataclass
class Drafting:
    """The draft stage of a task, with its calibration.

    Attributes
    ----------
    space, hardware, target
        The design spaces, and the device. Where no row fits the target `hardware` is None: all
        schedules have the same draft, and the cost model alone ranks them.
    variant
        The draft's formula: "ours", "paper" or "released".
    compile_limit
        Seconds; schedules predicted to build longer are invalid, except up to `_NOT_SLOW` times the
        quickest of the task.
    slowness
        Measured over predicted build seconds of this run.
    """

    space: DecisionSpace
    hardware: HardwareSpec | None
    target: Any
    variant: str
    compile_limit: float
    calibration: Calibration = field(default_factory=Calibration)
    slowness: float = 1.0
    _builds: list[tuple[float, float]] = field(default_factory=list)
    _tried: dict[int, int] = field(default_factory=dict)
    _refused: dict[int, int] = field(default_factory=dict)
    _drafts: list[Draft] = field(default_factory=list)
    _latencies: list[float] = field(default_factory=list)
    _quickest: float = np.inf

    def score(self, program: SketchProgram) -> Draft:
        """The calibrated draft of N schedules; those that build too long are invalid."""
        return self.calibration.apply(self._within_limit(self.raw(program)))

    def raw(self, program: SketchProgram) -> Draft:
        """The uncalibrated formula, cached, as the cost model uses it, too."""
        if self.hardware is None:
            same = np.ones(program.rows)
            return Draft(same, program.supported, 0 * same, {"unknown": same})
        return draft_once(program, self.hardware, self.variant)

    def _within_limit(self, drafted: Draft) -> Draft:
        seconds = drafted.compile_seconds
        quickest = float(np.min(seconds, initial=np.inf, where=drafted.valid))
        self._quickest = min(self._quickest, quickest)
        limit = max(self.compile_limit / self.slowness, _NOT_SLOW * self._quickest)
        good = drafted.valid & (seconds <= limit)
        return replace(drafted, valid=good, latency=np.where(good, drafted.latency, np.inf))

    def closed(
        self,
        search: TaskSearch,
        config: SearchConfig,
        funnel: Funnel,
        given: Sequence[Transfer] = (),
    ) -> list[Candidate]:
        """Drafts of the closed-form design spaces, and of what donors give."""
        if not self.space.closed:
            return []
        donated = self.donated(search, given)
        exploration = explore(
            self.space,
            self.score,
            config,
            [*search.elites(), *donated[: config.elite_size]],
            search.rng(Stream.DRAFT),
            search.keys,
            shares(self._tried, self._refused),
        )
        funnel.drafted += exploration.drafted
        funnel.invalid += exploration.invalid
        funnel.unsupported += exploration.unsupported
        funnel.duplicate += exploration.duplicate
        # a design space may turn out to have no closed form for unusual rows
        drafted = [one for one in exploration.candidates if self.space[one.sketch].closed]
        seen = search.keys | {one.key for one in donated}
        return [*donated, *self._canonical(drafted, seen)]

    def near(self, search: TaskSearch, sketch: Sketch, row: IntArray) -> list[Candidate]:
        """The neighbours of a row that were not measured yet and break no limit.

        Without a closed form, limits are known only after a replay, and are not checked here.
        """
        rows = sketch.neighbours(row)
        near = self._drafted(search, sketch, rows, [DESCENT] * len(rows))
        if sketch.closed:
            return near
        return [
            Candidate(sketch.index, one, key, np.inf, origin=DESCENT)
            for one, key in zip(rows, sketch.key(rows), strict=True)
            if key not in search.keys
        ]

    def donated(self, search: TaskSearch, given: Sequence[Transfer]) -> list[Candidate]:
        """Valid drafts of what donors give, the best first."""
        candidates = []
        for transfer in given:
            origins = [f"{DONOR}{name}" for name in transfer.names]
            sketch = self.space[transfer.sketch]
            candidates += self._drafted(search, sketch, transfer.rows, origins)
        return sorted(candidates, key=lambda one: one.latency)

    def _drafted(
        self, search: TaskSearch, sketch: Sketch, rows: IntArray, origins: Sequence[str]
    ) -> list[Candidate]:
        """Rows that are valid and were not measured; none without a closed form."""
        if not sketch.closed or not len(rows):
            return []
        try:
            drafts, _ = draft_rows(sketch, rows, self.score)
        except UnsupportedTrace as verdict:
            sketch.mark_open(verdict)
            return []
        valid = drafts.valid & np.isfinite(drafts.latency)
        return [
            Candidate(
                sketch.index,
                rows[i],
                key,
                float(drafts.latency[i]),
                origin=origins[i],
                compile_seconds=float(drafts.compile_seconds[i]),
            )
            for i, key in enumerate(sketch.key(rows))
            if valid[i] and key not in search.keys
        ]

    def _canonical(self, drafted: Sequence[DraftedCandidate], seen: Set[bytes]) -> list[Candidate]:
        """Candidates by their decisions as TVM would repair them, without duplicates."""
        by_sketch: dict[int, list[DraftedCandidate]] = {}
        for one in drafted:
            by_sketch.setdefault(one.sketch, []).append(one)
        chosen: dict[bytes, Candidate] = {}
        for index, members in by_sketch.items():
            sketch = self.space[index]
            rows = sketch.canonical(np.stack([one.row for one in members]))
            for one, row, key in zip(members, rows, sketch.key(rows), strict=True):
                if key not in seen and key not in chosen:
                    chosen[key] = Candidate(
                        index,
                        row,
                        key,
                        one.latency,
                        uniform=one.uniform,
                        compile_seconds=one.compile_seconds,
                    )
        return list(chosen.values())

    def replayed(
        self, search: TaskSearch, wanted: int, replayer: Replayer, funnel: Funnel
    ) -> list[Candidate]:
        """Drafts of the other design spaces, read off replayed schedules."""
        sketches = [s for s in self.space if not s.closed]
        if not sketches:
            return []
        return oracle_drafts(
            sketches,
            search.elites(),
            search.keys,
            wanted,
            _TRIES_PER_WANTED * wanted,
            replayer,
            self._read,
            search.rng(Stream.ORACLE),
            funnel,
        )

    def _read(self, mod: Any) -> tuple[SketchProgram, float]:
        program = read(mod, self.target)
        return program, float(self.score(program).latency[0])

    def unexplained(self, programs: Programs) -> FloatArray:
        """`novelty.unexplained` of the candidates, (n, n)."""
        places = np.concatenate([places for places, _ in programs.parts])
        drafts = concatenated([self.raw(program) for _, program in programs.parts])
        measured = concatenated(self._drafts) if self._drafts else None
        return unexplained(measured, drafts.take(np.argsort(places)))

    def learn(self, program: SketchProgram, latencies: Sequence[float]) -> None:
        """Note N measured schedules and their latencies in seconds, NaN for failed trials.

        A failure does not affect the calibration, but schedules like it are no longer novel.
        """
        self._drafts.append(self.raw(program))
        self._latencies.extend(latencies)

    def replayed_one(self, sketch: int, refused: bool) -> None:
        """Note a replay of a design space, and whether a postprocessor refused it."""
        self._tried[sketch] = self._tried.get(sketch, 0) + 1
        self._refused[sketch] = self._refused.get(sketch, 0) + refused

    def built(self, predicted: float, seconds: float) -> None:
        """Note a build: seconds predicted and measured."""
        self._builds.append((predicted, seconds))

    def calibrate(self) -> None:
        """Re-fit the calibration, and the builds' slowness, to everything noted."""
        if self._builds:
            self.slowness = build_factor(*np.array(self._builds).T)
        if self._drafts:
            self.calibration = fit(concatenated(self._drafts), np.array(self._latencies))
