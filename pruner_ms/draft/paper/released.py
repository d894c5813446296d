"""Not the default formula: that of the released code (`feature_psa.cc`, `psa_model.py`).

It differs from the paper: no shared-memory and no transaction penalty, the register penalty slows
compute, reuse multiplies time by 1 + 1/(1 + flops/accesses), only float arithmetic counts, memory
time is charged to copies alone and in elements. All of this is reproduced. One row per written
buffer: initialisation and update of a reduction are merged.

The code knows only GPUs. On a CPU a parallel task is read as a block and the vectorised lanes as
its threads, with the vector's lanes as warp.
"""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.columns import column
from pruner_ms.draft.nest import Nest, nest_of
from pruner_ms.draft.paper.penalties import ELEMENT, REGISTER_CAP, Limits
from pruner_ms.draft.paper.symbols import FLOAT_OPS, operations, register_tile
from pruner_ms.symbolic.program import LoopKind, Role, SketchProgram
from pruner_ms.types import FloatArray

SUB_PARTITIONS = 4
"""`sub_partitions` of every row of the code's device table."""


def released_terms(program: SketchProgram, d: Limits) -> dict[str, FloatArray]:
    """Compute and memory seconds of the program, (N,) each; the latency is their sum."""
    terms = {"compute": np.zeros(program.rows), "memory": np.zeros(program.rows)}
    for statement in program.statements:
        if statement.role is Role.INIT:
            continue
        nest = nest_of(statement, program)
        work = operations(statement, FLOAT_OPS)
        computes = statement.alive & (work > 0)
        terms["compute"] += np.where(computes, _compute(nest, d, work), 0.0)
        terms["memory"] += np.where(statement.alive & ~computes, _memory(nest, d), 0.0)
    return terms


def _hierarchy(nest: Nest) -> tuple[FloatArray, FloatArray]:
    """Blocks and threads (tasks and lanes), (N,) each."""
    grid = nest.of_kind(LoopKind.BLOCK, LoopKind.PARALLEL)
    threads = nest.of_kind(LoopKind.THREAD, LoopKind.VECTORIZED)
    return column(grid, nest.rows), column(threads, nest.rows)


def _compute(nest: Nest, d: Limits, work: FloatArray) -> FloatArray:
    grid, threads = _hierarchy(nest)
    per_thread = nest.trips[-1] / grid / threads * work
    shared_out = np.isin(
        nest.kinds,
        (LoopKind.BLOCK, LoopKind.PARALLEL, LoopKind.THREAD, LoopKind.VECTORIZED),
    )
    registers = register_tile(nest, shared_out)
    accesses = np.zeros(nest.rows)
    for touch in nest.touches:
        moving = nest.product(~shared_out & (touch.strides != 0))
        accesses += np.where(touch.mask, moving, 0.0)
    reuse = 1.0 + per_thread / np.maximum(accesses, 1.0)
    spill = np.where(registers >= REGISTER_CAP, registers / REGISTER_CAP, 1.0)
    warps = threads / d.n_l1
    units = d.t_p * _peak_share(grid, warps, d) * (warps / np.ceil(warps)) / spill
    out: FloatArray = per_thread * grid * threads * (1.0 + 1.0 / reuse) / units
    return out


def _peak_share(grid: FloatArray, warps: FloatArray, d: Limits) -> FloatArray:
    few = grid < d.pu_l2
    units = np.where(few, grid * np.minimum(np.ceil(warps), SUB_PARTITIONS), grid)
    total = np.where(few, SUB_PARTITIONS * d.pu_l2, d.pu_l2)
    out: FloatArray = units / (np.ceil(units / total) * total)
    return out


def _memory(nest: Nest, d: Limits) -> FloatArray:
    # elements over bytes/s, as the code has it
    out: FloatArray = nest.trips[-1] / (d.t_m * ELEMENT)
    return out
