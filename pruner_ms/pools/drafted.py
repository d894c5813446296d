"""How many drafts one core scores in a second, end to end.

The clock starts after a warm-up: one sample of every design space is scored and forgotten. What
happens once in a process is not part of a rate: the first touch of a hundred megabytes, and tables
that are made when they are first needed.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.cpu import forget_figures
from pruner_ms.draft.score import Draft, draft, draft_rows
from pruner_ms.draft.seen import Seen
from pruner_ms.hardware import HardwareSpec
from pruner_ms.pools.spaces import Spaces
from pruner_ms.search.replay import SEED_RANGE, Replayer
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.program import CHUNK, SketchProgram
from pruner_ms.symbolic.space import Sketch
from pruner_ms.types import IntArray

# Memory of this process, as Linux counts it.


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> None:
    """Begin to count the peak anew, where the kernel allows it."""
    with suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")


def peak_bytes() -> int:
    """The most that was resident since `reset_peak` (since the start, where that did nothing)."""
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    if found:
        return int(found[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


USED_UP = 0.5
"""Share of new rows among those sampled below which a design space counts as used up: a search
that goes on there looks at what it has seen."""

BATCH = 4 * CHUNK
"""Rows of a turn: of those on a GPU a tenth is scored."""

ORACLE_SECONDS = 20.0
"""How long drafts of a task without closed form are counted; each is a replay."""


@dataclass(frozen=True)
class Drafted:
    """What was drafted.

    Attributes
    ----------
    count, valid
        Distinct drafts scored, and those of them that are valid.
    seconds, cpu_seconds
        Wall and processor time, without the warm-up.
    warm_up_seconds
        Wall time before the clock started.
    peak
        Bytes the process held at most meanwhile, warm-up included.
    by
        "closed form", or "oracle" (replay, then read).
    """

    count: int
    valid: int
    seconds: float
    cpu_seconds: float
    warm_up_seconds: float
    peak: int
    by: str


def count_drafts(
    spaces: Spaces, hardware: HardwareSpec, wanted: int, seed: int, say: Callable[[str], None]
) -> Drafted:
    """Score `wanted` distinct drafts of a task, or as many as its design spaces have.

    Parameters
    ----------
    say
        Told in one sentence if there are fewer, or none is closed-form.
    """
    rng = np.random.default_rng(seed)
    limit = SearchConfig().build_limit(hardware.kind)
    closed = spaces.space.closed
    reset_peak()
    begin = time.perf_counter()
    _warm_up(closed, hardware, limit, seed + 1)
    start, cpu = time.perf_counter(), time.process_time()
    if closed:
        count, valid = closed_drafts(closed, hardware, wanted, limit, rng)
    else:
        say("no design space is closed-form: the rate is that of replaying and reading schedules")
        count, valid = _oracle_drafts(spaces, hardware, wanted, rng)
    spent, used = time.perf_counter() - start, time.process_time() - cpu
    if count < wanted:
        say(f"{count} drafts instead of {wanted}: the design spaces or the time are used up")
    by = "closed form" if closed else "oracle"
    return Drafted(count, valid, spent, used, start - begin, peak_bytes(), by)


def _warm_up(
    sketches: Sequence[Sketch], hardware: HardwareSpec, compile_limit: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for sketch in sketches:
        _scored(sketch, sketch.sample(CHUNK, rng), hardware, compile_limit)
    forget_figures()


@dataclass
class _Turn:
    """A design space that drafts are taken from: rows seen, and new rows that wait."""

    sketch: Sketch
    seen: Seen
    waiting: list[IntArray]
    used_up: bool = False

    def take(self, rng: np.random.Generator, most: int) -> IntArray:
        """New rows, a batch if there are as many, at most `most`; int64 (n, columns)."""
        held = 0
        while held < min(BATCH, most) and not self.used_up:
            rows = self.sketch.sample(CHUNK, rng)
            new = rows[self.seen.fresh(rows)]
            self.used_up = len(new) < USED_UP * CHUNK
            self.waiting.append(new)
            held = sum(len(part) for part in self.waiting)
        joined = np.concatenate(self.waiting)
        size = min(BATCH, most)
        self.waiting = [joined[size:]]
        return joined[:size]


def closed_drafts(
    sketches: Sequence[Sketch],
    hardware: HardwareSpec,
    wanted: int,
    compile_limit: float,
    rng: np.random.Generator,
) -> tuple[int, int]:
    """Sample, de-duplicate, check, cost and score; how many drafts, and how many are valid.

    The design spaces take turns, a batch each, until `wanted` drafts or none of them gives new
    rows any more.
    """
    turns = [_Turn(s, Seen(), [np.zeros((0, s.columns), np.int64)]) for s in sketches]
    count = valid = 0
    while turns and count < wanted:
        for turn in list(turns):
            rows = turn.take(rng, wanted - count)
            if len(rows):
                done, good = _scored(turn.sketch, rows, hardware, compile_limit)
                count, valid = count + done, valid + good
            elif turn.used_up:
                turns.remove(turn)
    return count, valid


def _scored(
    sketch: Sketch, rows: IntArray, hardware: HardwareSpec, compile_limit: float
) -> tuple[int, int]:
    """Drafts and valid drafts; the arrays of a chunk are gone when the next one begins."""

    def score(program: SketchProgram) -> Draft:
        return draft(program, hardware, compile_limit=compile_limit)

    scored, closed = draft_rows(sketch, rows, score)
    return int(closed.sum()), int(scored.valid.sum())


def _oracle_drafts(
    spaces: Spaces, hardware: HardwareSpec, wanted: int, rng: np.random.Generator
) -> tuple[int, int]:
    context = spaces.context
    replayer = Replayer(context.mod, tuple(context.space_generator.postprocs or ()), threads=1)
    count = valid = 0
    end = time.perf_counter() + ORACLE_SECONDS
    while count < wanted and time.perf_counter() < end:
        sketch = spaces.space[int(rng.integers(len(spaces.space)))]
        (row,) = sketch.sample(1, rng)
        replayed = replayer.replay([(sketch.trace_of(row), int(rng.integers(1, SEED_RANGE)))])[0]
        count += 1
        if replayed is not None:
            program = read(replayed.schedule.mod, context.target)
            valid += int(draft(program, hardware).valid.sum())
    return count, valid
