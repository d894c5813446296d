"""LLVM's compile time of a statement.

Three costs, fitted to 3500 builds of ten `llvm` pools:

loops      remaining loops; each costs more the deeper the nest
accesses   unrolled by TVM; a strided vector is assembled element by element, and its cost
           grows with a high power of its length
chain      dependent comparisons (a maximum over an unrolled axis) carried by a loop: LLVM's
           analysis of that loop visits both uses of every link, so each doubles the time
"""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.block import Block, unrolled_loops
from pruner_ms.draft.columns import Num, number, select, smaller, total, truth
from pruner_ms.draft.nest import Nest
from pruner_ms.symbolic.program import LoopKind
from pruner_ms.symbolic.rows import Mask, both, either, negate, possible, without

SECONDS_PER_DEPTH = 1.5e-3
"""Factor (seconds) of the square of the number of remaining serial loops."""

SECONDS_PER_ROOT = 2e-3
SECONDS_PER_ACCESS = 8e-5
"""Factors (seconds) of the root of the number of unrolled vector accesses, and of their number.
Merged accesses are cheaper, and where there are few, LLVM merges a smaller part of them."""

SECONDS_PER_ELEMENT = 1e-4
SECONDS_PER_LONG = 7e-9
"""Factors (seconds) of the length of a strided vector, and of its fourth power
(docs/constants.md)."""

CHAIN_SECOND = 24.5
"""Links of a chain of comparisons that take a second (docs/constants.md)."""

CHAIN_FREE = 12.0
"""Links below which a chain costs nothing."""

CHAIN_WORST = 34.0
"""Links at which the estimate is capped."""

CHAIN_KEPT = 125.0
"""Links up to which LLVM keeps a chain's result in a register over a loop. That of a longer chain
goes through memory; such a chain is slow to compile only where no access moves along the loop
(docs/constants.md)."""

CHAIN_BESIDE = 2.0
"""Most results side by side with which the compile time explodes (docs/constants.md)."""


def statement_seconds(nest: Nest, block: Block) -> Num:
    """Seconds of compiling a statement, a column."""
    explicit = number(nest.statement.unroll)
    unrolled, steps = unrolled_loops(nest, explicit)
    plain, strided = _accesses(nest, block)
    seconds = _square(_left(nest, unrolled)) * SECONDS_PER_DEPTH
    accesses = plain * steps
    seconds = seconds + np.sqrt(accesses) * SECONDS_PER_ROOT + accesses * SECONDS_PER_ACCESS
    if isinstance(strided, np.ndarray) or strided:
        vector = block.vector
        each = vector * SECONDS_PER_ELEMENT + _square(_square(vector)) * SECONDS_PER_LONG
        seconds = seconds + strided * steps * each
    return seconds + chain_seconds(nest, explicit)


def _square(value: Num) -> Num:
    return value * value


def _left(nest: Nest, unrolled: list[Mask]) -> Num:
    """Number of serial loops around a statement that are not unrolled."""
    fixed, varying = 0.0, None
    for p in range(nest.depth):
        serial = without(both(nest.runs(p), nest.is_kind(p, LoopKind.SERIAL)), unrolled[p])
        if isinstance(serial, bool):
            fixed += serial
        elif varying is None:
            varying = serial.astype(np.int8)
        else:
            varying += serial
    return fixed if varying is None else varying.astype(np.float32) + np.float32(fixed)


def _accesses(nest: Nest, block: Block) -> tuple[Num, Num]:
    """Accesses of one step: vector registers of the plain ones, number of the strided ones."""
    plain: list[Num] = []
    strided: list[Num] = []
    for touch, stride in zip(nest.touches, block.strides, strict=True):
        apart = both(truth(stride > 1), truth(block.vector > 1))
        if possible(apart):
            strided.append(_one(both(touch.exists, apart)))
        plain.append(select(without(touch.exists, apart), block.pieces, 0.0))
    return total(plain), total(strided)


def chain_seconds(nest: Nest, explicit: Num) -> Num:
    """Seconds of a chain of comparisons in the innermost remaining loop, a column.

    Parameters
    ----------
    explicit
        `pragma_auto_unroll_max_step`.
    """
    links = nest.statement.ops.get("cmp")
    if not nest.statement.reduction or links is None or not links.any():
        return 0.0
    steps: Num = 1.0
    chain: Num = 1.0
    beside: Num = 1.0
    seconds: Num = 0.0
    open_: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        if not possible(open_):
            break
        reached = without(both(open_, nest.runs(p)), nest.is_kind(p, LoopKind.VECTORIZED))
        if not possible(reached):
            continue
        feeds = _feeds(nest, p)
        # the consumer of a partial result is a statement of the same loop
        body = (steps + _one(feeds)) * nest.sizes[p]
        serial = nest.is_kind(p, LoopKind.SERIAL)
        fits = either(nest.is_kind(p, LoopKind.UNROLLED), both(serial, truth(body <= explicit)))
        unrolled, ends = both(reached, fits), without(reached, fits)
        slow = both(_explodes(nest, p, chain, beside), both(ends, serial))
        if possible(slow):
            seconds = select(slow, np.exp2(smaller(chain, CHAIN_WORST) - CHAIN_SECOND), seconds)
        open_ = without(open_, ends)
        if not possible(unrolled):
            continue
        steps = select(unrolled, body, steps)
        if not nest.reduction[p]:
            beside = select(unrolled, beside * nest.sizes[p], beside)
        elif possible(alone := without(unrolled, feeds)):
            chain = select(alone, chain * nest.sizes[p], chain)
    return seconds


def _one(mask: Mask) -> Num:
    """1 where a mask holds, 0 elsewhere."""
    return float(mask) if isinstance(mask, bool) else mask.astype(np.float32)


def _explodes(nest: Nest, loop: int, chain: Num, beside: Num) -> Mask:
    """Rows in which a chain takes long if this loop is the innermost remaining one."""
    if isinstance(chain, float) and chain < CHAIN_FREE:
        return False
    long = truth(chain > CHAIN_KEPT)
    if nest.reduction[loop]:
        slow = without(truth(chain >= CHAIN_FREE), long)
    else:
        slow = both(long, _still(nest, loop)) if possible(long) else False
    return both(slow, truth(beside <= CHAIN_BESIDE))


def _feeds(nest: Nest, loop: int) -> Mask:
    """Whether a loop reduces over the statement's output, not its input (`rfactor`)."""
    feeds: Mask = False
    if nest.reduction[loop]:
        for touch in nest.touches:
            if touch.read and touch.write:
                feeds = either(feeds, without(touch.exists, touch.still(loop)))
    return feeds


def _still(nest: Nest, loop: int) -> Mask:
    """Whether no access moves along a loop."""
    still: Mask = True
    for touch in nest.touches:
        still = both(still, either(negate(touch.exists), touch.still(loop)))
    return still
