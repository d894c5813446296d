"""One row per workload, seed and tuner: what the lines of a race say, and how it compares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from benchmarks.race import curves
from benchmarks.race.curves import Crossing, Curve
from benchmarks.race.graphs import in_graph
from benchmarks.race.kinds import Best, Block, End, Trial
from benchmarks.race.lines import Run
from benchmarks.race.tuners import STOCK
from benchmarks.race.words import processor_text

UNTUNED, TORCH = "untuned", "torch"
_MESSAGE = 72
_PARTICULAR = re.compile(r"\S*/\S+|0x[0-9a-fA-F]+|\d+(\.\d+)?")
_Line = TypeVar("_Line", Trial, Best)

Latency = Callable[[Sequence[float]], float]
"""Seconds of a schedule from its repeats."""


class Case(NamedTuple):
    """What shares a latency to reach: seeds of another processor have one of their own."""

    workload: str
    target: str
    trials: int
    processor: str


@dataclass(frozen=True)
class Row:
    """One tuner in one block.

    Attributes
    ----------
    seed, tuner
        With the case, the name of the row.
    target
        Latency to reach, seconds: 1.03 x the median over seeds of what stock ended with.
    curve, crossing
        Its incumbents, and when they reached the target.
    first_round
        Latency after the trials of its first round, seconds.
    before
        Latency until a first incumbent is there, the same for all tuners of the block.
    failures
        Trials without a latency by what went wrong (`kind_of`).
    end
        Of its call, as written.
    torch
        Latency of the same operator in torch, seconds; None if not measured.
    again_x
        Re-measured latency of the final schedule over that of its trial; None of a network, whose
        trials are of tasks.
    graphed
        Latency of the final schedule in a CUDA graph, as torch's is; None if not measured.
    """

    case: Case
    seed: int
    tuner: str
    target: float
    curve: Curve
    crossing: Crossing
    first_round: float
    before: float
    failures: Mapping[str, int]
    end: End
    torch: float | None
    again_x: float | None = None
    graphed: float | None = None

    @property
    def pair(self) -> tuple[Case, int]:
        """Workload and seed: what is drawn again in a bootstrap."""
        return (self.case, self.seed)


def rows_of(
    run: Run,
    at: int | None = None,
    only: Collection[str] | None = None,
    reference: str = STOCK,
    paired: bool = False,
    latency: Latency = curves.median_again,
) -> list[Row]:
    """Rows sorted by workload and seed, tuners in the order of their block.

    Parameters
    ----------
    at
        Read the runs as if they had ended after so many trials; blocks with fewer are left out.
        Right only for tuners that do not know their budget.
    only
        The tuners that are read; None: all.
    reference
        Whose finals give the targets. Blocks without it have no target and are left out.
    paired
        Whether each block's target is of its own final, not of the median over seeds.
    latency
        What the repeats of a schedule measured again say.
    """
    index = _Index(run, at, latency)
    kept = [b for b in run.blocks if reference in b.tuners and (at is None or b.trials >= at)]
    kept.sort(key=lambda block: (*index.case(block), block.seed))
    finals: dict[tuple[Case, str], list[float]] = {}

    def shares(block: Block) -> tuple[Case, str]:
        return index.case(block), block.name if paired else ""

    for block in kept:
        final = index.curves[block.name, reference].final
        finals.setdefault(shares(block), []).append(final)
    targets = {key: curves.target_of(values) for key, values in finals.items()}
    return [
        index.row(block, tuner, targets[shares(block)])
        for block in kept
        for tuner in block.tuners
        if only is None or tuner in only
    ]


class _Index:
    """Lines by block and tuner, read up to a number of trials."""

    def __init__(self, run: Run, at: int | None, latency: Latency) -> None:
        self._at = at
        self._latency = latency
        self._trials = _grouped(run.trials)
        self._bests = _grouped(run.bests)
        self._ends = {(end.block, end.tuner): end for end in run.ends}
        self._lines = {(w.block, w.tuner): latency(w.again) for w in run.lines}
        self.curves = {key: self._curve(key) for key in self._ends}

    def _curve(self, key: tuple[str, str]) -> Curve:
        trials, bests = self._trials.get(key, []), self._bests.get(key, [])
        whole = curves.curve(
            [trial.number for trial in trials],
            [trial.seconds for trial in trials],
            [best.number for best in bests],
            [self._latency(best.again) for best in bests],
            self._ends[key].seconds,
        )
        return whole if self._at is None else curves.prefix(whole, self._at)

    def case(self, block: Block) -> Case:
        return case_of(block, self._at)

    def row(self, block: Block, tuner: str, target: float) -> Row:
        key = (block.name, tuner)
        read = [t for t in self._trials.get(key, []) if self._at is None or t.number < self._at]
        failed = Counter(kind_of(t.error or "failed") for t in read if t.latency is None)
        batch = sum(trial.round == 0 for trial in read)
        return Row(
            case=self.case(block),
            seed=block.seed,
            tuner=tuner,
            target=target,
            curve=self.curves[key],
            crossing=curves.crossing(self.curves[key], target),
            first_round=curves.value_after_trials(self.curves[key], batch),
            before=self._before(block),
            failures=dict(sorted(failed.items())),
            end=self._ends[key],
            torch=self._line(block, TORCH),
            again_x=_again_x(self.curves[key], read),
            graphed=self._line(block, in_graph(tuner)),
        )

    def _line(self, block: Block, name: str) -> float | None:
        """Latency of a line; None where it was not measured."""
        found = self._lines.get((block.name, name), np.nan)
        return float(found) if np.isfinite(found) else None

    def _before(self, block: Block) -> float:
        """The untuned latency; where it was not measured, the worst first incumbent."""
        untuned = self._line(block, UNTUNED)
        if untuned is not None:
            return untuned
        found = [self.curves[block.name, tuner].values for tuner in block.tuners]
        return max((float(values[0]) for values in found if len(values)), default=np.nan)


def _again_x(curve: Curve, trials: Iterable[Trial]) -> float | None:
    by_number = {trial.number: trial for trial in trials if trial.task is None}
    final = by_number.get(int(curve.counts[-1]) - 1) if len(curve.counts) else None
    return None if final is None or final.latency is None else curve.final / final.latency


def case_of(block: Block, at: int | None = None) -> Case:
    """What a block shares with others, read up to a number of trials."""
    return Case(block.workload, block.target, at or block.trials, processor_text(block.machine))


def kind_of(message: str) -> str:
    """A message without what differs from trial to trial: paths, addresses, numbers; cut."""
    plain = _PARTICULAR.sub("..", " ".join(message.split()))
    return plain if len(plain) <= _MESSAGE else plain[: _MESSAGE - 2].rstrip() + ".."


def _grouped(lines: Iterable[_Line]) -> dict[tuple[str, str], list[_Line]]:
    found: dict[tuple[str, str], list[_Line]] = {}
    for line in lines:
        found.setdefault((line.block, line.tuner), []).append(line)
    return found
