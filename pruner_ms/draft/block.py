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
    negate,
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
from pruner_ms.hardware import CpuCore
from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.program import LoopKind, Statement

# What LLVM's own passes do to the code around a block, beyond what the schedule says.


GATHER_PARTS = 2
"""Registers of addresses that a gather of one register of elements takes (64 against 32 bits)."""

FEW_TASKS = 8
"""Tasks of a parallel loop, per lane, below which its cores have too few to do several at once."""


def widened_by_llvm(nest: Nest, inside: list[Mask], scalar: Mask, lanes: int) -> Num:
    """Gain of LLVM's own vectoriser on a scalar block; 1 where it has nothing to do.

    It takes the innermost loop that is left (the one around the block) if every access is
    contiguous or constant along it; what does not fill a register is done in smaller powers of two.
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


def sums_alone(nest: Nest, scalar: Mask) -> Mask:
    """Rows in which each task of a parallel loop adds up one sum, and does nothing else."""
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
    """Gain of LLVM's vectoriser on the tasks of a parallel loop; 1 where it has nothing to do.

    A core runs its tasks in a loop. Where a task is straight-line code that adds up one sum,
    several are done as one: the sums are contiguous, what else is not contiguous is gathered.

    Parameters
    ----------
    alone
        `sums_alone` of the nest.

    Returns
    -------
    tuple of Num and list of Mask
        The gain, and per touch the rows in which its elements are gathered.
    """
    gathered: list[Mask] = [False] * len(nest.touches)
    together = max(lanes // GATHER_PARTS, 1)
    if not possible(alone) or together == 1:
        return 1.0, gathered
    takes: Mask = False
    for p in range(nest.depth - 1, -1, -1):
        within = alone if p + 1 == nest.depth else both(inside[p + 1], alone)
        if not possible(within):
            break
        here = both(without(within, inside[p]), truth(nest.sizes[p] >= FEW_TASKS * together))
        if nest.reduction[p] or not possible(here):
            continue
        here = both(here, _alone(nest, p))
        for touch in nest.touches:
            if touch.write:
                here = both(here, either(negate(touch.exists), _follows(touch, p)))
        for i, touch in enumerate(nest.touches):
            gathered[i] = either(gathered[i], without(both(here, touch.exists), _follows(touch, p)))
        takes = either(takes, here)
    return select(takes, float(together), 1.0), gathered


def _alone(nest: Nest, loop: int) -> Mask:
    """Rows in which what is fused into a loop from above does not iterate."""
    alone: Mask = True
    going: Mask = True
    for p in range(loop, 0, -1):
        going = without(going, nest.bounds[p])
        if not possible(going):
            break
        alone = without(alone, both(going, nest.runs(p - 1)))
    return alone


def hoisted_by_llvm(nest: Nest, inside: list[Mask]) -> Num:
    """Runs of a block that LLVM saves: straight-line code that no access of which moves along the
    serial loops right around it is computed once, before them."""
    found: Num = 1.0
    going: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        above = both(going, without(nest.runs(p), inside[p]))
        # a step of a reduction adds to the one before, whatever it reads
        takes = False if nest.reduction[p] else both(above, nest.is_kind(p, LoopKind.SERIAL))
        for touch in nest.touches:
            if not possible(takes):
                break
            # a staged copy that does not move is filled anew in each pass
            stands = False if touch.buffer.staged and not touch.write else touch.still(p)
            takes = both(takes, either(negate(touch.exists), stands))
        if possible(takes):
            found = times(found, select(takes, nest.sizes[p], 1.0))
        going = without(going, without(above, takes))
        if not possible(going):
            break
    return found


def _follows(touch: Touch, loop: int) -> Mask:
    """Whether an access is contiguous along a loop, or a read that does not move."""
    unit = truth(touch.pace(loop) == 1)
    return unit if touch.write else either(unit, touch.still(loop))


def _pieces_of(extent: Num, lanes: int) -> Num:
    """Vectors of at most `lanes` elements (a power of two), each a power of two, in an extent."""
    parts = np.array([bin(n).count("1") for n in range(lanes)], np.float32)
    if isinstance(extent, float):
        return float(extent // lanes + parts[int(extent) % lanes])
    counts = extent.astype(np.int32)
    found: Num = np.floor(extent * (1.0 / lanes)) + parts[counts & (lanes - 1)]
    return found


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
