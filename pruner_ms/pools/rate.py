"""`pool rate`: drafts per second on one core, and one later search round beside stock's.

Nothing is built or measured, so that a CUDA target needs no GPU. The 128 records of the round have
made-up latencies, the draft's times a random factor: what a round costs does not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pruner_ms.config import SearchConfig
from pruner_ms.draft.score import Draft, draft, draft_rows
from pruner_ms.draft.seen import Seen
from pruner_ms.errors import NoValidScheduleError, OptionError, TargetError
from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.pools.machine import this_machine
from pruner_ms.pools.memory import peak_bytes, reset_peak
from pruner_ms.pools.rounds import Round, our_round, records_for, stock_round
from pruner_ms.pools.spaces import Spaces, make_spaces
from pruner_ms.pools.workloads import DEFAULT, TENSORCORE, parse_workload
from pruner_ms.search.replay import SEED_RANGE, Replayer
from pruner_ms.symbolic.lowered import read
from pruner_ms.symbolic.program import CHUNK, SketchProgram
from pruner_ms.symbolic.space import Sketch
from pruner_ms.tvm_compat.paths import Target
from pruner_ms.tvm_compat.targets import attrs_of, parse_target
from pruner_ms.types import IntArray

_CUDA = {
    "kind": "cuda",
    "arch": "sm_80",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}
TARGETS: dict[str, tuple[dict[str, Any], str]] = {
    "llvm": ({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}, DEFAULT),
    "cuda": (_CUDA, "cuda"),
    "cuda-tensorcore": (_CUDA, TENSORCORE),
}
"""Targets by short name, the same on every machine, and the generator of their design spaces."""

USED_UP = 0.5
"""Share of new rows among those sampled below which a design space counts as used up: a search
that goes on there looks at what it has seen."""

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
        Wall and processor time.
    peak
        Bytes the process held at most meanwhile.
    by
        "closed form", or "oracle" (replay, then read).
    """

    count: int
    valid: int
    seconds: float
    cpu_seconds: float
    peak: int
    by: str


def rate(
    workload: str,
    target: str,
    drafts: int,
    *,
    rounds: bool = True,
    stock: bool = True,
    seed: int = 0,
    say: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Measure; see the issue's keys, which come first.

    Parameters
    ----------
    workload
        A name of `workloads.WORKLOADS` or an operator's specification.
    target
        A name of `TARGETS`, or what `parse_target` takes.
    drafts
        Distinct drafts to score.
    rounds, stock
        Whether to time our round, and stock's.
    say
        Told in one sentence what is not closed-form or could not be timed.

    Raises
    ------
    OptionError, TargetError
        A parameter cannot be used.
    """
    if drafts < 1:
        raise OptionError(f"--drafts {drafts} cannot be used; give at least 1")
    spaces = _spaces(workload, target, seed)
    hardware = hardware_for(attrs_of(spaces.context.target), use_host=False)
    drafted = _drafted(spaces, hardware, drafts, seed, say)
    ours, theirs = None, None
    if rounds:
        ours, theirs = _rounds(spaces, hardware, stock, seed, say)
    return {
        "workload": workload,
        "target": target,
        "drafts_per_second": round(drafted.count / drafted.seconds, 1),
        "round_seconds": None if ours is None else round(ours.seconds, 4),
        "stock_round_seconds": None if theirs is None else round(theirs.seconds, 4),
        "postproc_pass_share": None if ours is None else ours.pass_share,
        "peak_mb": round(drafted.peak / 1e6, 1),
        "machine": this_machine(),
        "drafts": drafted.count,
        "valid_drafts": drafted.valid,
        "drafted_by": drafted.by,
        "closed_spaces": f"{len(spaces.space.closed)} of {len(spaces.space)}",
        "drafts_per_cpu_second": round(drafted.count / drafted.cpu_seconds, 1),
        "round": None if ours is None else ours.facts(),
        "stock_round": None if theirs is None else theirs.facts(),
    }


def _spaces(workload: str, target: str, seed: int) -> Spaces:
    described = parse_workload(workload)
    if target in TARGETS:
        config, generator = TARGETS[target]
        found = Target(config)
    else:
        found, generator = parse_target(target), described.space
    try:
        return make_spaces(described.func(), found, generator, seed + 1)
    except (ValueError, RuntimeError, TypeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]
        raise TargetError(f"{workload} has no design space for {target}: {first}") from error


def _drafted(
    spaces: Spaces, hardware: HardwareSpec, wanted: int, seed: int, say: Callable[[str], None]
) -> Drafted:
    for sketch in spaces.space:
        if not sketch.closed:
            say(f"design space {sketch.index} has no closed form: {sketch.reason}")
    rng = np.random.default_rng(seed)
    limit = SearchConfig().compile_limit
    reset_peak()
    start, cpu = time.perf_counter(), time.process_time()
    if spaces.space.closed:
        by = "closed form"
        count, valid = closed_drafts(spaces.space.closed, hardware, wanted, limit, rng)
    else:
        by = "oracle"
        say("no design space is closed-form: the rate is that of replaying and reading schedules")
        count, valid = _oracle_drafts(spaces, hardware, wanted, rng)
    spent, used = time.perf_counter() - start, time.process_time() - cpu
    if count < wanted:
        say(f"{count} drafts instead of {wanted}: the design spaces or the time are used up")
    return Drafted(count, valid, spent, used, peak_bytes(), by)


BATCH = 4 * CHUNK
"""Rows of a turn: of those on a GPU a tenth is scored."""


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

    The design spaces take turns, a chunk each, until `wanted` drafts or none of them gives new
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


def _rounds(
    spaces: Spaces, hardware: HardwareSpec, stock: bool, seed: int, say: Callable[[str], None]
) -> tuple[Round | None, Round | None]:
    try:
        known = records_for(spaces, hardware, seed)
    except NoValidScheduleError as verdict:
        say(str(verdict))
        return None, None
    ours = our_round(spaces, hardware, known, seed, say)
    return ours, stock_round(spaces, known, seed) if stock else None
