"""Replays of an operator's design spaces, and what the oracle says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pruner_ms.symbolic.oracle.compare import differences
from pruner_ms.symbolic.oracle.lowered import read, read_gpu
from pruner_ms.symbolic.program import GpuFacts, SketchProgram
from pruner_ms.symbolic.space import DecisionSpace, Sketch, decision_space
from pruner_ms.types import BoolArray, IntArray
from tests.support.operators import tuning_context

VERDICT = "VerifyGPUCode"
"""The postprocessor after which threads and memory are read."""

POOL = 16
"""Rows looked at for each one wanted when valid rows are searched."""


@dataclass(frozen=True)
class Reading:
    """What one replayed schedule is.

    Attributes
    ----------
    row
        Its decisions as TVM repaired them.
    program
        What the oracle reads, also of a schedule that VerifyGPUCode rejects; None where another
        postprocessor fails.
    gpu
        The facts where VerifyGPUCode stands in the list of postprocessors; None before that.
    accepted
        Whether every postprocessor accepted it.
    verdict
        VerifyGPUCode's own answer; True where it is not in the list.
    """

    row: IntArray | None
    program: SketchProgram | None
    gpu: GpuFacts | None
    accepted: bool
    verdict: bool = True


@dataclass(frozen=True)
class Task:
    """A workload's design spaces, with what is needed to replay them."""

    target: Any
    postprocs: list[Any]
    space: DecisionSpace

    def read(self, sketch: Sketch, row: Any, unrolled: bool = False) -> Reading:
        """Replay a row, apply the postprocessors, and read the schedule.

        Parameters
        ----------
        unrolled
            See `lowered.read`.
        """
        schedule = sketch.replay(row)
        repaired = sketch.row_of(schedule.trace)
        schedule.enter_postproc()
        gpu, verdict = None, True
        for postproc in self.postprocs:
            if VERDICT in type(postproc).__name__:
                gpu = read_gpu(schedule.mod, self.target)
                verdict = bool(postproc.apply(schedule))
            elif not postproc.apply(schedule):
                return Reading(repaired, None, gpu, False, verdict)
        program = read(schedule.mod, self.target, unrolled, gpu is None)
        return Reading(repaired, replace(program, gpu=gpu), gpu, verdict, verdict)

    def replayed(self, sketch: Sketch, row: Any) -> tuple[Any, SketchProgram | None]:
        """The repaired row, and what the oracle reads (None if a postprocessor rejects it)."""
        reading = self.read(sketch, row)
        return reading.row, reading.program if reading.accepted else None


def make_task(operator: str, space: str = "llvm") -> Task:
    """The design spaces of an operator of `operators.OPERATORS`, as one of `TARGETS` makes them."""
    return task_of(*tuning_context(operator, space))


def task_of(context: Any, spaces: Sequence[Any]) -> Task:
    """Design spaces with their context."""
    return Task(
        context.target,
        list(context.space_generator.postprocs),
        decision_space(spaces, context.mod, context.target),
    )


def disagreements(program: SketchProgram, i: int, row: IntArray, reading: Reading) -> Iterator[str]:
    """Everything in which row `i` of a closed form differs from what TVM makes of that row."""
    if reading.row is None or reading.row.tolist() != row.tolist():
        yield f"the row became {None if reading.row is None else reading.row.tolist()}"
        return
    if reading.gpu is not None and bool(reading.gpu.valid[0]) != reading.verdict:
        yield f"the oracle itself: {bool(reading.gpu.valid[0])}, VerifyGPUCode {reading.verdict}"
    if reading.program is not None:
        yield from differences(program, i, reading.program)
    elif program.gpu is None or (not reading.verdict and bool(program.gpu.valid[i])):
        yield "a postprocessor rejects it"


def draw(sketch: Sketch, count: int, rng: np.random.Generator) -> IntArray:
    """Rows drawn anew, int64 (count, columns).

    As TVM draws them; on a GPU, where few of those are valid, every second one from those that the
    closed form calls valid, as far as a pool of `POOL` times as many has them.
    """
    rows = sketch.sample(count, rng)
    if not sketch.closed or sketch.program(rows).gpu is None:
        return rows
    pool = sketch.sample(count * POOL, rng)
    program = sketch.program(pool)
    if program.gpu is None:
        return rows
    good: BoolArray = program.gpu.valid & program.supported
    chosen = pool[good][: count // 2]
    return np.concatenate([chosen, rows[: count - len(chosen)]])
