"""The draft's own latency on a GPU: a first model of occupancy, traffic, coalescing and waves.

Terms, in seconds of the whole kernel, summed over its statements:

compute   operations over the peak of their type, at the share of lanes and issue slots in use
shared    bytes through shared memory; threads of a warp that read one word share the access
l2        bytes that the blocks draw, in whole transactions, over the bandwidth of the L2 cache
memory    bytes that come from memory: what does not stay in the L2 cache
wait      one memory latency per staging step, shared by the warps that are resident
launch    start of the kernel
idle      what SMs without a block in the last wave would have done of compute and shared

Compute, shared, l2 and memory overlap; the wait is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pruner_ms.draft.block import unrolled_loops
from pruner_ms.draft.nest import Nest, Touch, at_level, nest_of
from pruner_ms.draft.penalties import quantised
from pruner_ms.draft.symbols import register_tile
from pruner_ms.hardware import GpuSm, HardwareSpec
from pruner_ms.symbolic.program import GpuFacts, LoopKind, Role, SketchProgram
from pruner_ms.types import BoolArray, FloatArray, IntArray

OVERLAP = 0.25
"""Share of every time but the largest that is not hidden behind the largest."""

BASE_REGISTERS = 24
"""Registers of a thread for addresses and loop counters."""

FULL_RATE_WARPS = 3.0
"""Resident warps per scheduler from which on latency is hidden, at four independent sums each."""

SPECIAL_COST: Mapping[str, float] = {"add": 1, "mul": 1, "cmp": 1, "int": 1, "div": 8, "special": 4}
"""Operations of full rate that one operation costs: special functions run at a quarter."""

TENSOR_SCOPES = ("wmma.", "m16n8k8.", "m16n8k16.")
"""Buffers in these scopes are fragments of a tensor core."""

TERMS = ("compute", "shared", "l2", "memory", "wait", "launch", "idle")


@dataclass(frozen=True)
class Occupancy:
    """What is resident on one SM, float64 (N,) each.

    Attributes
    ----------
    blocks
        Resident blocks; 0 where not one fits.
    warps
        Resident warps.
    registers
        Registers of a thread, estimated.
    """

    blocks: FloatArray
    warps: FloatArray
    registers: FloatArray


def gpu_terms(program: SketchProgram, hardware: HardwareSpec) -> dict[str, FloatArray]:
    """Seconds of every term and their "total", (N,) each; `program.gpu` must be there.

    "fits" is how many blocks an SM can hold, 0 where the schedule cannot run.
    """
    facts = program.gpu
    if facts is None:
        raise ValueError("a program without GpuFacts has no latency on a GPU")
    terms = {name: np.zeros(program.rows) for name in (*TERMS, "total", "instructions")}
    nests = [nest_of(s, program) for s in program.statements]
    possible = occupancy(facts, _registers(nests, facts), hardware.sm)
    resident = in_use(possible, facts, hardware.units)
    for nest in nests:
        for name, value in _statement(nest, facts, resident, hardware).items():
            terms[name] += np.where(nest.statement.alive, value, 0.0)
    share = quantised(facts.blocks.astype(np.float64), hardware.units)
    device = [terms["l2"], terms["memory"]]
    full = overlapped([terms["compute"], terms["shared"], *device])
    # SMs without a block leave their arithmetic and shared memory unused, not the device's memory
    dealt = overlapped([terms["compute"] / share, terms["shared"] / share, *device])
    terms["idle"] = dealt - full
    terms["launch"] += hardware.sm.launch_seconds
    terms["total"] = dealt + terms["wait"] + terms["launch"]
    terms["fits"] = possible.blocks
    return terms


def occupancy(facts: GpuFacts, registers: FloatArray, sm: GpuSm) -> Occupancy:
    """Blocks and warps that fit on an SM, by threads, registers, shared memory and block slots."""
    warps = np.ceil(facts.threads / sm.warp)
    held = np.minimum(registers, sm.max_registers)
    limits = np.stack(
        [
            sm.max_threads / np.maximum(warps * sm.warp, 1),
            sm.registers / np.maximum(warps * sm.warp * held, 1),
            sm.shared / np.maximum(facts.shared, 1),
            np.full(len(warps), float(sm.max_blocks)),
        ]
    )
    blocks = np.floor(limits.min(axis=0))
    return Occupancy(blocks, blocks * warps, registers)


def in_use(possible: Occupancy, facts: GpuFacts, units: int) -> Occupancy:
    """What is resident when the grid is dealt out: a small grid leaves room on every SM."""
    blocks = np.minimum(possible.blocks, np.ceil(facts.blocks / units))
    warps = possible.warps / np.maximum(possible.blocks, 1.0) * blocks
    return Occupancy(blocks, warps, possible.registers)


def overlapped(times: list[FloatArray]) -> FloatArray:
    """The largest of several times that run side by side, and a share of the others."""
    stack = np.stack(times)
    longest: FloatArray = stack.max(axis=0)
    others: FloatArray = stack.sum(axis=0) - longest
    return longest + OVERLAP * others


def _registers(nests: list[Nest], facts: GpuFacts) -> FloatArray:
    """Registers of a thread: what is kept in local memory, operands of a step, addresses."""
    operands = np.zeros(len(facts.threads))
    for nest in nests:
        if nest.statement.role is Role.COMPUTE and nest.statement.reduction:
            level = _register_level(nest)
            for touch in nest.touches:
                if touch.read and not touch.write:
                    operands += np.where(touch.mask, at_level(touch.region, level), 0.0)
    return BASE_REGISTERS + facts.local / 4.0 + operands


def _register_level(nest: Nest) -> IntArray:
    """Level below the innermost reduction loop that is there; 0 without one."""
    there = nest.reduction[:, None] & (nest.extents > 1)
    if not len(there):
        return np.zeros(nest.rows, np.int64)
    last = nest.depth - there[::-1].argmax(axis=0)
    return np.where(there.any(axis=0), last, 0)


def _below_grid(nest: Nest) -> IntArray:
    grid = nest.kinds == LoopKind.BLOCK
    if not len(grid):
        return np.zeros(nest.rows, np.int64)
    last = nest.depth - grid[::-1].argmax(axis=0)
    return np.where(grid.any(axis=0), last, 0)


def _statement(
    nest: Nest, facts: GpuFacts, resident: Occupancy, hardware: HardwareSpec
) -> dict[str, FloatArray]:
    sm, blocks = hardware.sm, facts.blocks.astype(np.float64)
    level = _below_grid(nest)
    l2, memory, shared = (np.zeros(nest.rows) for _ in range(3))
    for touch in nest.touches:
        scope, size = touch.buffer.scope, touch.buffer.itemsize
        if scope in ("", "global"):
            drawn = at_level(touch.region, level) * blocks * size
            useful = coalescing(nest, touch, sm)
            l2 += np.where(touch.mask, drawn / useful, 0.0)
            once = touch.region[0] * size
            resides = once <= sm.l2
            memory += np.where(touch.mask, np.where(resides, once, drawn) / useful, 0.0)
        elif scope.startswith("shared"):
            shared += np.where(touch.mask, _shared_bytes(nest, touch, facts, sm), 0.0)
    steps = np.where(nest.statement.role is Role.LOAD, _staging_steps(nest), 0.0)
    waves = np.ceil(blocks / (hardware.units * np.maximum(resident.blocks, 1)))
    hidden = np.maximum(resident.blocks, 1.0)
    return {
        "compute": _compute(nest, facts, resident, hardware),
        "shared": shared / (sm.shared_bytes_per_cycle * hardware.units * hardware.clock),
        "l2": l2 / sm.l2_bandwidth,
        "memory": memory / hardware.memory_bandwidth,
        "wait": steps * waves * sm.l2_latency / hardware.clock / hidden,
        "instructions": unrolled_statements(nest),
    }


def _compute(
    nest: Nest, facts: GpuFacts, resident: Occupancy, hardware: HardwareSpec
) -> FloatArray:
    ops = nest.statement.ops
    sm = hardware.sm
    tensor = any(t.buffer.scope.startswith(TENSOR_SCOPES) for t in nest.touches)
    operands = [t.buffer.dtype for t in nest.touches if t.read and not t.write]
    dtype = operands[0] if tensor and operands else nest.statement.dtype
    peak = hardware.peak(dtype, "tensor" if tensor else "vector")
    cost = np.zeros(nest.rows)
    for kind, count in ops.items():
        cost = cost + SPECIAL_COST.get(kind, 1.0) * count
    lanes = 1.0 if tensor else quantised(facts.threads.astype(np.float64), sm.warp)
    sums = np.maximum(register_tile(nest, _spread_over_units(nest)), 1.0)
    parallelism = resident.warps / sm.schedulers * np.minimum(np.sqrt(sums / 4.0), 4.0)
    issue = np.minimum(parallelism / FULL_RATE_WARPS, 1.0)
    spilled = np.maximum(resident.registers / sm.max_registers, 1.0)
    out: FloatArray = nest.trips[-1] * cost * spilled / (peak * lanes * np.maximum(issue, 1e-3))
    return out


def _spread_over_units(nest: Nest) -> BoolArray:
    return np.isin(nest.kinds, (LoopKind.BLOCK, LoopKind.THREAD))


def coalescing(nest: Nest, touch: Touch, sm: GpuSm) -> FloatArray:
    """Share of the bytes of the transactions that a warp asks for, (N,), in (0, 1]."""
    run = at_level(touch.run, _tile_level(nest))
    asked = run * touch.buffer.itemsize
    return quantised(asked, float(sm.transaction))


def _tile_level(nest: Nest) -> IntArray:
    """Level of what the threads of a block touch at once: below grid, vthread and reductions."""
    outer = np.isin(nest.kinds, (LoopKind.BLOCK, LoopKind.VTHREAD)) | nest.reduction[:, None]
    if not len(outer):
        return np.zeros(nest.rows, np.int64)
    last = nest.depth - outer[::-1].argmax(axis=0)
    copies = nest.statement.role in (Role.LOAD, Role.STORE)
    return np.where(outer.any(axis=0), last, 0) if copies else _below_grid(nest)


def _shared_bytes(nest: Nest, touch: Touch, facts: GpuFacts, sm: GpuSm) -> FloatArray:
    """Bytes through shared memory; operands of a register tile are read once per step."""
    level = _register_level(nest)
    per_thread = at_level(touch.region, level) * at_level(nest.trips, level)
    # lanes along a loop that does not move the access read one word together
    thread = nest.kinds == LoopKind.THREAD
    together = nest.product(thread & (touch.strides == 0))
    broadcast = np.minimum(together, sm.warp)
    return per_thread * touch.buffer.itemsize / np.maximum(broadcast, 1.0)


def _staging_steps(nest: Nest) -> FloatArray:
    """Times a block copies its tile: the serial loops around a copy."""
    steps = nest.product(nest.reduction[:, None] & np.isin(nest.kinds, (LoopKind.SERIAL,)))
    return np.maximum(steps, 1.0)


def unrolled_statements(nest: Nest) -> FloatArray:
    """Statements that unrolling writes out, for the cost of compiling, (N,)."""
    budget = nest.statement.unroll.astype(np.float64)
    return nest.product(unrolled_loops(nest, budget))
