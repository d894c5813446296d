"""Register spills and pipeline fill of tensorised kernels.

Notation
--------
r, R      registers of a thread that the kernel needs, and that a thread can have
steps     iterations of the reduction loops
"""

from __future__ import annotations

from pruner_ms.draft.columns import Num, larger, number, select, truth
from pruner_ms.draft.gpu.occupancy import BASE_REGISTERS, Launch, Occupancy
from pruner_ms.draft.nest import Nest
from pruner_ms.symbolic.program import MMA_OPERANDS
from pruner_ms.symbolic.rows import Mask, both, negate

REGISTER_BYTES, LOCAL_BYTES_PER_CYCLE = 4.0, 128.0
"""Bytes of a register, and of local memory per cycle and SM (a wavefront of L1)
(docs/constants.md)."""

INDEXED_BELOW = 64.0
"""`pragma_auto_unroll_max_step` from which on TVM unrolls loops that nvcc would not."""


def spilled(nest: Nest, launch: Launch, held: Occupancy, per_cycle: float) -> Num:
    """Seconds of all SMs: r - R registers are reloaded at every step, through L1.

    Parameters
    ----------
    per_cycle
        Seconds of a cycle over the number of SMs.
    """
    beyond = larger(held.registers - held.limit, 0.0)
    beyond = select(_indexed(nest), larger(held.registers - BASE_REGISTERS, beyond), beyond)
    bytes_ = REGISTER_BYTES * beyond * launch.threads * launch.blocks
    return bytes_ * nest.product(nest.reducing()) * (per_cycle / LOCAL_BYTES_PER_CYCLE)


def filling(nest: Nest, held: Occupancy, shared: Num, latency: Num) -> Num:
    """Seconds in which warps wait for the fragments of the first step of the inner pipeline.

    The second reduction loop prefetches one step; its first step is not prefetched. Other blocks on
    the SM have work then.

    Parameters
    ----------
    shared
        Seconds of all loads of the statement.
    latency
        Seconds from a load to its fragment, for all rounds of blocks.
    """
    loops = _reduction_loops(nest)
    if len(loops) < 2:
        return shared
    outer, inner = (larger(nest.sizes[p], 1.0) for p in loops[:2])
    return outer * latency + shared / (inner * larger(held.blocks, 1.0))


def _reduction_loops(nest: Nest) -> list[int]:
    """Positions of the reduction loops."""
    return [p for p in range(nest.depth) if nest.reduction[p]]


def _indexed(nest: Nest) -> Mask:
    """Rows whose `mma` fragments are arrays in local memory.

    TVM's rule pipelines the second reduction loop. With one step it is no pipeline, and nvcc does
    not unroll the loops inside.
    """
    loops = _reduction_loops(nest)
    if len(loops) < 2 or not any(t.buffer.scope in MMA_OPERANDS for t in nest.touches):
        return False
    few = truth(number(nest.statement.unroll) < INDEXED_BELOW)
    return both(few, negate(nest.runs(loops[1])))
