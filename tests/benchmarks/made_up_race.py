"""Made-up lines of a race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.race.kinds import AnyLine, Best, Block, End, Line, Trial, block_name
from benchmarks.race.lines import append
from benchmarks.race.turns import Clock

MACHINE = {"cpu": "made up", "cores": 2, "system": "Linux", "python": "3", "packages": {"a": "1"}}
TARGET = "llvm"

Step = tuple[float, float]
"""A trial: own seconds and latency; each better one is an incumbent that measures as before."""


def tuned(
    block: str,
    tuner: str,
    steps: Sequence[Step],
    again: Mapping[int, Sequence[float]] | None = None,
    **end: Any,
) -> list[AnyLine]:
    """Lines of one tuner in a block; `again` where an incumbent measures otherwise afterwards."""
    lines: list[AnyLine] = []
    best = float("inf")
    for number, (seconds, latency) in enumerate(steps):
        failed = latency == float("inf")
        value = None if failed else latency
        error = "build" if failed else None
        lines.append(Trial(block, tuner, number, number // 2, seconds, value, error))
        if latency < best:
            best = latency
            times = tuple((again or {}).get(number, (latency,) * 10))
            lines.append(Best(block, tuner, number, times))
    first = next((s for s, latency in steps if latency != float("inf")), None)
    last = steps[-1][0] if steps else 0.0
    fields: dict[str, Any] = {
        "seconds": last,
        "first": first,
        "peak_mb": 100.0,
        "correct": True,
        "rounds": len(steps) // 2,
        "why": None,
    }
    return [*lines, End(block, tuner, **(fields | end))]


def block(
    workload: str,
    seed: int,
    steps: Mapping[str, Sequence[Step]],
    lines: Mapping[str, float] | None = None,
    **fields: Any,
) -> list[AnyLine]:
    """A whole block; `lines` are the latencies of what needs no trials."""
    name = block_name(workload, TARGET, seed)
    about: dict[str, Any] = {
        "trials": max(map(len, steps.values())),
        "tuners": tuple(steps),
        "machine": MACHINE,
        "peak": {"gflops": 100.0, "gbytes": 20.0},
        "flop": 1e8,
        "at": "2026-11-22T06:00:00Z",
    }
    all_lines: list[AnyLine] = [Block(name, workload, TARGET, seed, **(about | fields))]
    for tuner, trials in steps.items():
        all_lines += tuned(name, tuner, trials)
    for tuner, latency in (lines or {}).items():
        all_lines.append(Line(name, tuner, (latency,) * 10, None))
    return all_lines


def written(directory: Path, *blocks: Sequence[AnyLine]) -> Path:
    for lines in blocks:
        append(directory, lines)
    return directory


class Told:
    """Stands for a `turns.Line`: keeps what is said, counts how often the turn was given back."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.said: list[dict[str, Any]] = []
        self.waits = 0

    def say(self, kind: str, **facts: Any) -> None:
        """Keep one message."""
        self.said.append({"k": kind, **facts})

    def wait(self) -> None:
        """The next turn is there at once."""
        self.waits += 1
        self.clock.start()
