"""Throughput of the draft: drafts per second on one core, end to end.

The clock starts after a warm-up that scores one sample of every design space: page faults of the
first hundred megabytes, and lazily built tables, are not part of the rate.
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
from pruner_ms.draft.cpu.latency import forget_figures
from pruner_ms.draft.explore.seen import Seen
from pruner_ms.draft.score import Draft, draft, draft_rows
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
    """Reset the peak, where the kernel allows it."""
    with suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")


def peak_bytes() -> int:
    """Peak resident memory since `reset_peak` (since the start, where that is not allowed)."""
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    peaks = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    if peaks:
        return int(peaks[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


USED_UP = 0.5
"""Share of new rows in a sample below which a design space counts as exhausted."""

BATCH = 4 * CHUNK
"""Rows of a turn; on a GPU a tenth of them is scored."""

ORACLE_SECONDS = 20.0
"""Time limit for drafts of a task without closed form; each is a replay."""


@dataclass(frozen=True)
class Drafted:
    """Result of a throughput measurement.

    Attributes
    ----------
    count, valid
        Distinct drafts scored, and valid ones.
    seconds, cpu_seconds
        Wall and processor time, without the warm-up.
    warm_up_seconds
        Wall time before the clock started.
    peak
        Peak resident bytes, warm-up included.
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
        Called with a sentence if there are fewer, or none is closed-form.
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
    """A design space to draw from: rows seen, and new rows not yet scored."""

    sketch: Sketch
    seen: Seen
    waiting: list[IntArray]
    used_up: bool = False

    def take(self, rng: np.random.Generator, most: int) -> IntArray:
        """New rows, a batch if there are as many, at most `most`; int64 (n, columns)."""
        count = 0
        while count < min(BATCH, most) and not self.used_up:
            rows = self.sketch.sample(CHUNK, rng)
            new = rows[self.seen.fresh(rows)]
            self.used_up = len(new) < USED_UP * CHUNK
            self.waiting.append(new)
            count = sum(len(part) for part in self.waiting)
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
    """Sample, deduplicate, screen, interpret and score; numbers of drafts and of valid ones.

    The design spaces take turns, a batch each, until there are `wanted` drafts or all spaces are
    exhausted.
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
    """Numbers of drafts and of valid ones; the arrays of a chunk are freed before the next one."""

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
