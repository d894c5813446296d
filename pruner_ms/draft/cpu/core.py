"""Cycles of one run of a block: port throughput of a CPU core, latency and spills."""

from __future__ import annotations

from dataclasses import dataclass

from pruner_ms.draft.block import Block, arithmetic, called
from pruner_ms.draft.columns import Num, larger, select, smaller, times, total, truth
from pruner_ms.draft.cpu.spills import spill_cycles
from pruner_ms.draft.nest import Nest
from pruner_ms.hardware import CpuCore
from pruner_ms.symbolic.rows import Mask, both, possible, without

FORWARD_CYCLES = 14.0
"""Extra latency of an accumulator in memory (store forwarding) instead of a register."""

RAGGED_LOAD = 0.3
"""Loads per element of a ragged vector (longer than a register and not a power of two): LLVM loads
and inserts the elements one by one (docs/constants.md)."""

RAGGED_CYCLES = 1.5
"""Cycles an element when a ragged vector of accumulators goes through memory: stores of another
width than the load cannot be forwarded (docs/constants.md)."""

STORE_QUEUE = 96.0
"""Stores after which a value is in the cache and need not be forwarded."""

WINDOW = 48.0
"""Vector instructions in flight beyond the block that is waited for (out-of-order window)."""


@dataclass(frozen=True)
class Cycles:
    """Cycles of one run of a block on one core, columns; spilled registers separately."""

    compute: Num
    access: Num
    latency: Num
    spill: Num


@dataclass(frozen=True)
class Accumulators:
    """The accumulators of a block.

    Attributes
    ----------
    registers
        Vector registers that they fill; 0 without a reduction.
    in_registers
        Whether they fit into registers.
    runs_held
        Runs of the block over which they stay in registers: the product of the extents of the
        reduction loops right above the block. If they fit, LLVM hoists their loads and stores out
        of these loops.
    blocks_between
        Blocks of other accumulators that run before one is used again.
    """

    registers: Num
    in_registers: Mask
    runs_held: Num
    blocks_between: Num


def block_cycles(nest: Nest, block: Block, core: CpuCore) -> Cycles:
    """Cycles that one run of the block takes on each of the core's resources."""
    uses = block.steps * block.pieces
    instructions = arithmetic(nest.statement) * uses
    accumulators = accumulators_of(nest, block, core)
    loads, stores, stall = _ports(nest, block, accumulators, uses)
    per_vector = select(block.ragged, block.vector / block.pieces * RAGGED_LOAD, 1.0)
    loads, stores = times(loads, per_vector), times(stores, per_vector)
    access = larger(loads * (1.0 / core.load_ports), stores * (1.0 / core.store_ports))
    issued = (instructions + loads + stores) * (1.0 / core.issue)
    calls = called(nest.statement, block.vector, block.pieces, core) * block.steps
    return Cycles(
        compute=instructions * (1.0 / core.fma_ports) + calls,
        access=larger(access, issued) + stall,
        latency=_chain(nest, accumulators, core, uses),
        spill=spill_cycles(nest, block, accumulators.registers, core),
    )


def accumulators_of(nest: Nest, block: Block, core: CpuCore) -> Accumulators:
    """The accumulators of a block."""
    pairs = zip(nest.touches, block.vectors, strict=True)
    registers = total(vectors for touch, vectors in pairs if touch.read and touch.write)
    in_registers = truth(registers <= core.vector_registers - 3)
    if not any(touch.read and touch.write for touch in nest.touches):
        return Accumulators(registers, in_registers, 1.0, 1.0)
    return Accumulators(
        registers, in_registers, _runs_held(nest, block, in_registers), _blocks_between(nest, block)
    )


def _ports(nest: Nest, block: Block, accumulators: Accumulators, uses: Num) -> tuple[Num, Num, Num]:
    """Loads and stores of one run, and cycles of stores that cannot be forwarded."""
    loads: list[Num] = []
    stores: list[Num] = []
    stall: Num = 0.0
    for touch, vectors in zip(nest.touches, block.vectors, strict=True):
        if touch.read and touch.write:
            # accumulators that do not fit are loaded and stored at every use
            each = select(
                accumulators.in_registers, vectors / accumulators.runs_held, larger(vectors, uses)
            )
            loads.append(each)
            stores.append(each)
            waits = both(block.ragged, truth(accumulators.runs_held <= 1))
            if possible(waits):
                waits = both(waits, truth(accumulators.blocks_between * vectors < STORE_QUEUE))
                cost = vectors / block.pieces * block.vector * RAGGED_CYCLES
                stall = stall + select(waits, cost, 0.0)
        elif touch.write:
            stores.append(vectors)
        else:
            loads.append(vectors)
    return total(loads), total(stores), stall


def _runs_held(nest: Nest, block: Block, in_registers: Mask) -> Num:
    runs: Num = 1.0
    going = in_registers
    for p in range(nest.depth - 1, -1, -1):
        if not possible(going):
            break
        if nest.reduction[p]:
            above = without(going, block.inside[p])
            if possible(above):
                runs = times(runs, select(above, nest.sizes[p], 1.0))
        else:
            going = without(going, without(nest.runs(p), block.inside[p]))
    return runs


def _blocks_between(nest: Nest, block: Block) -> Num:
    between: Num = 1.0
    going: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        if not possible(going):
            break
        above = without(nest.runs(p), block.inside[p])
        if nest.reduction[p]:
            going = without(going, above)
        else:
            between = times(between, select(both(above, going), nest.sizes[p], 1.0))
    return between


def _chain(nest: Nest, accumulators: Accumulators, core: CpuCore, uses: Num) -> Num:
    """Cycles per block that no port can hide: each accumulator waits for its previous addition."""
    if not nest.statement.reduction:
        return 0.0
    steps = larger(uses / larger(accumulators.registers, 1.0), 1.0)
    forward = select(truth(accumulators.runs_held > 1), 0.0, FORWARD_CYCLES)
    apart = smaller(accumulators.blocks_between, 1.0 + WINDOW / uses)
    return (steps * core.fma_latency + forward) / apart
