"""Occupancy of an SM: resident blocks and warps, by threads, registers, shared memory and slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pruner_ms.draft.columns import (
    Num,
    ceiling,
    flag,
    larger,
    number,
    select,
    smaller,
    times,
    truth,
)
from pruner_ms.draft.nest import Nest
from pruner_ms.hardware import GpuSm
from pruner_ms.hardware.arch import arch_number
from pruner_ms.symbolic.program import (
    MMA_OPERANDS,
    Buffer,
    GpuFacts,
    LoopKind,
    Role,
    is_fragment,
)
from pruner_ms.symbolic.rows import both, uniform_mask

BASE_REGISTERS = 24
"""Registers of a thread for addresses and loop counters."""

REGISTER_STEP = 8.0
"""Allocation granularity of a thread's registers (CUDA Occupancy Calculator)."""

RESERVED, FIRST_RESERVED = 1024.0, 80
"""Bytes of shared memory of each block that CUDA keeps for itself, and the first architecture on
which it does (NVIDIA Ampere GPU Architecture Tuning Guide, "Unified Shared Memory/L1/Texture
Cache"; Hopper's says the same)."""


@dataclass(frozen=True)
class Launch:
    """The thread hierarchy of a kernel as columns; absent figures count as 1 or 0.

    Attributes
    ----------
    threads, blocks, warps
        Threads and warps of a block, blocks of the grid.
    shared, local
        Bytes of shared memory of a block, of local memory of a thread.
    stages
        Versions of a staged buffer; 1 without a pipeline.
    kernels
        Launches of the program.
    """

    threads: Num
    blocks: Num
    warps: Num
    shared: Num
    local: Num
    stages: Num
    kernels: Num = 1.0

    @staticmethod
    def of(facts: GpuFacts, warp: int) -> Launch:
        """From the facts of a program."""
        threads = larger(number(facts.threads), 1.0)
        return Launch(
            threads=threads,
            blocks=larger(number(facts.blocks), 1.0),
            warps=ceiling(threads / warp),
            shared=larger(number(facts.shared), 0.0),
            local=larger(number(facts.local), 0.0),
            stages=larger(number(facts.stages), 1.0),
            kernels=1.0 if facts.kernels is None else larger(number(facts.kernels), 1.0),
        )


def launch_at(nest: Nest, launch: Launch, warp: int) -> Launch:
    """The launch of the kernel that a statement is in, `launch` itself where that is the only one.

    `GpuFacts` has the largest figures of any kernel. A statement with another grid is in another
    kernel, and has the threads of its own loops.
    """
    blocks = larger(nest.of_kind(LoopKind.BLOCK), 1.0)
    same = uniform_mask(truth(blocks == launch.blocks))
    if same is True:
        return launch
    threads = larger(nest.of_kind(LoopKind.THREAD), 1.0)
    threads = select(same, launch.threads, threads)
    return replace(
        launch,
        blocks=select(same, launch.blocks, blocks),
        threads=threads,
        warps=ceiling(threads / warp),
    )


@dataclass(frozen=True)
class Occupancy:
    """Occupancy of one SM, columns.

    Attributes
    ----------
    blocks
        Resident blocks; 0 where none fits.
    warps
        Resident warps.
    registers
        Registers of a thread, estimated.
    limit
        Registers that a thread can have; beyond it they are spilled.
    """

    blocks: Num
    warps: Num
    registers: Num
    limit: Num


def occupancy(launch: Launch, registers: Num, sm: GpuSm) -> Occupancy:
    """Blocks and warps that fit on an SM."""
    limit = register_limit(launch, sm)
    held = ceiling(smaller(registers, limit) / REGISTER_STEP) * REGISTER_STEP
    shared = launch.shared + (RESERVED if arch_number(sm.arch) >= FIRST_RESERVED else 0.0)
    lanes = times(launch.warps, float(sm.warp))
    blocks = smaller(sm.max_threads / lanes, sm.registers / (lanes * held))
    blocks = smaller(blocks, sm.shared / larger(shared, 1.0))
    blocks = smaller(blocks, float(sm.max_blocks))
    blocks = float(np.floor(blocks)) if isinstance(blocks, float) else np.floor(blocks)
    blocks = select(truth(launch.shared <= float(sm.shared_per_block)), blocks, 0.0)
    return Occupancy(blocks, blocks * launch.warps, registers, limit)


def register_limit(launch: Launch, sm: GpuSm) -> Num:
    """Registers that the compiler may give a thread, by the threads of a block.

    TVM declares the threads by `__launch_bounds__`; registers beyond the limit are spilled.
    """
    share = sm.registers / times(launch.warps, float(sm.warp))
    eights: Num = np.floor(share / REGISTER_STEP) * REGISTER_STEP
    return larger(smaller(eights, float(sm.max_registers)), REGISTER_STEP)


def in_use(possible: Occupancy, launch: Launch, units: int) -> Occupancy:
    """Occupancy by a grid: a small one does not fill every SM."""
    blocks = smaller(possible.blocks, ceiling(launch.blocks / units))
    return replace(possible, blocks=blocks, warps=blocks * launch.warps)


def exposed(launch: Launch, resident: Occupancy, least: float) -> Num:
    """Share of every time but the largest that is not hidden.

    All of it where a block that stages its tiles has an SM for itself and does not prefetch.

    Parameters
    ----------
    least
        The share at best.
    """
    beside = larger(resident.blocks, 1.0) * launch.stages
    return select(truth(launch.shared > 0), larger(1.0 / beside, least), least)


def registers_of(
    nests: list[Nest], launch: Launch, buffers: Sequence[Buffer] = (), warp: int = 32
) -> Num:
    """Registers of a thread: local buffers, fragments, operands, addresses."""
    registers = launch.local / 4.0 + BASE_REGISTERS
    for buffer in buffers:
        if is_fragment(buffer):
            copies = 2.0 if buffer.scope in MMA_OPERANDS else 1.0
            registers = registers + number(buffer.alloc) * (copies * buffer.itemsize / 4.0 / warp)
    for nest in nests:
        if nest.statement.role is not Role.COMPUTE or not nest.statement.reduction:
            continue
        steps = nest.reducing()
        for touch in nest.touches:
            if touch.read and not touch.write and not is_fragment(touch.buffer):
                operands = nest.below(steps, touch.elements)
                rows = both(touch.exists, flag(nest.statement.alive))
                registers = registers + select(rows, operands, 0.0)
    return registers
