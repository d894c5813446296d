"""The innermost straight-line block of a statement: what is unrolled, and its instructions.

TVM unrolls from the inside out while the product of the unrolled extents stays within
`pragma_auto_unroll_max_step` (tirx/transform/unroll_loop.cc); LLVM then fully unrolls small loops
on its own. What is unrolled together with the vectorised loop is one block of vector
instructions, whose loads are shared and whose accumulators may stay in registers.

Notation
--------
V        elements of the vectorised loop, 1 where there is none
lanes    elements of a vector register
level u  outermost level of the block: loops u..P-1 are unrolled or vectorised
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pruner_ms.draft.columns import (
    Int,
    Num,
    ceiling,
    larger,
    number,
    select,
    smaller,
    times,
    total,
    truth,
)
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.touch import Touch
from pruner_ms.hardware import CpuCore
from pruner_ms.symbolic.program import LoopKind, Statement
from pruner_ms.symbolic.rows import Mask, both, either, negate, possible, without
from pruner_ms.symbolic.rows import select as select_integer

# Transformations of LLVM's own, beyond what the schedule says.

GATHER_PARTS = 2
"""Address registers per register of gathered elements (64 against 32 bits)."""

FEW_TASKS = 8
"""Least tasks of a parallel loop, per lane, for which LLVM vectorises over tasks."""


def widened_by_llvm(nest: Nest, inside: list[Mask], scalar: Mask, lanes: int) -> Num:
    """Speedup by LLVM's loop vectoriser on a scalar block; 1 where it does not apply.

    It vectorises the innermost remaining loop (the one around the block) if every access is
    contiguous or constant along it; the remainder is done in smaller powers of two.
    """
    extent: Num = 1.0
    for p in range(nest.depth - 1, -1, -1):
        within = scalar if p + 1 == nest.depth else both(inside[p + 1], scalar)
        if not possible(within):
            break
        takes = without(within, inside[p])
        if nest.reduction[p] or not possible(takes):
            continue
        takes = both(takes, nest.is_kind(p, LoopKind.SERIAL))
        for touch in nest.touches:
            if not possible(takes):
                break
            takes = both(takes, either(negate(touch.exists), _follows(touch, p)))
        if possible(takes):
            extent = select(takes, nest.sizes[p], extent)
    return extent / _pieces_of(extent, lanes)


def is_scalar_reduction_task(nest: Nest, scalar: Mask) -> Mask:
    """Rows in which each task of a parallel loop is one scalar reduction."""
    alone = both(scalar, nest.statement.reduction)
    for p in range(nest.depth):
        if not possible(alone):
            break
        if not nest.reduction[p]:
            alone = without(alone, without(nest.runs(p), nest.is_kind(p, LoopKind.PARALLEL)))
    return both(alone, truth(nest.of_kind(LoopKind.PARALLEL) > 1))


def gathered_by_llvm(
    nest: Nest, inside: list[Mask], alone: Mask, lanes: int
) -> tuple[Num, list[Mask]]:
    """Speedup by LLVM's vectoriser over the tasks of a parallel loop; 1 where it does not apply.

    A core runs its tasks in a loop. Where a task is a scalar reduction in straight-line code,
    several run in one vector: the accumulators are contiguous, other operands may be gathered.

    Parameters
    ----------
    alone
        `is_scalar_reduction_task` of the nest.

    Returns
    -------
    tuple of Num and list of Mask
        The speedup, and per touch the rows in which its elements are gathered.
    """
    gathered: list[Mask] = [False] * len(nest.touches)
    together = max(lanes // GATHER_PARTS, 1)
    if not possible(alone) or together == 1:
        return 1.0, gathered
    widened_rows: Mask = False
    for p in range(nest.depth - 1, -1, -1):
        within = alone if p + 1 == nest.depth else both(inside[p + 1], alone)
        if not possible(within):
            break
        rows = both(without(within, inside[p]), truth(nest.sizes[p] >= FEW_TASKS * together))
        if nest.reduction[p] or not possible(rows):
            continue
        rows = both(rows, _alone(nest, p))
        for touch in nest.touches:
            if touch.write:
                rows = both(rows, either(negate(touch.exists), _follows(touch, p)))
        for i, touch in enumerate(nest.touches):
            gathered[i] = either(gathered[i], without(both(rows, touch.exists), _follows(touch, p)))
        widened_rows = either(widened_rows, rows)
    return select(widened_rows, float(together), 1.0), gathered


def _alone(nest: Nest, loop: int) -> Mask:
    """Rows in which the loops fused into this one from above have one iteration."""
    alone: Mask = True
    fused: Mask = True
    for p in range(loop, 0, -1):
        fused = without(fused, nest.bounds[p])
        if not possible(fused):
            break
        alone = without(alone, both(fused, nest.runs(p - 1)))
    return alone


def hoisted_by_llvm(nest: Nest, inside: list[Mask]) -> Num:
    """Factor by which loop-invariant code motion reduces the runs of a block.

    LLVM hoists the block out of the serial loops right around it along which no access moves.
    """
    saved: Num = 1.0
    outermost_so_far: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        above = both(outermost_so_far, without(nest.runs(p), inside[p]))
        # a step of a reduction depends on the one before
        takes = False if nest.reduction[p] else both(above, nest.is_kind(p, LoopKind.SERIAL))
        for touch in nest.touches:
            if not possible(takes):
                break
            # a staged copy that does not move is refilled in each iteration
            stands = False if touch.buffer.staged and not touch.write else touch.still(p)
            takes = both(takes, either(negate(touch.exists), stands))
        if possible(takes):
            saved = times(saved, select(takes, nest.sizes[p], 1.0))
        outermost_so_far = without(outermost_so_far, without(above, takes))
        if not possible(outermost_so_far):
            break
    return saved


def _follows(touch: Touch, loop: int) -> Mask:
    """Whether an access is contiguous along a loop, or a read that does not move."""
    unit = truth(touch.pace(loop) == 1)
    return unit if touch.write else either(unit, touch.still(loop))


def _pieces_of(extent: Num, lanes: int) -> Num:
    """Vectors that cover an extent: powers of two, of at most `lanes` (a power of two) elements."""
    parts = np.array([bin(n).count("1") for n in range(lanes)], np.float32)
    if isinstance(extent, float):
        return float(extent // lanes + parts[int(extent) % lanes])
    counts = extent.astype(np.int32)
    pieces: Num = np.floor(extent * (1.0 / lanes)) + parts[counts & (lanes - 1)]
    return pieces


LLVM_UNROLL, LLVM_UNROLL_SUM = 36.0, 72.0
"""Vector instructions up to which LLVM unrolls a loop by itself, and steps of a scalar reduction
(docs/constants.md)."""

OP_CYCLES = {
    "add": 1.0,
    "mul": 1.0,
    "div": 5.0,
    "cmp": 1.0,
    "special": 0.0,
    "library": 0.0,
    "int": 1.0,
    "guard": 0.4,
}
"""Vector instructions per operation; "guard" is scalar code that is mostly hoisted out of the inner
loops; calls ("special", "library") are counted by `called`."""

CALL_CYCLES, UNPACK_CYCLES = 10.0, 4.0
"""Cycles of a scalar call of the mathematical library (exp, tanh), and of extracting an element of
a vector for it (docs/constants.md)."""

MATH_CYCLES = 12.0
"""Cycles of exp per vector register with vector code (`CpuCore.vector_math`): some 25 instructions,
two or three in a cycle."""


@dataclass(frozen=True)
class Block:
    """The block of a statement, in columns.

    Attributes
    ----------
    inside
        Per loop, the rows in which it belongs to the block.
    count
        How often the block runs.
    steps
        Iterations in it, each of V elements.
    vector
        V.
    pieces
        Vector registers that V elements fill: instructions per operation of one step.
    ragged
        Whether V is longer than a register and not a power of two.
    vectors
        Per touch of the nest: loads (or stores) that the block cannot avoid.
    strides
        Per touch: see `vector_stride`.
    """

    inside: list[Mask]
    count: Num
    steps: Num
    vector: Num
    pieces: Num
    ragged: Mask
    vectors: tuple[Num, ...]
    strides: tuple[Int, ...]

    def at(self, values: Callable[[int], Num], depth: int) -> Num:
        """`values(u)`: a quantity at the outermost level of the block, row by row."""
        chosen = within = values(depth)
        for p in range(depth - 1, -1, -1):
            if self.inside[p] is False:
                break
            value = values(p)
            if value is not within:
                chosen, within = select(self.inside[p], value, chosen), value
        return chosen


def block_of(nest: Nest, core: CpuCore, itemsize: int) -> Block:
    """Find the block of a statement on a CPU."""
    lanes = core.vector_bytes // itemsize
    vector = nest.of_kind(LoopKind.VECTORIZED)
    pieces = ceiling(vector * (1.0 / lanes))
    explicit = number(nest.statement.unroll)
    scalar = truth(vector <= 1)
    calling = "library" if core.vector_math else "special"
    scalar = without(scalar, truth(calls_of(nest.statement, calling) > 0))
    scalar_reduction = is_scalar_reduction_task(nest, scalar)
    budget = select(scalar_reduction, LLVM_UNROLL_SUM, LLVM_UNROLL / pieces)
    inside = _block_loops(unrolled_loops(nest, larger(explicit, budget))[0], nest)
    size = nest.product(inside)
    widened: Num = 1.0
    gathered: list[Mask] = [False] * len(nest.touches)
    if possible(scalar):
        tasks_at_once, gathered = gathered_by_llvm(nest, inside, scalar_reduction, lanes)
        widened = select(scalar, widened_by_llvm(nest, inside, scalar, lanes), 1.0) * tasks_at_once
    strides = [vector_stride(nest, touch) for touch in nest.touches]
    block = Block(
        inside=inside,
        count=nest.above(nest.depth) / (size * widened * hoisted_by_llvm(nest, inside)),
        steps=size / vector,
        vector=vector,
        pieces=pieces,
        ragged=_ragged(vector, lanes),
        vectors=(),
        strides=tuple(strides),
    )
    vectors = tuple(
        # a gather takes loads for each of its elements
        times(
            select(touch.exists, distinct_vectors(nest, touch, stride, block), 0.0),
            select(apart, times(widened, core.gather_loads), 1.0),
        )
        for touch, stride, apart in zip(nest.touches, strides, gathered, strict=True)
    )
    return replace(block, vectors=vectors)


def _ragged(vector: Num, lanes: int) -> Mask:
    if isinstance(vector, float):
        return vector > lanes and bool(int(vector) & (int(vector) - 1))
    counts = vector.astype(np.int32)
    return truth((counts > lanes) & ((counts & (counts - 1)) != 0))


def unrolled_loops(nest: Nest, budget: Num) -> tuple[list[Mask], Num]:
    """The loops unrolled within a budget for the product of their extents, and that product."""
    out: list[Mask] = [False] * nest.depth
    pragmas = any(possible(mask) for mask in nest.kind_masks(LoopKind.UNROLLED))
    if isinstance(budget, float) and budget < 2 and not pragmas:
        return out, 1.0
    extents, iterates = nest.groups, nest.group_iterates
    steps: Num = 1.0
    open_: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        if iterates[p] is False:
            continue
        # the other parts of a fused loop have an extent of 1 here and are skipped
        longer = times(steps, extents[p])
        fits = both(nest.is_kind(p, LoopKind.SERIAL), truth(longer <= budget))
        fits = either(nest.is_kind(p, LoopKind.UNROLLED), fits)
        reached = both(open_, iterates[p])
        out[p] = both(reached, fits)
        if possible(out[p]):
            steps = select(out[p], longer, steps)
        ends = without(without(reached, out[p]), nest.is_kind(p, LoopKind.VECTORIZED))
        open_ = without(open_, ends)
        if not possible(open_):
            break
    return _spread(out, nest), steps


def _spread(first: list[Mask], nest: Nest) -> list[Mask]:
    """Extend a mask of a fused loop's first part to its other parts."""
    out = list(first)
    for p in range(1, nest.depth):
        if nest.bounds[p] is not True and possible(out[p - 1]):
            part = without(both(out[p - 1], nest.runs(p)), nest.bounds[p])
            out[p] = either(both(nest.bounds[p], out[p]), part)
    return out


def _block_loops(unrolled: list[Mask], nest: Nest) -> list[Mask]:
    """Per loop, the rows in which it and all loops within it are straight-line code."""
    out: list[Mask] = [False] * nest.depth
    inside: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        passes = either(unrolled[p], nest.is_kind(p, LoopKind.VECTORIZED))
        inside = without(inside, without(nest.runs(p), passes))
        if not possible(inside):
            break
        out[p] = inside
    return out


def vector_stride(nest: Nest, touch: Touch) -> Int:
    """Elements between neighbouring lanes, not negative; 0 where all lanes read one element."""
    stride: Int = 0
    for p, vectorised in nest.lanes:
        step = touch.pace(p)
        stride = select_integer(vectorised, step, stride)
    return stride


def distinct_vectors(nest: Nest, touch: Touch, stride: Int, block: Block) -> Num:
    """Loads (or stores) of a touch that a block cannot avoid."""
    return _vectors(block.at(touch.elements, nest.depth), stride, block)


def vectors_at(touch: Touch, stride: Int, block: Block, level: int) -> Num:
    """`distinct_vectors` of the region at a level: of one iteration of the loop around it."""
    return _vectors(touch.elements(level), stride, block)


def _vectors(elements: Num, stride: Int, block: Block) -> Num:
    """Accesses for so many elements.

    Contiguous lanes share a register-wide access, one element is broadcast, anything else takes
    an access and an insertion per lane.
    """
    wide = elements / block.vector * block.pieces
    if isinstance(stride, int):
        return wide if stride == 1 else elements * (1.0 if stride == 0 else 2.0)
    return select(truth(stride == 1), wide, select(truth(stride == 0), elements, elements * 2.0))


def calls_of(statement: Statement, kind: str = "special") -> Num:
    """Mathematical functions in one iteration; "library": those without vector code on any CPU."""
    return number(statement.ops[kind]) if kind in statement.ops else 0.0


def called(statement: Statement, vector: Num, pieces: Num, core: CpuCore) -> Num:
    """Cycles that the mathematical functions of one step take."""
    each = select(truth(vector > 1), CALL_CYCLES + UNPACK_CYCLES, CALL_CYCLES)
    if not core.vector_math:
        return times(calls_of(statement), vector * each)
    calls = calls_of(statement, "library")
    vectors = calls_of(statement) - calls
    return times(calls, vector * each) + times(vectors, pieces * MATH_CYCLES)


def arithmetic(statement: Statement) -> Num:
    """Vector instructions of one step; a multiplication and an addition count as one (FMA)."""
    counts = {kind: number(count) for kind, count in statement.ops.items()}
    done = total(times(count, OP_CYCLES.get(kind, 1.0)) for kind, count in counts.items())
    return done - smaller(counts.get("add", 0.0), counts.get("mul", 0.0))
