"""Analytical latency on a CPU: cycles of the register block, cache traffic, load balance.

For each statement, in seconds on one core (the table `CPU_TERMS`):

compute   multiply-adds of the block over the FMA ports
access    loads and stores of the block over their ports, spilled registers included
latency   waiting for the accumulator of the previous reduction step
loop      branches and addresses of the remaining loops
l2, l3,   traffic out of the second-level cache and so on (`traffic`): bytes of the regions that do
memory    not fit into the nearer cache, times the trips of their loop level

The first three overlap: the largest counts in full, the others in part. This time and the
traffic overlap in the same way. Loads and stores of spilled registers (`spills`) are not hidden.
The total is divided by the parallel speedup; forks are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pruner_ms.draft.block import block_of
from pruner_ms.draft.columns import (
    Column,
    Num,
    ceiling,
    column,
    flag,
    overlapped,
    select,
    smaller,
    total,
    truth,
)
from pruner_ms.draft.cpu.compile_cost import statement_seconds
from pruner_ms.draft.cpu.core import Cycles, block_cycles
from pruner_ms.draft.cpu.traffic import traffic_seconds
from pruner_ms.draft.distinct import FigureCache, kinds_of
from pruner_ms.draft.nest import Nest, nest_of
from pruner_ms.draft.terms import Term
from pruner_ms.dtypes import bytes_of
from pruner_ms.hardware import HardwareSpec
from pruner_ms.symbolic.program import LoopKind, Role, SketchProgram, Statement
from pruner_ms.symbolic.rows import Mask, both, possible, without
from pruner_ms.types import FloatArray

OVERLAP = 0.5
"""Share of every time but the largest that is not hidden behind the largest."""

LOOP_CYCLES = 2.0
"""Cycles of a loop's branch and address arithmetic per pass."""


class Work:
    """A statement on a CPU, and the quantities that its terms share.

    Attributes
    ----------
    cycles
        Of one run of its block.
    count
        How often the block runs.
    seconds_per_run
        Seconds that one cycle of the block costs in all of its runs.
    traffic
        Seconds of traffic per level.
    tasks
        Parallel tasks.
    ideal, real
        Share of the work that each core gets under perfect balance, and that the busiest gets.
    one_core_seconds
        Seconds of all of it on one core.
    building
        Seconds of compiling it.
    forking
        Seconds of starting and joining its parallel loops.
    """

    def __init__(self, nest: Nest, hardware: HardwareSpec) -> None:
        self.nest, self.hardware = nest, hardware
        core = hardware.core
        block = block_of(nest, core, bytes_of(nest.statement.dtype))
        self.cycles: Cycles = block_cycles(nest, block, core)
        per_run = self.cycles
        self.count, self.building = block.count, statement_seconds(nest, block)
        self.seconds_per_run = block.count * (1.0 / hardware.clock)
        self.tasks = nest.of_kind(LoopKind.PARALLEL)
        self.traffic = traffic_seconds(nest, hardware, self.tasks)
        self.ideal = 1.0 / smaller(self.tasks, float(hardware.units))
        self.real = busiest(self.tasks, hardware.units)
        cycles = overlapped([per_run.compute, per_run.access, per_run.latency], OVERLAP)
        time_ = overlapped([cycles * self.seconds_per_run, *self.traffic.values()], OVERLAP)
        self.one_core_seconds = time_ + (per_run.spill + LOOP_CYCLES) * self.seconds_per_run
        forks = select(truth(self.tasks > 1), _forks(nest), 0.0)
        self.forking = forks * core.fork_seconds

    def share(self, seconds: Num) -> Num:
        """What seconds on one core add to the latency if all cores have equal load."""
        return seconds * self.ideal


def _compute(work: Work) -> Num:
    return work.share(work.cycles.compute * work.seconds_per_run)


def _access(work: Work) -> Num:
    cycles = work.cycles
    return work.share((cycles.access + cycles.spill) * work.seconds_per_run)


def _latency(work: Work) -> Num:
    return work.share(work.cycles.latency * work.seconds_per_run)


def _loop(work: Work) -> Num:
    return work.share(LOOP_CYCLES * work.seconds_per_run)


def _l2(work: Work) -> Num:
    return work.share(work.traffic["l2"])


def _l3(work: Work) -> Num:
    return work.share(work.traffic["l3"])


def _memory(work: Work) -> Num:
    return work.share(work.traffic["memory"])


def _fork(work: Work) -> Num:
    return work.forking


def _idle(work: Work) -> Num:
    return work.one_core_seconds * (work.real - work.ideal)


CPU_TERMS: tuple[Term[Work], ...] = (
    Term("compute", "multiply-adds over the FMA ports", _compute),
    Term("access", "loads and stores over their ports, spills included", _access),
    Term("latency", "waiting for the sum of the step before", _latency),
    Term("loop", "branches and addresses of the loops that are left", _loop),
    Term("l2", "traffic out of the L2 cache", _l2),
    Term("l3", "traffic out of the L3 cache", _l3),
    Term("memory", "traffic out of memory", _memory),
    Term("fork", "starting and joining parallel loops", _fork),
    Term("idle", "cores that wait for the busiest", _idle),
)
"""The terms of a latency; they overlap, so they sum to more."""


FIGURES = (*(term.name for term in CPU_TERMS), "total", "building")
"""What is computed of a statement: its terms, its latency, the seconds of compiling it."""

_figure_cache = FigureCache()


def forget_figures() -> None:
    """Clear the cache of figures, for timing."""
    _figure_cache.clear()


def cpu_terms(program: SketchProgram, hardware: HardwareSpec) -> dict[str, FloatArray]:
    """Seconds of every term, summed over the statements, (N,) each.

    "total" is the latency, "building" the seconds of compiling.
    """
    figures = [_of_statement(statement, program, hardware) for statement in program.statements]
    columns = zip(FIGURES, zip(*figures, strict=True), strict=True)
    return {name: column(total(parts), program.rows) for name, parts in columns}


def _of_statement(
    statement: Statement, program: SketchProgram, hardware: HardwareSpec
) -> Sequence[Num]:
    """The figures of a statement, computed once for equal rows."""
    kinds = kinds_of(statement, program)
    if kinds is None:
        return _figures(statement, program, hardware)

    def computed() -> Column:
        alone = kinds.representatives()
        figures = _figures(alone.statement, alone.program, hardware)
        rows = np.empty((len(figures), alone.program.rows), np.float32)
        for row, figure in zip(rows, figures, strict=True):
            row[:] = figure
        return rows

    if kinds.structure is None:
        return [kinds.spread(row) for row in computed()]
    key = (kinds.structure, hardware)
    return [kinds.spread(row) for row in _figure_cache.figures(key, kinds.marks, computed)]


def _figures(statement: Statement, program: SketchProgram, hardware: HardwareSpec) -> Sequence[Num]:
    work = Work(nest_of(statement, program), hardware)
    figures = [term.compute(work) for term in CPU_TERMS]
    figures += [work.one_core_seconds * work.real + work.forking, work.building]
    alive = flag(statement.alive)
    return [select(alive, figure, 0.0) for figure in figures]


def busiest(tasks: Num, units: int) -> Num:
    """Share of the work that the busiest of several units gets when tasks are dealt out evenly."""
    return ceiling(tasks / units) / tasks


def _forks(nest: Nest) -> Num:
    """How often a parallel loop is entered; an initialisation shares its statement's."""
    if nest.statement.role is Role.INIT:
        return 0.0
    entries: Num = 1.0
    left: Mask = True
    for p in range(nest.depth):
        outermost = both(left, nest.is_kind(p, LoopKind.PARALLEL))
        if possible(outermost):
            entries = select(outermost, nest.above(p), entries)
            left = without(left, outermost)
            if not possible(left):
                break
    return entries
