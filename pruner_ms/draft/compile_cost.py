"""Seconds that LLVM takes for a statement.

Three costs, fitted to 3500 builds of ten `llvm` pools:

loops      a loop that is left costs more the more of them are around it
accesses   what TVM's unrolling writes out; a strided vector is put together element by element,
           and the cost of one grows with a high power of its length
chain      comparisons in a row (a maximum over an unrolled axis) that a loop carries along: LLVM's
           analysis of that loop looks at both uses of every link, so each doubles the time
"""

from __future__ import annotations

import numpy as np

from pruner_ms.draft.block import Block, unrolled_loops
from pruner_ms.draft.columns import (
    Mask,
    Num,
    both,
    either,
    negate,
    number,
    possible,
    select,
    smaller,
    total,
    truth,
    without,
)
from pruner_ms.draft.nest import Nest
from pruner_ms.symbolic.program import LoopKind

SECONDS_PER_DEPTH = 1.5e-3
"""Of the square of the serial loops that are left around a statement."""

SECONDS_PER_ROOT = 2e-3
SECONDS_PER_ACCESS = 8e-5
"""Of the vector accesses written out: of their root, and of each. What LLVM can merge is cheaper,
and of a few accesses it merges less."""

SECONDS_PER_ELEMENT = 1e-4
SECONDS_PER_LONG = 7e-9
"""Of an element of a strided vector, and of the fourth power of the vector's length. (64 of them:
0.3 s with 8 elements, 0.7 s with 16, 1.4 s with 32, 10 s with 64.)"""

CHAIN_SECOND = 24.5
"""Links of a chain that take a second; measured 0.05 s with 20, 0.5 s with 24, 3 s with 26, and no
end within a minute with 32. (A chain of additions costs nothing.)"""

CHAIN_FREE = 12.0
"""Links that nothing is lost by."""

CHAIN_WORST = 34.0
"""Links after which it does not matter any more."""

CHAIN_KEPT = 125.0
"""Links up to which LLVM keeps a chain's result in a register over a loop (measured: 120 does,
128 does not). A longer one goes through memory, and no chain is carried; but when nothing in the
loop moves, it is that one which never ends (measured: 128 of them against 0.04 s for 120)."""

CHAIN_BESIDE = 2.0
"""Results side by side up to which the time explodes (measured: 2 do, 4 do not)."""


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
    """Serial loops around a statement that stay loops."""
    fixed, varying = 0.0, None
    for p in range(nest.depth):
        here = without(both(nest.runs(p), nest.is_kind(p, LoopKind.SERIAL)), unrolled[p])
        if isinstance(here, bool):
            fixed += here
        elif varying is None:
            varying = here.astype(np.int8)
        else:
            varying += here
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
    """Seconds of a chain of comparisons in the innermost loop that is left, a column.

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
    found: Num = 0.0
    open_: Mask = True
    for p in range(nest.depth - 1, -1, -1):
        if not possible(open_):
            break
        here = without(both(open_, nest.runs(p)), nest.is_kind(p, LoopKind.VECTORIZED))
        if not possible(here):
            continue
        feeds = _feeds(nest, p)
        # whatever a partial result feeds is a statement of the same loop
        body = (steps + _one(feeds)) * nest.sizes[p]
        serial = nest.is_kind(p, LoopKind.SERIAL)
        fits = either(nest.is_kind(p, LoopKind.UNROLLED), both(serial, truth(body <= explicit)))
        taken, ends = both(here, fits), without(here, fits)
        slow = both(_explodes(nest, p, chain, beside), both(ends, serial))
        if possible(slow):
            found = select(slow, np.exp2(smaller(chain, CHAIN_WORST) - CHAIN_SECOND), found)
        open_ = without(open_, ends)
        if not possible(taken):
            continue
        steps = select(taken, body, steps)
        if not nest.reduction[p]:
            beside = select(taken, beside * nest.sizes[p], beside)
        elif possible(alone := without(taken, feeds)):
            chain = select(alone, chain * nest.sizes[p], chain)
    return found


def _one(mask: Mask) -> Num:
    """1 where a mask holds, 0 elsewhere."""
    return float(mask) if isinstance(mask, bool) else mask.astype(np.float32)


def _explodes(nest: Nest, loop: int, chain: Num, beside: Num) -> Mask:
    """Rows in which a chain takes long if this loop is the innermost that is left."""
    if isinstance(chain, float) and chain < CHAIN_FREE:
        return False
    long = truth(chain > CHAIN_KEPT)
    if nest.reduction[loop]:
        slow = without(truth(chain >= CHAIN_FREE), long)
    else:
        slow = both(long, _still(nest, loop)) if possible(long) else False
    return both(slow, truth(beside <= CHAIN_BESIDE))


def _feeds(nest: Nest, loop: int) -> Mask:
    """Whether a loop reduces what the statement gives, not what it takes (`rfactor`)."""
    found: Mask = False
    if nest.reduction[loop]:
        for touch in nest.touches:
            if touch.read and touch.write:
                found = either(found, without(touch.exists, touch.still(loop)))
    return found


def _still(nest: Nest, loop: int) -> Mask:
    """Whether no access moves along a loop."""
    found: Mask = True
    for touch in nest.touches:
        found = both(found, either(negate(touch.exists), touch.still(loop)))
    return found
