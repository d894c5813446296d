"""Analytical latency on a GPU: occupancy, traffic, coalescing, bank conflicts, waves.

Terms of a statement, in seconds of the whole kernel (the table `GPU_TERMS`):

compute   operations over the peak of their type and unit, at the share of lanes and issue slots;
          conditions of padded copies
special   special functions (exp, tanh, sqrt) and divisions, at the rate of their own units
shared    wavefronts through shared memory, with bank conflicts and broadcasts
access    sectors of global accesses through the load and store units
l2        bytes that the blocks load, in whole transactions, over the bandwidth of the L2 cache
memory    bytes from memory: L2 misses
wait      a latency and a barrier per staging step, shared by the blocks that are resident and by
          the stages of a software pipeline
tail      combining the threads' parts of a reduction
launch    starts of the kernels
idle      SMs without a block in the last wave

The first six overlap, kernel by kernel (`kernels`); wait and tail are added; launch is
hidden where it is shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np

from pruner_ms.draft.columns import (
    Num,
    ceiling,
    column,
    flag,
    larger,
    number,
    select,
    smaller,
    times,
    total,
    truth,
)
from pruner_ms.draft.gpu.guards import TILE_BYTES, guarding, vector_lanes, written_out
from pruner_ms.draft.gpu.kernels import Kernel, kernel_at, launched, overlap_of
from pruner_ms.draft.gpu.memory import (
    coalescing,
    quantised,
    requested_elements,
    slots,
    tile_sectors,
    tile_wavefronts,
    wavefronts,
)
from pruner_ms.draft.gpu.occupancy import (
    Launch,
    Occupancy,
    in_use,
    launch_at,
    occupancy,
    registers_of,
)
from pruner_ms.draft.gpu.spills import filling, spilled
from pruner_ms.draft.nest import Nest, nest_of
from pruner_ms.draft.terms import Term
from pruner_ms.draft.touch import Touch
from pruner_ms.hardware import HardwareSpec
from pruner_ms.hardware.spec import GpuSm
from pruner_ms.symbolic.program import (
    MMA_OPERANDS,
    MMA_SCOPE,
    LoopKind,
    Role,
    SketchProgram,
    Statement,
    is_fragment,
)
from pruner_ms.symbolic.rows import Mask, both, negate, possible
from pruner_ms.tensorcore.terms import MMA_ROWS, depth_share, utilisation, warp_level_peak
from pruner_ms.types import BoolArray, FloatArray, IntArray

# Latency of copies to shared memory.
#
# A thread has as many loads in flight as the compiler issues side by side. A software pipeline
# copies asynchronously (`cp.async`), but only elements of 4 bytes or more at a time: TVM leaves
# narrower copies synchronous (`transform/inject_ptx_async_copy.cc`).
#
# Figures are of 24 pools of 12 workloads on an H200 (`benchmarks/results/prebuilt.json`).

BARRIER_CYCLES = 30.0
"""Cycles of a barrier of a block."""

LOADS_IN_FLIGHT = 8.0
"""Loads of a thread in flight together (docs/constants.md)."""

WORD_BYTES = 4.0
"""The narrowest asynchronous copy (`cp.async`; PTX ISA 8.5, 9.7.8.24)."""

PIPELINED = 0.5
"""Share of a latency that is exposed per step of a software pipeline of one stage."""


def copying(nest: Nest, launch: Launch, held: Occupancy, steps: Num, tiles: bool, sm: GpuSm) -> Num:
    """Cycles in which a block waits for a statement that copies into shared memory.

    Parameters
    ----------
    steps
        Staging steps: iterations of the reduction loops around the copy.
    tiles
        Whether an iteration copies a tile, by all threads together.
    """
    blocks = larger(held.blocks, 1.0)
    loads, wide = _tile_loads(nest, launch) if tiles else _loads(nest, launch)
    pipelined = both(truth(launch.stages > 1), wide)
    alone = larger(loads * (1.0 / LOADS_IN_FLIGHT), steps) * (sm.l2_latency / blocks)
    piped = steps * (PIPELINED * sm.l2_latency) / (blocks * launch.stages)
    return select(pipelined, piped, alone) + BARRIER_CYCLES * steps


def _tile_loads(nest: Nest, launch: Launch) -> tuple[Num, Mask]:
    held = total(t.elements(nest.depth) * float(t.buffer.itemsize) for t in _written(nest))
    each = held / (nest.cooperating_threads * TILE_BYTES)
    return nest.above(nest.depth) * each / launch.blocks, True


def _loads(nest: Nest, launch: Launch) -> tuple[Num, Mask]:
    """Loads of a thread, and whether each is a word or more."""
    lanes = vector_lanes(nest)
    narrowest = float(min((t.buffer.itemsize for t in _written(nest)), default=1))
    loads = nest.above(nest.depth) / (launch.threads * launch.blocks * lanes)
    return loads, truth(lanes * narrowest >= WORD_BYTES)


def _written(nest: Nest) -> list[Touch]:
    return [t for t in nest.touches if t.write]


# Limits of grids: a program may be built and yet be refused at its launch.

LIMITS: Mapping[str, int] = MappingProxyType(
    {"blockIdx.x": 2**31 - 1, "blockIdx.y": 65535, "blockIdx.z": 65535}
)
"""Blocks along each axis of a grid at most (CUDA C++ Programming Guide, "Technical Specifications
per Compute Capability"). Stock's TensorCore design spaces put a batch on `blockIdx.y`."""


def grid_fits(program: SketchProgram) -> BoolArray:
    """Rows whose grids a launch can have, bool (N,); VerifyGPUCode counts no blocks."""
    fits = np.ones(program.rows, np.bool_)
    # an axis has no more blocks than the grid, so hardly any program needs the loop below
    if program.gpu is None or (program.gpu.blocks <= min(LIMITS.values())).all():
        return fits
    for statement in program.statements:
        for axis, limit in LIMITS.items():
            fits &= (_along(statement, axis) <= limit) | ~statement.alive
    return fits


def _along(statement: Statement, axis: str) -> IntArray:
    """Blocks along an axis of the grid around a statement, int64 (N,)."""
    total = np.ones(len(statement.alive), np.int64)
    for loop in statement.loops:
        if loop.tag == axis:
            total = np.where(loop.kind == LoopKind.BLOCK, total * loop.extent, total)
    return total


FULL_RATE_WARPS, ALONE = 3.0, 0.5
"""Warps per scheduler that hide latency, with four accumulators each; most instructions that one
warp issues per cycle."""

LOADED_AGAIN = 0.25
"""Share of operands' loads from shared memory that counts: nvcc reuses them over several steps."""

SPECIAL_SLOTS: Mapping[str, float] = {"div": 2.0, "special": 2.0}
"""Instructions of the special function units that one operation takes."""

SPECIAL_LANES = 16.0
"""Special functions per cycle and SM (CUDA C++ Programming Guide, arithmetic throughput)."""

SECTORS_PER_CYCLE = 4.0
"""Sectors per cycle and SM through the load and store units."""

SHUFFLE_CYCLES = 23.0
"""Cycles of a warp shuffle (Jia et al. 2018)."""


class Work:
    """A statement on a GPU, and the quantities that its terms share.

    Attributes
    ----------
    launch, resident
        The kernel's threads, and its blocks resident on an SM.
    waves
        Rounds of resident blocks.
    tensor
        Whether it touches fragments of tensor cores.
    tiles
        Whether several threads run an iteration together, on tiles.
    """

    def __init__(
        self, nest: Nest, launch: Launch, resident: Occupancy, hardware: HardwareSpec
    ) -> None:
        self.nest, self.launch, self.resident, self.hardware = nest, launch, resident, hardware
        held = larger(resident.blocks, 1.0)
        self.waves = ceiling(launch.blocks / (held * float(hardware.units)))
        self.grid = nest.kind_masks(LoopKind.BLOCK)
        self.per_cycle = 1.0 / (hardware.units * hardware.clock)
        self.tensor = any(is_fragment(t.buffer) for t in nest.touches)
        self.tiles = (
            isinstance(nest.cooperating_threads, np.ndarray) or nest.cooperating_threads > 1
        )

    def count(self, *kinds: str) -> Num:
        """Operations of one iteration of these kinds."""
        ops = self.nest.statement.ops
        return total(number(ops[kind]) for kind in kinds if kind in ops)

    @property
    def stored(self) -> list[Touch]:
        """What it writes to global memory."""
        return [t for t in self.nest.touches if t.write and t.is_global]

    @cached_property
    def traffic(self) -> list[tuple[Num, Num]]:
        """Per touch of global memory: bytes that all blocks load, and distinct bytes of the kernel.

        In whole sectors.
        """
        nest, pairs = self.nest, []
        for touch in nest.touches:
            if touch.is_global:
                size = touch.buffer.itemsize / coalescing(nest, touch, self.hardware.sm)
                asked = (
                    nest.above(nest.depth)
                    / nest.cooperating_threads
                    * requested_elements(nest, touch)
                )
                tile = nest.below(self.grid, touch.elements)
                drawn = smaller(tile * self.launch.blocks, asked) * size
                once = times(touch.elements(0), size)
                pairs.append((select(touch.exists, drawn, 0.0), select(touch.exists, once, 0.0)))
        return pairs


def _compute(work: Work) -> Num:
    nest, sm = work.nest, work.hardware.sm
    peak = _peak(work)
    add, mul = work.count("add"), work.count("mul")
    # a peak counts a multiply-add as two; a single operation takes the same slot
    slots_used = add + mul - smaller(add, mul) + work.count("cmp", "int")
    conditions = guarding(nest, work.tiles, work.per_cycle)
    if isinstance(slots_used, float) and slots_used == 0.0:
        return conditions
    warps, accumulators = work.resident.warps, _independent(nest)
    if work.tensor:
        # a whole warp executes an instruction of a tensor core, its accumulators are tiles; where
        # an iteration has several instructions, each waits for the one before
        lanes = nest.cooperating_threads
        rate = peak / 2.0 * work.per_cycle
        seconds = slots_used / nest.statement.steps
        issue = utilisation(larger(warps, 1.0), accumulators, seconds, rate, float(sm.schedulers))
    else:
        lanes = quantised(work.launch.threads, float(sm.warp))
        alone = smaller(np.sqrt(accumulators / 4.0) * (1.0 / FULL_RATE_WARPS), ALONE)
        issue = warps * (1.0 / sm.schedulers) * alone
    issue = larger(smaller(issue, 1.0), 1e-3)
    beyond = larger(work.resident.registers / work.resident.limit, 1.0)
    seconds = nest.above(nest.depth) * slots_used * (2.0 / peak) / (lanes * issue)
    if not work.tensor:
        return seconds * beyond + conditions
    return seconds + conditions + spilled(nest, work.launch, work.resident, work.per_cycle)


def _peak(work: Work) -> float:
    """Peak FLOP/s of the unit and the types that a statement computes with."""
    touches, dtype = work.nest.touches, work.nest.statement.dtype
    if not work.tensor:
        return work.hardware.peak(dtype)
    operands = [t.buffer.dtype for t in touches if t.read and not t.write]
    accumulators = [t.buffer.dtype for t in touches if t.write]
    peak = warp_level_peak(work.hardware, (operands or [dtype])[0], (accumulators or [dtype])[0])
    return peak * depth_share(_depth_bytes(work), work.hardware.sm.arch)


def _depth_bytes(work: Work) -> float:
    """Bytes of a row of A per `mma` instruction; infinite for other statements."""
    steps = work.nest.statement.steps
    for touch in work.nest.touches:
        if touch.read and touch.buffer.scope == f"{MMA_SCOPE}A":
            a_bytes = touch.elements(work.nest.depth) * float(touch.buffer.itemsize)
            return float(np.min(a_bytes)) / (MMA_ROWS * steps)
    return np.inf


def _independent(nest: Nest) -> Num:
    """Independent accumulators of a thread."""
    chosen: list[Mask] = [False] * nest.depth
    spread = nest.kind_masks(LoopKind.BLOCK, LoopKind.THREAD)
    for touch in nest.touches:
        if not touch.write:
            continue
        for p in range(nest.depth):
            if not nest.reduction[p] and spread[p] is not True and nest.runs(p) is not False:
                chosen[p] = both(negate(spread[p]), truth(touch.step(p) != 0))
    return larger(nest.product(chosen), 1.0)


def _special(work: Work) -> Num:
    slots_used = total(work.count(kind) * each for kind, each in SPECIAL_SLOTS.items())
    if isinstance(slots_used, float) and slots_used == 0.0:
        return 0.0
    return work.nest.above(work.nest.depth) * slots_used * (work.per_cycle / SPECIAL_LANES)


def _shared(work: Work) -> Num:
    nest, counts = work.nest, list[Num]()
    count = tile_wavefronts if work.tiles else wavefronts
    for touch in nest.touches:
        if touch.buffer.scope.startswith("shared"):
            counts.append(select(touch.exists, count(nest, touch, work.hardware.sm), 0.0))
    if work.tensor and not counts and nest.statement.role is Role.STORE:
        # TVM stores accumulators of `mma` through shared memory: written, then read
        counts = [2.0 * tile_wavefronts(nest, t, work.hardware.sm) for t in work.stored]
    again = LOADED_AGAIN if not work.tensor and nest.statement.role is Role.COMPUTE else 1.0
    return total(counts) * (work.per_cycle * again)


def _access(work: Work) -> Num:
    nest, sm = work.nest, work.hardware.sm
    vectors = vector_lanes(nest)
    counts: list[Num] = []
    for touch in nest.touches:
        if touch.is_global:
            count = tile_sectors if work.tiles else slots
            counts.append(select(touch.exists, count(nest, touch, sm), 0.0))
    each = work.per_cycle / SECTORS_PER_CYCLE
    return total(counts) * nest.above(nest.depth) / vectors * each


def _l2(work: Work) -> Num:
    return total(drawn for drawn, _ in work.traffic) * (1.0 / work.hardware.sm.l2_bandwidth)


def _memory(work: Work) -> Num:
    l2_bytes = float(work.hardware.sm.l2)
    bytes_ = total(select(truth(once <= l2_bytes), once, drawn) for drawn, once in work.traffic)
    return bytes_ * (1.0 / work.hardware.memory_bandwidth)


def _wait(work: Work) -> Num:
    """One latency and barrier per staging step of a block."""
    if work.nest.statement.role is not Role.LOAD:
        return 0.0
    nest, sm, cycle = work.nest, work.hardware.sm, 1.0 / work.hardware.clock
    if any(t.buffer.scope in MMA_OPERANDS for t in nest.touches):
        return filling(nest, work.resident, _shared(work), sm.shared_latency * work.waves * cycle)
    serial = nest.kind_masks(LoopKind.SERIAL, LoopKind.UNROLLED)
    steps = nest.product([both(a, b) for a, b in zip(serial, nest.reducing(), strict=True)])
    if all(is_fragment(t.buffer) for t in nest.touches if t.write):
        # a warp waits for no other warp, and the schedulers run other warps meanwhile
        cycles = sm.shared_latency / larger(work.resident.warps / sm.schedulers, 1.0) * steps
    else:
        cycles = copying(nest, work.launch, work.resident, steps, work.tiles, sm)
    return cycles * work.waves * cycle


def _tail(work: Work) -> Num:
    """Cross-thread reduction: shuffles, beyond a warp a barrier."""
    nest, sm = work.nest, work.hardware.sm
    chosen: list[Mask] = [
        nest.is_kind(p, LoopKind.THREAD) if nest.reduction[p] else False for p in range(nest.depth)
    ]
    if not any(possible(mask) for mask in chosen):
        return 0.0
    parts = nest.product(chosen)
    spatial = nest.kind_masks(LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VTHREAD)
    outputs = nest.product(
        [False if r else s for r, s in zip(nest.reduction, spatial, strict=True)]
    )
    beyond = select(truth(parts > sm.warp), 2 * sm.shared_latency + BARRIER_CYCLES, 0.0)
    cycles = ceiling(np.log2(parts)) * SHUFFLE_CYCLES + beyond
    return outputs * cycles * work.waves * (1.0 / work.hardware.clock)


GPU_TERMS: tuple[Term[Work], ...] = (
    Term("compute", "operations over the peak of type and unit, conditions of padding", _compute),
    Term("special", "special functions and divisions", _special),
    Term("shared", "wavefronts of shared memory, bank conflicts included", _shared),
    Term("access", "sectors through the load and store units", _access),
    Term("l2", "traffic out of the L2 cache, in whole transactions", _l2),
    Term("memory", "traffic out of memory, in whole transactions", _memory),
    Term("wait", "latency and barrier of each staging step", _wait),
    Term("tail", "combining the threads' parts of a reduction", _tail),
    Term("launch", "starting the kernels", lambda work: 0.0),
    Term("idle", "SMs without a block in the last wave", lambda work: 0.0),
)
"""The terms of a latency; they overlap, so they sum to more. The last two are of the kernel."""


def gpu_terms(program: SketchProgram, hardware: HardwareSpec) -> dict[str, FloatArray]:
    """Seconds of every term and their "total", (N,) each; `program.gpu` must be there.

    "fits" is how many blocks an SM can hold, 0 where the schedule cannot be launched. Statements of
    other kernels than the one with the largest grid have a grid of their own.
    """
    if program.gpu is None:
        raise ValueError("a program without GpuFacts has no latency on a GPU")
    sm = hardware.sm
    launch = Launch.of(program.gpu, sm.warp)
    nests = [nest_of(s, program) for s in program.statements]
    registers = registers_of(nests, launch, program.buffers, sm.warp)
    possible_ = occupancy(launch, registers, sm)
    resident = in_use(possible_, launch, hardware.units)
    terms: dict[str, Num] = {term.name: 0.0 for term in GPU_TERMS}
    first, others = Kernel(launch, resident), list[Kernel]()
    instructions: Num = 0.0
    guarded: Num = 0.0
    for nest in nests:
        alive = flag(nest.statement.alive)
        if alive is False:
            continue
        own_launch, own_resident = launch_at(nest, launch, sm.warp), resident
        same: Mask = True
        other = first
        if own_launch is not launch:
            own_resident = in_use(occupancy(own_launch, registers, sm), own_launch, hardware.units)
            same = truth(own_launch.blocks == launch.blocks)
            other = kernel_at(others, own_launch, own_resident)
        work = Work(nest, own_launch, own_resident, hardware)
        for term in GPU_TERMS:
            seconds = select(alive, term.compute(work), 0.0)
            terms[term.name] = terms[term.name] + seconds
            first.add(term.name, select(same, seconds, 0.0))
            other.add(term.name, select(same, 0.0, seconds))
        written, conditional = written_out(nest)
        instructions = instructions + select(alive, written, 0.0)
        guarded = guarded + select(alive, conditional, 0.0)
    overlap = overlap_of(program.buffers)
    each = [kernel.dealt(overlap, hardware) for kernel in (first, *others)]
    dealt, even = (total(seconds) for seconds in zip(*each, strict=True))
    terms["idle"] = dealt - even
    running = dealt + terms["wait"] + terms["tail"]
    terms["launch"], terms["total"] = launched(running, launch.kernels, hardware)
    fits = select(flag(grid_fits(program)), possible_.blocks, 0.0)
    terms |= {"fits": fits, "instructions": instructions, "guarded": guarded}
    return {name: column(value, program.rows) for name, value in terms.items()}
