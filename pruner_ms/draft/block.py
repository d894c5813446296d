"""The innermost straight-line block of a statement: what is unrolled, and its instructions.

TVM unrolls from the inside out while the product of the unrolled extents stays within
`pragma_auto_unroll_max_step` (tirx/transform/unroll_loop.cc); LLVM then fully unrolls small loops
on its own. What is unrolled together with the vectorised loop is one block of vector
instructions, whose loads are shared and whose sums may stay in registers.

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
    Mask,
    Num,
    Whole,
    both,
    ceiling,
    either,
    larger,
    number,
    possible,
    select,
    smaller,
    times,
    total,
    truth,
    without,
)
from pruner_ms.draft.nest import Nest
from pruner_ms.draft.touch import Touch
from pruner_ms.draft.widening import (
    gathered_by_llvm,
    hoisted_by_llvm,
    sums_alone,
    widened_by_llvm,
)
from pruner_ms.hardware import CpuCore
from pruner_ms.symbolic import forms
from pruner_ms.symbolic.program import LoopKind, Statement

LLVM_UNROLL, LLVM_UNROLL_SUM = 36.0, 72.0
"""Vector instructions up to which LLVM unrolls a loop by itself (threshold 300 in its own units,
of which a multiply-add with its loads costs about eight), and steps of a
task that adds up one sum (about four each: seen to be unrolled at 64, not at 128)."""

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
"""Vector instructions that one operation costs; "guard" is scalar code that is mostly moved out of
the inner loops, "special" is called: see `called`, which knows "library" as well."""

CALL_CYCLES, UNPACK_CYCLES = 10.0, 4.0
"""Cycles of a call of the mathematical library (exp, tanh), which LLVM makes element by element,
and those of taking an element out of a vector for it. Measured for exp alone: 7 and 3; registers do
not survive a call, and with 10 and 4 softmax was ranked best."""

MATH_CYCLES = 12.0
"""Cycles of exp for a vector register where it is vector code (`CpuCore.vector_math`): some 25
instructions, two or three in a cycle."""


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
    strides: tuple[Whole, ...]

    def at(self, values: Callable[[int], Num], depth: int) -> Num:
        """What `values(level)` is at the block's level."""
        found = within = values(depth)
        for p in range(depth - 1, -1, -1):
            if self.inside[p] is False:
                break
            value = values(p)
            if value is not within:
                found, within = select(self.inside[p], value, found), value
        return found


def block_of(nest: Nest, core: CpuCore, itemsize: int) -> Block:
    """Find the block of a statement on a CPU."""
    lanes = core.vector_bytes // itemsize
    vector = nest.of_kind(LoopKind.VECTORIZED)
    pieces = ceiling(vector * (1.0 / lanes))
    explicit = number(nest.statement.unroll)
    scalar = truth(vector <= 1)
    calling = "library" if core.vector_math else "special"
    scalar = without(scalar, truth(calls_of(nest.statement, calling) > 0))
    alone = sums_alone(nest, scalar)
    budget = select(alone, LLVM_UNROLL_SUM, LLVM_UNROLL / pieces)
    inside = _block_loops(unrolled_loops(nest, larger(explicit, budget))[0], nest)
    size = nest.product(inside)
    widened: Num = 1.0
    gathered: list[Mask] = [False] * len(nest.touches)
    if possible(scalar):
        several, gathered = gathered_by_llvm(nest, inside, alone, lanes)
        widened = select(scalar, widened_by_llvm(nest, inside, scalar, lanes), 1.0) * several
    strides = [vector_stride(nest, touch) for touch in nest.touches]
    found = Block(
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
            select(touch.exists, distinct_vectors(nest, touch, stride, found), 0.0),
            select(apart, times(widened, core.gather_loads), 1.0),
        )
        for touch, stride, apart in zip(nest.touches, strides, gathered, strict=True)
    )
    return replace(found, vectors=vectors)


def _ragged(vector: Num, lanes: int) -> Mask:
    if isinstance(vector, float):
        return vector > lanes and bool(int(vector) & (int(vector) - 1))
    counts = vector.astype(np.int32)
    return truth((counts > lanes) & ((counts & (counts - 1)) != 0))


def unrolled_loops(nest: Nest, budget: Num) -> tuple[list[Mask], Num]:
    """Which loops are unrolled when the product of their extents may reach a budget, and that
    product."""
    out: list[Mask] = [False] * nest.depth
    pragmas = any(possible(mask) for mask in nest.kind_masks(LoopKind.UNROLLED))
    if isinstance(budget, float) and budget < 2 and not pragmas:
        return out, 1.0
    extents, several = nest.groups, nest.several
    steps: Num = 1.0
    open_: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        if several[p] is False:
            continue
        # a fused loop's other parts have an extent of 1 here: they neither count nor stop anything
        longer = times(steps, extents[p])
        fits = both(nest.is_kind(p, LoopKind.SERIAL), truth(longer <= budget))
        fits = either(nest.is_kind(p, LoopKind.UNROLLED), fits)
        here = both(open_, several[p])
        out[p] = both(here, fits)
        if possible(out[p]):
            steps = select(out[p], longer, steps)
        ends = without(without(here, out[p]), nest.is_kind(p, LoopKind.VECTORIZED))
        open_ = without(open_, ends)
        if not possible(open_):
            break
    return _spread(out, nest), steps


def _spread(first: list[Mask], nest: Nest) -> list[Mask]:
    """Carry a verdict on a fused loop's first part over to its other parts."""
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


def vector_stride(nest: Nest, touch: Touch) -> Whole:
    """Elements between neighbouring lanes, not negative; 0 where all lanes read one element."""
    stride: Whole = 0
    for p, here in nest.lanes:
        step = touch.pace(p)
        stride = forms.select(here, step, stride)
    return stride


def distinct_vectors(nest: Nest, touch: Touch, stride: Whole, block: Block) -> Num:
    """Loads (or stores) of a touch that a block cannot avoid."""
    return _vectors(block.at(touch.elements, nest.depth), stride, block)


def vectors_at(touch: Touch, stride: Whole, block: Block, level: int) -> Num:
    """The same of one pass of a loop in the block: of what is touched at a level."""
    return _vectors(touch.elements(level), stride, block)


def _vectors(elements: Num, stride: Whole, block: Block) -> Num:
    """Accesses for so many elements.

    Contiguous lanes share a register-wide access, one element is broadcast, anything else takes
    an access and an insertion per lane.
    """
    wide = elements / block.vector * block.pieces
    if isinstance(stride, int):
        return wide if stride == 1 else elements * (1.0 if stride == 0 else 2.0)
    return select(truth(stride == 1), wide, select(truth(stride == 0), elements, elements * 2.0))


def calls_of(statement: Statement, kind: str = "special") -> Num:
    """Mathematical functions in one iteration; "library": those that no CPU has vector code of."""
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
    """Vector instructions of one step; a multiplication joins an addition (FMA)."""
    counts = {kind: number(count) for kind, count in statement.ops.items()}
    done = total(times(count, OP_CYCLES.get(kind, 1.0)) for kind, count in counts.items())
    return done - smaller(counts.get("add", 0.0), counts.get("mul", 0.0))
