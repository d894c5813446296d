"""The draft stage of one task: closed-form spaces explored on arrays, the others replayed."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.calibrate import Calibration, fit
from pruner_ms.draft.experience import build_factor, shares
from pruner_ms.draft.explored import Explored
from pruner_ms.draft.explorer import explore
from pruner_ms.draft.novelty import unexplained
from pruner_ms.draft.score import Draft, concatenated, draft_once
from pruner_ms.hardware import HardwareSpec
from pruner_ms.search.choice import Choice
from pruner_ms.search.core import Stream, TaskSearch
from pruner_ms.search.oracle import oracle_drafts
from pruner_ms.search.programs import Programs
from pruner_ms.search.replay import Replayer
from pruner_ms.symbolic.lowered import read
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import DecisionSpace
from pruner_ms.types import FloatArray, Funnel

_TRIES_PER_WANTED = 24
"""Replays for one valid draft after which a search without closed form gives up: on CUDA 8 % of
random candidates pass the postprocessors."""


_NOT_SLOW = 2.0
"""Where every build takes long, those up to so many times the quickest are drafted all the same."""


@dataclass
class Drafting:
    """Finds drafts for a task, and learns from what was measured how to weigh its terms.

    Attributes
    ----------
    space, hardware, target
        What is drafted, and for which device. Where no row fits the target `hardware` is None: all
        schedules have the same draft, and the cost model alone ranks them.
    variant
        The draft's formula: "ours", "paper" or "released".
    compile_limit
        Seconds; what is predicted to build longer is not drafted, but for what takes at most
        `_NOT_SLOW` times as long as the quickest of the task.
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
        """The calibrated draft of N schedules; what builds too long is not valid."""
        return self.calibration.apply(self._in_time(self.raw(program)))

    def raw(self, program: SketchProgram) -> Draft:
        """The formula as it is; the cost model asks about some of the same programs."""
        if self.hardware is None:
            same = np.ones(program.rows)
            return Draft(same, program.supported, 0 * same, {"unknown": same})
        return draft_once(program, self.hardware, self.variant)

    def _in_time(self, found: Draft) -> Draft:
        seconds = found.compile_seconds
        quickest = float(np.min(seconds, initial=np.inf, where=found.valid))
        self._quickest = min(self._quickest, quickest)
        limit = max(self.compile_limit / self.slowness, _NOT_SLOW * self._quickest)
        good = found.valid & (seconds <= limit)
        return replace(found, valid=good, latency=np.where(good, found.latency, np.inf))

    def closed(self, search: TaskSearch, config: SearchConfig, funnel: Funnel) -> list[Choice]:
        """Drafts of the closed-form design spaces."""
        if not self.space.closed:
            return []
        found = explore(
            self.space,
            self.score,
            config,
            search.elites(),
            search.rng(Stream.DRAFT),
            search.keys,
            shares(self._tried, self._refused),
        )
        funnel.drafted += found.drafted
        funnel.invalid += found.invalid
        funnel.unsupported += found.unsupported
        funnel.duplicate += found.duplicate
        # a design space may turn out to have no closed form when unusual rows are asked for
        kept = [one for one in found.kept if self.space[one.sketch].closed]
        return self._settled(kept, search.keys)

    def _settled(self, kept: Sequence[Explored], seen: Set[bytes]) -> list[Choice]:
        """Drafts under the decisions that TVM would repair theirs to: one choice per candidate."""
        by_sketch: dict[int, list[Explored]] = {}
        for one in kept:
            by_sketch.setdefault(one.sketch, []).append(one)
        chosen: dict[bytes, Choice] = {}
        for index, members in by_sketch.items():
            sketch = self.space[index]
            rows = sketch.canonical(np.stack([one.row for one in members]))
            for one, row, key in zip(members, rows, sketch.key(rows), strict=True):
                if key not in seen and key not in chosen:
                    chosen[key] = Choice(
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
    ) -> list[Choice]:
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
        """`novelty.unexplained` of choices, (n, n)."""
        places = np.concatenate([places for places, _ in programs.parts])
        drafts = concatenated([self.raw(program) for _, program in programs.parts])
        known = concatenated(self._drafts) if self._drafts else None
        return unexplained(known, drafts.take(np.argsort(places)))

    def learn(self, program: SketchProgram, latencies: Sequence[float]) -> None:
        """Note N measured schedules and their latencies in seconds, NaN for failed trials.

        A failure corrects nothing, but schedules like it are no longer new.
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
