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

from dataclasses import dataclass

import numpy as np

from pruner_ms.draft.nest import Nest, Touch, at_level, group_extents
from pruner_ms.hardware import CpuCore
from pruner_ms.symbolic.program import LoopKind, Statement
from pruner_ms.types import BoolArray, FloatArray, IntArray

LLVM_UNROLL = 36.0
"""Vector instructions up to which LLVM unrolls a loop by itself (threshold 300 in its own units,
of which a multiply-add with its loads costs about eight)."""

STRIDED_COMPILE = 4.0
"""Vector accesses that cost the compiler as much as one element of a strided vector."""

OP_CYCLES = {"add": 1.0, "mul": 1.0, "div": 5.0, "cmp": 1.0, "special": 20.0, "int": 1.0}
"""Vector instructions that one operation costs; "special" is a polynomial of some twenty."""


@dataclass(frozen=True)
class Block:
    """The block of a statement; float64 (N,) unless said otherwise.

    Attributes
    ----------
    level
        Its outermost level u, int64 (N,).
    count
        How often it runs.
    steps
        Iterations in it, each of V elements.
    vector
        V.
    pieces
        Vector registers that V elements fill: instructions per operation of one step.
    ragged
        Whether V is longer than a register and not a power of two, bool (N,).
    vectors
        Per touch of the nest: loads (or stores) that the block cannot avoid.
    written_out
        Vector accesses that TVM's unrolling writes out, for the cost of compiling.
    """

    level: IntArray
    count: FloatArray
    steps: FloatArray
    vector: FloatArray
    pieces: FloatArray
    ragged: BoolArray
    vectors: tuple[FloatArray, ...]
    written_out: FloatArray


def block_of(nest: Nest, core: CpuCore, itemsize: int) -> Block:
    """Find the block of a statement on a CPU."""
    lanes = core.vector_bytes / itemsize
    vector = nest.of_kind(LoopKind.VECTORIZED)
    pieces = np.where(vector > 1, np.ceil(vector / lanes), 1.0)
    explicit = nest.statement.unroll.astype(np.float64)
    by_tvm = unrolled_loops(nest, explicit)
    by_llvm = unrolled_loops(nest, np.maximum(explicit, LLVM_UNROLL / pieces))
    level = _block_level(by_llvm, nest)
    inside = at_level(nest.trips, level)
    widened = np.where(vector > 1, 1.0, widened_by_llvm(nest, level, lanes))
    strides = [np.abs(vector_stride(nest, touch)) for touch in nest.touches]
    vectors = [
        np.where(touch.mask, distinct_vectors(touch, stride, level, vector, pieces), 0.0)
        for touch, stride in zip(nest.touches, strides, strict=True)
    ]
    accesses = np.zeros(nest.rows)
    for touch, stride in zip(nest.touches, strides, strict=True):
        # a strided vector is put together element by element
        accesses += touch.mask * np.where(stride > 1, STRIDED_COMPILE * vector, pieces)
    return Block(
        level=level,
        count=inside / widened,
        steps=nest.trips[-1] / inside / vector,
        vector=vector,
        pieces=pieces,
        ragged=(vector > lanes) & (np.exp2(np.round(np.log2(vector))) != vector),
        vectors=tuple(vectors),
        written_out=nest.product(by_tvm) * accesses,
    )


def widened_by_llvm(nest: Nest, level: IntArray, lanes: float) -> FloatArray:
    """Gain of LLVM's own vectoriser on a scalar block, (N,); 1 where it has nothing to do.

    It takes the innermost loop that is left (the one around the block) if every access is
    contiguous or constant along it; what does not fill a register is done in smaller powers of two.
    """
    if not nest.depth:
        return np.ones(nest.rows)
    around = np.maximum(level - 1, 0)
    takes = (level > 0) & (at_level(nest.kinds, around) == LoopKind.SERIAL)
    takes &= ~nest.reduction[around]
    for touch in nest.touches:
        along = np.abs(at_level(touch.strides, around))
        takes &= ~touch.mask | (along == 1) | ((along == 0) & (not touch.write))
    extent = np.where(takes, at_level(nest.extents, around), 1.0).astype(np.int64)
    return np.where(takes, extent / _pieces_of(extent, int(lanes)), 1.0)


def _pieces_of(extent: IntArray, lanes: int) -> IntArray:
    """Vectors of at most `lanes` elements (a power of two), each a power of two, in an extent."""
    pieces = extent // lanes
    size = lanes >> 1
    while size:
        pieces += (extent & size) > 0
        size >>= 1
    return pieces


def unrolled_loops(nest: Nest, budget: FloatArray) -> BoolArray:
    """Which loops are unrolled when the product of their extents may reach a budget, (P, N)."""
    out = np.zeros(nest.extents.shape, np.bool_)
    extents = group_extents(nest)
    steps = np.ones(nest.rows)
    open_ = np.ones(nest.rows, np.bool_)
    for p in range(nest.depth - 1, -1, -1):
        first, unit = nest.boundary[p], extents[p] <= 1
        serial = nest.kinds[p] == LoopKind.SERIAL
        forced = nest.kinds[p] == LoopKind.UNROLLED
        fits = forced | (serial & (steps * extents[p] <= budget))
        passes = (nest.kinds[p] == LoopKind.VECTORIZED) | unit
        take = open_ & fits & ~unit
        out[p] = take & first
        steps = np.where(take & first, steps * extents[p], steps)
        open_ = open_ & (fits | passes | ~first)
    return _spread(out, nest)


def _spread(first: BoolArray, nest: Nest) -> BoolArray:
    """Carry a verdict on a fused loop's first part over to its other parts."""
    out = first.copy()
    for p in range(1, nest.depth):
        out[p] = np.where(nest.boundary[p], out[p], out[p - 1] & (nest.extents[p] > 1))
    return out


def _block_level(unrolled: BoolArray, nest: Nest) -> IntArray:
    level = np.full(nest.rows, nest.depth, np.int64)
    inside = np.ones(nest.rows, np.bool_)
    for p in range(nest.depth - 1, -1, -1):
        passes = unrolled[p] | (nest.kinds[p] == LoopKind.VECTORIZED) | (nest.extents[p] <= 1)
        inside = inside & passes
        level = np.where(inside, p, level)
    return level


def vector_stride(nest: Nest, touch: Touch) -> IntArray:
    """Elements between neighbouring lanes, (N,); 0 where all lanes read one element."""
    stride = np.zeros(nest.rows, np.int64)
    seen = np.zeros(nest.rows, np.bool_)
    for p in range(nest.depth - 1, -1, -1):
        here = (nest.kinds[p] == LoopKind.VECTORIZED) & (nest.extents[p] > 1) & ~seen
        stride = np.where(here, touch.strides[p], stride)
        seen |= here
    return stride


def distinct_vectors(
    touch: Touch, stride: IntArray, level: IntArray, vector: FloatArray, pieces: FloatArray
) -> FloatArray:
    """Loads (or stores) of a touch that a block cannot avoid, (N,).

    Contiguous lanes share a register-wide access, one element is broadcast, anything else takes
    an access and an insertion per lane.
    """
    elements = at_level(touch.region, level)
    wide = elements / vector * pieces
    return np.where(stride == 1, wide, np.where(stride == 0, elements, 2.0 * elements))


def arithmetic(statement: Statement) -> FloatArray:
    """Vector instructions of one step, (N,); a multiplication joins an addition (FMA)."""
    total = np.zeros(len(statement.alive))
    for kind, count in statement.ops.items():
        total = total + OP_CYCLES.get(kind, 1.0) * count
    none = np.zeros(len(total), np.int64)
    fused: FloatArray = np.minimum(statement.ops.get("add", none), statement.ops.get("mul", none))
    return total - fused
