"""The symbols S1..S8 of the paper (section 4.1, table 2), and two of ours for tensor cores.

| symbol | level | meaning                     | on a GPU               | on a CPU (ours)          |
|--------|-------|-----------------------------|------------------------|--------------------------|
| S1     | L0    | elements in registers       | of a thread            | of a parallel task       |
| S2     | L0    | iterations over those       | of a thread            | of a parallel task       |
| S3     | L1    | elements staged             | shared memory, a block | read by one outermost    |
|        |       |                             |                        | reduction step of a task |
| S4     | L1    | units that run in lock-step | threads of a block     | lanes vectorised         |
| S5     | L2    | elements of global traffic  | of the kernel          | of the kernel            |
| S6     | L2    | independent units           | blocks of the grid     | parallel tasks           |
| S7     | L2    | contiguous elements         | of the copied tile     | of the task's region     |
| S8     | L2    | operations of the statement |                        |                          |
| S9     | L0    | independent products        | accumulators of a warp | -                        |
| S10    | L0    | multiply-adds of a product  | of one instruction     | -                        |

S9 and S10 are 0 where no tensor core is used; the paper has one symbol for it and does not say
which (section 6.4). All are in elements and operations, float64 (N,), one set per statement; 0 in
rows where the statement does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pruner_ms.draft.nest import Nest, at_level, nest_of
from pruner_ms.draft.touch import Touch
from pruner_ms.symbolic.program import (
    LoopKind,
    Role,
    SketchProgram,
    Statement,
    is_fragment,
)
from pruner_ms.types import BoolArray, FloatArray, IntArray

MEANINGS: Mapping[str, tuple[str, str]] = {
    "S1": ("elements", "in registers, of a thread (CPU: of a parallel task)"),
    "S2": ("iterations", "over those, of a thread (CPU: of a parallel task)"),
    "S3": ("elements", "staged in shared memory (CPU: read by one outermost reduction step)"),
    "S4": ("threads", "of a block (CPU: lanes vectorised)"),
    "S5": ("elements", "of global traffic, of the kernel"),
    "S6": ("blocks", "of the grid (CPU: parallel tasks)"),
    "S7": ("elements", "contiguous in a global access"),
    "S8": ("operations", "of the statement"),
    "S9": ("products", "of a warp's tensor core that do not wait for each other"),
    "S10": ("multiply-adds", "of one instruction of such a product"),
}
"""Unit and meaning of each symbol."""

FLOAT_OPS = ("add", "mul", "div")
"""Kinds of operations that count as floating-point work in the released code."""

_GRID = (LoopKind.BLOCK, LoopKind.PARALLEL)
_UNITS = (LoopKind.THREAD, LoopKind.VECTORIZED)


@dataclass(frozen=True)
class Symbols:
    """S1..S10 of one statement, float64 (N,) each; see the module's table."""

    s1: FloatArray
    s2: FloatArray
    s3: FloatArray
    s4: FloatArray
    s5: FloatArray
    s6: FloatArray
    s7: FloatArray
    s8: FloatArray
    s9: FloatArray
    s10: FloatArray


def operations(statement: Statement, kinds: tuple[str, ...] | None = None) -> FloatArray:
    """Operations of one iteration, of some kinds (all of them when None), (N,)."""
    total = np.zeros(len(statement.alive))
    for kind, count in statement.ops.items():
        if kinds is None or kind in kinds:
            total = total + count
    return total


def symbols(program: SketchProgram) -> tuple[Symbols, ...]:
    """The symbols of every statement, in program order."""
    return tuple(symbols_of(nest_of(s, program), program) for s in program.statements)


def symbols_of(nest: Nest, program: SketchProgram) -> Symbols:
    """The symbols of one statement."""
    grid = np.isin(nest.kinds, _GRID)
    units = np.isin(nest.kinds, _UNITS)
    alive = nest.statement.alive
    tasks = nest.product(grid)
    lanes = nest.product(units)
    within = _below(grid)
    values = (
        register_tile(nest, grid | (units if program.gpu is not None else False)),
        nest.trips[-1] / tasks / (lanes if program.gpu is not None else 1.0),
        _staged(nest, program, within),
        lanes,
        _global_traffic(nest, within),
        tasks,
        _shortest_run(nest, _copy_level(nest, grid)),
        nest.trips[-1] / nest.cooperating_threads * operations(nest.statement),
        *_tensor(nest, grid | units),
    )
    return Symbols(*(np.where(alive, value, 0.0) for value in values))


def register_tile(nest: Nest, outside: BoolArray) -> FloatArray:
    """S1: per accessed buffer, the product of the spatial loops of a thread that move it.

    Parameters
    ----------
    outside
        bool (P, N): loops spread over units (blocks, threads, tasks), which do not count.
    """
    total = np.zeros(nest.rows)
    for touch in nest.touches:
        free = ~outside & ~nest.reduces & (touch.strides != 0)
        total += np.where(touch.mask, nest.product(free), 0.0)
    return total


def _tensor(nest: Nest, outside: BoolArray) -> tuple[FloatArray, FloatArray]:
    """S9 and S10: accumulator tiles of a warp, and multiply-adds of one instruction of it."""
    accumulators = [t for t in nest.touches if t.write and is_fragment(t.buffer)]
    if not nest.statement.reduction or not accumulators:
        return np.zeros(nest.rows), np.zeros(nest.rows)
    free = ~outside & ~nest.reduces & (accumulators[0].strides != 0)
    work = operations(nest.statement, ("mul",)) / nest.statement.steps
    return nest.product(free) * np.ones(nest.rows), work


def global_touches(nest: Nest) -> tuple[Touch, ...]:
    """The touches of buffers in global memory."""
    return tuple(t for t in nest.touches if t.is_global)


def _below(chosen: BoolArray) -> IntArray:
    """Level just below the innermost chosen loop, per row; 0 where there is none."""
    depth = len(chosen)
    if depth == 0:
        return np.zeros(chosen.shape[1], np.int64)
    last = depth - chosen[::-1].argmax(axis=0)
    return np.where(chosen.any(axis=0), last, 0)


def _copy_level(nest: Nest, grid: BoolArray) -> IntArray:
    """Where the tile of a copy starts: below the grid, virtual threads and reduction loops."""
    if nest.statement.role not in (Role.LOAD, Role.STORE):
        return _below(grid)
    outer = grid | (nest.kinds == LoopKind.VTHREAD) | nest.reduces
    return _below(outer)


def _staged(nest: Nest, program: SketchProgram, within: IntArray) -> FloatArray:
    total = np.zeros(nest.rows)
    if program.gpu is not None:
        for touch in nest.touches:
            if touch.buffer.scope.startswith("shared"):
                total += np.where(touch.mask, touch.buffer.alloc, 0)
        return total
    level = np.maximum(_outermost_reduction(nest), within)
    for touch in nest.touches:
        if touch.read:
            total += np.where(touch.mask, at_level(touch.region, level), 0.0)
    return total


def _outermost_reduction(nest: Nest) -> IntArray:
    """Level just below the outermost reduction loop; P without one."""
    there = nest.reduces & (nest.extents > 1)
    if not len(there):
        return np.zeros(nest.rows, np.int64)
    return np.where(there.any(axis=0), there.argmax(axis=0) + 1, nest.depth)


def _global_traffic(nest: Nest, within: IntArray) -> FloatArray:
    total = np.zeros(nest.rows)
    for touch in global_touches(nest):
        moved = at_level(touch.region, within) * at_level(nest.trips, within)
        total += np.where(touch.mask, moved, 0.0)
    return total


def _shortest_run(nest: Nest, level: IntArray) -> FloatArray:
    shortest = np.full(nest.rows, np.inf)
    for touch in global_touches(nest):
        run = at_level(touch.run, level)
        shortest = np.where(touch.mask, np.minimum(shortest, run), shortest)
    return np.where(np.isfinite(shortest), shortest, 1.0)
