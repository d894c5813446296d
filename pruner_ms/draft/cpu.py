"""The draft's own latency on a CPU: cycles of the register block, traffic per cache, balance.

For each statement, in seconds on one core:

compute   multiply-adds of the block over the FMA ports
access    loads and stores of the block over their ports, spilled accumulators included
latency   waiting for the accumulator of the previous reduction step
loop      branches and addresses of the loops that are left
l2, l3,   traffic out of the second-level cache and so on: at the outermost level whose regions do
memory    not fit into the level before, what that level touches, times the trips above

The first three overlap, so the largest counts whole and the others in part, and so with the
traffic. The sum is divided by what parallel execution gains; forks are added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pruner_ms.draft.block import Block, arithmetic, block_of
from pruner_ms.draft.nest import Nest, at_level, nest_of
from pruner_ms.draft.traffic import traffic_seconds
from pruner_ms.hardware import CpuCore, HardwareSpec
from pruner_ms.symbolic.program import ITEM_BYTES, LoopKind, Role, SketchProgram
from pruner_ms.types import BoolArray, FloatArray

OVERLAP = 0.5
"""Share of every time but the largest that is not hidden behind the largest."""

FORWARD_CYCLES = 14.0
"""Extra wait when an accumulator travels through memory instead of a register."""

RAGGED_LOAD = 0.3
"""Loads per element of a vector that is longer than a register and not a power of two: LLVM loads
and inserts the elements one by one (measured: 0.2 to 0.4 cycles an element against 0.07)."""

RAGGED_CYCLES = 1.5
"""Cycles an element when a ragged vector of sums goes through memory: what was stored in other
pieces than it is loaded in cannot be forwarded (measured: 1.2 to 2.2)."""

STORE_QUEUE = 96.0
"""Stores after which a value is in the cache and need not be forwarded."""

LOOP_CYCLES = 2.0
"""Cycles of a loop's branch and address arithmetic per pass."""

WINDOW = 48.0
"""Vector instructions that may be in flight at once, beyond the block that is waited for."""

TERMS = ("compute", "access", "latency", "loop", "l2", "l3", "memory", "fork", "idle")
"""Names of the terms; "idle" is what unequal shares of the cores cost."""


@dataclass(frozen=True)
class Cycles:
    """Cycles of one run of a block on one core, (N,) each."""

    compute: FloatArray
    access: FloatArray
    latency: FloatArray


def cpu_terms(program: SketchProgram, hardware: HardwareSpec) -> dict[str, FloatArray]:
    """Seconds of every term, summed over the statements, (N,) each.

    "total" is the latency; the named terms of a statement overlap, so they sum to more.
    """
    terms = {name: np.zeros(program.rows) for name in (*TERMS, "total", "instructions")}
    for statement in program.statements:
        nest = nest_of(statement, program)
        for name, value in _statement(nest, hardware).items():
            terms[name] += np.where(statement.alive, value, 0.0)
    return terms


def _statement(nest: Nest, hardware: HardwareSpec) -> dict[str, FloatArray]:
    core, clock = hardware.core, hardware.clock
    itemsize = ITEM_BYTES.get(nest.statement.dtype, 4)
    block = block_of(nest, core, itemsize)
    cycles = block_cycles(nest, block, core)
    seconds = {
        "compute": cycles.compute * block.count / clock,
        "access": cycles.access * block.count / clock,
        "latency": cycles.latency * block.count / clock,
        "loop": LOOP_CYCLES * block.count / clock,
    }
    tasks = nest.of_kind(LoopKind.PARALLEL)
    seconds |= traffic_seconds(nest, hardware, tasks)
    total = overlapped([seconds[n] for n in ("compute", "access", "latency")])
    total = overlapped([total, *(seconds[n] for n in ("l2", "l3", "memory"))]) + seconds["loop"]
    ideal, real = 1.0 / np.minimum(tasks, hardware.units), busiest(tasks, hardware.units)
    forks = np.where(tasks > 1, _forks(nest), 0.0) * core.fork_seconds
    out = {name: value * ideal for name, value in seconds.items()}
    out["idle"], out["fork"] = total * (real - ideal), forks
    out["total"] = total * real + forks
    out["instructions"] = block.written_out
    return out


def overlapped(times: list[FloatArray]) -> FloatArray:
    """The largest of several times that run side by side, and a share of the others."""
    stack = np.stack(times)
    longest: FloatArray = stack.max(axis=0)
    others: FloatArray = stack.sum(axis=0) - longest
    return longest + OVERLAP * others


def busiest(tasks: FloatArray, units: int) -> FloatArray:
    """Share of the work that the busiest of several units gets when tasks are dealt out evenly."""
    return np.ceil(tasks / units) / tasks


def _forks(nest: Nest) -> FloatArray:
    """How often a parallel loop is entered; an initialisation shares its statement's."""
    if nest.statement.role is Role.INIT:
        return np.zeros(nest.rows)
    parallel = nest.kinds == LoopKind.PARALLEL
    level = np.where(parallel.any(axis=0), parallel.argmax(axis=0), 0)
    return at_level(nest.trips, level)


def block_cycles(nest: Nest, block: Block, core: CpuCore) -> Cycles:
    """Cycles that one run of the block takes on each of the core's resources."""
    instructions = arithmetic(nest.statement) * block.steps * block.pieces
    sums = _accumulators(nest, block)
    kept = sums <= core.vector_registers - 3
    held = _held_over(nest, block, kept)
    loads, stores, stall = np.zeros(nest.rows), np.zeros(nest.rows), np.zeros(nest.rows)
    uses = block.steps * block.pieces
    between = _blocks_between(nest, block)
    for touch, vectors in zip(nest.touches, block.vectors, strict=True):
        if touch.read and touch.write:
            # sums that do not fit are loaded and stored at every use
            each = np.where(kept, vectors / held, np.maximum(vectors, uses))
            loads, stores = loads + each, stores + each
            apart = between * vectors
            waits = block.ragged & ~(held > 1) & (apart < STORE_QUEUE)
            stall += np.where(waits, vectors / block.pieces * block.vector * RAGGED_CYCLES, 0.0)
        elif touch.write:
            stores = stores + vectors
        else:
            loads = loads + vectors
    torn = np.where(block.ragged, RAGGED_LOAD * block.vector / block.pieces, 1.0)
    loads, stores = loads * torn, stores * torn
    access = np.maximum(loads / core.load_ports, stores / core.store_ports)
    issued = (instructions + loads + stores) / core.issue
    return Cycles(
        compute=instructions / core.fma_ports,
        access=np.maximum(access, issued) + stall,
        latency=_chain(nest, block, core, sums, held, between),
    )


def _accumulators(nest: Nest, block: Block) -> FloatArray:
    """Vector registers that the sums of one block fill; 0 without a reduction."""
    total = np.zeros(nest.rows)
    for touch, vectors in zip(nest.touches, block.vectors, strict=True):
        if touch.read and touch.write:
            total += vectors
    return total


def _held_over(nest: Nest, block: Block, kept: BoolArray) -> FloatArray:
    """Runs of the block over which its sums stay in registers, (N,).

    The extents of the reduction loops right above the block; LLVM moves loads and stores of the
    sums out of those when the sums fit.
    """
    runs = np.ones(nest.rows)
    going = kept.copy()
    for p in range(nest.depth - 1, -1, -1):
        above = p < block.level
        if nest.reduction[p]:
            runs = np.where(above & going, runs * nest.extents[p], runs)
        else:
            going = going & ~(above & (nest.extents[p] > 1))
    return runs


def _chain(
    nest: Nest,
    block: Block,
    core: CpuCore,
    sums: FloatArray,
    held: FloatArray,
    between: FloatArray,
) -> FloatArray:
    """Cycles per block that no port can hide: each sum waits for its previous addition."""
    if not nest.statement.reduction:
        return np.zeros(nest.rows)
    steps = np.maximum(block.steps * block.pieces / np.maximum(sums, 1.0), 1.0)
    wait = np.where(held > 1, core.fma_latency, core.fma_latency + FORWARD_CYCLES)
    apart = np.minimum(between, 1.0 + WINDOW / (block.steps * block.pieces))
    return (steps * core.fma_latency + np.where(held > 1, 0.0, wait - core.fma_latency)) / apart


def _blocks_between(nest: Nest, block: Block) -> FloatArray:
    """Blocks of other sums that run before a sum is needed again, (N,)."""
    between = np.ones(nest.rows)
    going = np.ones(nest.rows, np.bool_)
    for p in range(nest.depth - 1, -1, -1):
        above = (p < block.level) & (nest.extents[p] > 1)
        if nest.reduction[p]:
            going = going & ~above
        else:
            between = np.where(above & going, between * nest.extents[p], between)
    return between
