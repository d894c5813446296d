"""What a tuner says while it races: the lines of `benchmarks.race.turns`.

This module and `turns` are plain Python: they run beside any TVM.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.race.turns import Clock, Line

_MESSAGE = 72
_PARTICULAR = re.compile(r"\S*/\S+|0x[0-9a-fA-F]+|\d+(\.\d+)?")

Export = Callable[[Path], list[tuple[list[int], str]]]
"""Writes a schedule to a file, and says the shapes and types of its arguments where the race cannot
read them there."""


@dataclass(frozen=True)
class Outcome:
    """One measured candidate.

    Attributes
    ----------
    latency
        Mean seconds of one run; None if it failed.
    why
        A short word for the failure; None if there was none.
    export
        How to keep it.
    """

    latency: float | None
    why: str | None
    export: Export


class Report:
    """Says every result, keeps every new best as a file, gives the turn back after each round.

    Keeping is the race's business: the clock stands still meanwhile.

    Parameters
    ----------
    line
        To the race.
    folder
        Where files go.
    batch
        Trials of a round.
    suffix
        Of the files: a shared library, or a module as TVM's JSON.

    Attributes
    ----------
    imports
        As in `kinds.End`.
    """

    def __init__(self, line: Line, folder: Path, batch: int, suffix: str = ".so") -> None:
        self.line, self.folder, self.batch, self.suffix = line, folder, batch, suffix
        self.imports: float | None = None
        self.trials = self.rounds = self._in_round = 0
        self._bests: dict[str | None, float] = {}
        self.first: float | None = None

    def results(
        self, outcomes: Sequence[Outcome], whole_round: bool = False, task: str | None = None
    ) -> None:
        """Note candidates that were measured together.

        Parameters
        ----------
        outcomes
            In the order of their results.
        whole_round
            Whether they are a whole round, however few; otherwise rounds are counted.
        task
            Of a network, the task whose candidates they are; each has a best of its own.
        """
        if not outcomes:
            return
        clock = self.line.clock
        now = round(clock.seconds(), 3)
        clock.stop()
        for outcome in outcomes:
            facts: dict[str, Any] = {"i": self.trials, "r": self.rounds, "s": now}
            if task is not None:
                facts["x"] = task
            self.line.say("trial", **facts, l=outcome.latency, e=outcome.why)
            if outcome.latency is not None:
                self.first = now if self.first is None else self.first
                if outcome.latency < self._bests.get(task, float("inf")):
                    self._bests[task] = outcome.latency
                    self.keep(outcome.export)
            self.trials += 1
        self._in_round += len(outcomes)
        if whole_round or self._in_round >= self.batch:
            self.rounds, self._in_round = self.rounds + 1, 0
            self.pause()
        else:
            clock.start()

    def pause(self) -> None:
        """Give the turn back, and go on with the next one."""
        try:
            self.line.wait()
        except SystemExit:  # TVM calls this from C++, where it would be passed over
            os._exit(1)

    def keep(self, export: Export) -> None:
        """Keep the new best as a file, and say so."""
        name = f"best-{self.trials}{self.suffix}"
        try:
            arguments = export(self.folder / name)
        except Exception as error:  # of any kind: the search goes on, the race is told
            self.line.say("best", i=self.trials, library=None, args=[], why=last_words(error))
            return
        self.line.say("best", i=self.trials, library=name, args=arguments)

    def end(self, why: str | None) -> None:
        """The last words."""
        self.line.say(
            "end",
            s=round(self.line.clock.seconds(), 3),
            first=self.first,
            rounds=self.rounds + bool(self._in_round),
            peak_mb=_peak_megabytes(),
            why=why,
            imports=self.imports,
        )


def last_words(error: object) -> str:
    """What went wrong, in one short line."""
    name = type(error).__name__ if isinstance(error, BaseException) else "failed"
    return f"{name}: {(str(error).strip().splitlines() or [''])[-1][:200]}"


def kind_of(message: str) -> str:
    """A message without what differs from trial to trial: paths, addresses, numbers; cut."""
    plain = _PARTICULAR.sub("..", " ".join(message.split()))
    return plain if len(plain) <= _MESSAGE else plain[: _MESSAGE - 2].rstrip() + ".."


def run(job: dict[str, Any], tune: Callable[[dict[str, Any], Report], None]) -> int:
    """Wait for the first turn, tune, say how it ended.

    Parameters
    ----------
    job
        As in `benchmarks.race.old.entrants.job_of`.
    tune
        Does it, and tells the report of every result.
    """
    line = Line.standard(Clock())
    report, why = Report(line, Path(job["folder"]), job["batch"]), None
    line.wait()
    try:
        tune(job, report)
    except Exception as error:  # whatever ends a tuner is its result
        why = last_words(error)
    report.end(why)
    return 0


def _peak_megabytes() -> int:
    """Of this process and, each alone, of its children: the largest."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) // 1024
