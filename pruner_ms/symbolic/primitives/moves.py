"""Moving blocks: compute-at in both directions, and inlining.

Rules: `compute_at.cc`, `compute_inline.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import expr, floors, forms
from pruner_ms.symbolic.index.digits import split_quotients
from pruner_ms.symbolic.index.expr import Expr
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.primitives import edges
from pruner_ms.symbolic.primitives.refine import cut_below
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, Dim, Loop, State
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    certain,
    either,
    magnitude,
    negate,
    possible,
    select,
    smaller,
    times,
)
from pruner_ms.types import IntArray

# Variables that RFactor derives: digits of several loops, `(o * k + u) % e` (`compute_at.cc`).
#
# The region that a moved block covers runs from the least to the largest value of an index. TVM
# takes the least value from the index as written, whose remainder is 0 whichever loop runs, and the
# largest value from the simplified index, which lacks the loops that move by multiples of e.
#
# Notation
# --------
# digit_leaves  leaves of the digit
# fused         leaves of the loops of which it is a digit


def _mark_derived(
    state: State, block: Block, index: Expr, free: Mapping[Leaf, Mask], rows: Mask
) -> None:
    """Mark rows in which a loop over a region has an extent that depends on other loops.

    It does if loops that move by multiples of e run and the loops within the digit are fixed. If
    some loops within the digit run and others are fixed, the row is unsupported: TVM perhaps does
    not infer a constant extent.

    Parameters
    ----------
    index
        An index of the reading block.
    free
        Leaf -> rows in which it runs.
    rows
        Rows in which the block reads there.
    """
    iterated = {key for key, _ in block.iters}
    for key in expr.variables(index) - iterated:
        form = block.env[key]
        digit_leaves = {leaf: stride != 0 for leaf, stride in form.items() if leaf is not None}
        fused, outer = _loops(block, digit_leaves)
        stands = both(rows, _any_leaf(digit_leaves, free, False))
        moves = _any_leaf(digit_leaves, free, True)
        varies = both(both(stands, _any_leaf(fused, free, True)), negate(moves))
        if certain(outer == 1):  # it has no remainder
            varies = False
        state.dynamic = either(state.dynamic, varies)
        state.support_only(negate(either(varies, both(moves, stands))))


def _loops(block: Block, digit_leaves: Mapping[Leaf, Mask]) -> tuple[dict[Leaf, Mask], Num]:
    """Leaves of the loops that contain leaves of a digit, and iterations outside of the digit."""
    fused: dict[Leaf, Mask] = {}
    outer: Num = 1
    for loop, present in zip(block.path, block.mask, strict=True):
        places = [i for i, leaf in enumerate(loop.leaves) if leaf in digit_leaves]
        if places:
            fused.update((leaf, present) for leaf in loop.leaves)
            for leaf in loop.leaves[: places[0]]:
                outer = times(outer, select(present, leaf.extent, 1))
    return fused, outer


def _any_leaf(leaves: Mapping[Leaf, Mask], free: Mapping[Leaf, Mask], runs: bool) -> Mask:
    """Rows in which any of the leaves, of more than one iteration, runs (or is fixed)."""
    rows: Mask = False
    for leaf, there in leaves.items():
        matching = free.get(leaf, False)
        matching = both(there, matching if runs else negate(matching))
        rows = either(rows, both(matching, leaf.extent != 1))
    return rows


def relaxed(loop: Loop, scope: str) -> bool:
    """Whether a loop runs at any location: all threads of a block share its shared memory."""
    return scope.startswith("shared") and loop.tag.startswith(("threadIdx", "vthread"))


def free_leaves(block: Block, location: Num, scope: str = "") -> dict[Leaf, Mask]:
    """Leaf of a block's path -> rows in which it runs while the loop at `location` is fixed.

    Loops that are `relaxed` for a scope always run.
    """
    deepest = location if isinstance(location, int) else int(location.max(initial=-1))
    free: dict[Leaf, Mask] = {}
    for p, loop in enumerate(block.path):
        runs: Mask = p > deepest or (not isinstance(location, int) and location < p)
        free.update((leaf, runs) for leaf in loop.leaves)
    if scope.startswith("shared"):
        bound = (loop for loop in block.path if relaxed(loop, scope))
        free.update((leaf, True) for loop in bound for leaf in loop.leaves)
    free.update((leaf, True) for leaf in block.inner)
    return free


def region(
    state: State, block: Block, access: Acc, free: dict[Leaf, Mask]
) -> list[tuple[Num, Form]]:
    """Extent and first index, per dimension, of the region of an access while some leaves run."""
    evaluator = state.evaluator(block)
    intervals = [
        interval(state, block, evaluator.form(dim.index), dim.size, free) for dim in access.dims
    ]
    if not certain(evaluator.exact):
        return _quotients(state, block, access, free, intervals)
    return intervals


def interval(
    state: State, block: Block, form: Form, size: int, free: Mapping[Leaf, Mask]
) -> tuple[Num, Form]:
    """Extent and first value of an index while some leaves of its form run."""
    extent: Num = size
    base: dict[Leaf | None, Num] = {}
    for leaf, stride in form.items():
        if leaf is None:
            base[None] = base.get(None, 0) + stride
            continue
        if leaf not in free:  # it has no loop in these rows
            state.support_only(stride == 0)
            continue
        runs = free[leaf]
        if runs is not False:
            step = times(stride, leaf.last)
            if block.signed:
                low = select(runs, smaller(step, 0), 0)
                base[None] = base.get(None, 0) + low
                step = magnitude(step)
            extent = extent + select(runs, step, 0)
        if not certain(runs):
            base[leaf] = select(runs, 0, stride)
    return extent, base


def _quotients(
    state: State,
    block: Block,
    access: Acc,
    free: Mapping[Leaf, Mask],
    intervals: list[tuple[Num, Form]],
) -> list[tuple[Num, Form]]:
    """`region` where some quotients have no affine form; those of sums have an interval."""
    for i, dim in enumerate(access.dims):
        evaluator = state.evaluator(block)
        if all(certain(runs) for runs in free.values()):
            low, high = expr.interval(dim.index, block.env)
            intervals[i] = high - low + dim.size, {None: low}
        elif floors.divides_sum(dim.index):
            affine, quotients = split_quotients(dim.index, evaluator)
            extent, base = interval(state, block, affine, dim.size, free)
            for quotient, form in quotients:
                part = floors.interval(quotient, form, free)
                extent, base = extent + part.grown, forms.add(base, part.base)
                state.support_only(part.exact)
            intervals[i] = extent, base
            state.support_only(evaluator.exact)
        else:
            evaluator.form(dim.index)
            state.support_only(evaluator.exact)
    return intervals


def mark_dynamic(
    state: State, block: Block, access: Acc, free: Mapping[Leaf, Mask], rows: Mask = True
) -> None:
    """Mark rows in which a loop over a region has an extent that depends on other loops."""
    for dim in access.dims:
        _mark_derived(state, block, dim.index, free, rows)
        if floors.divides_sum(dim.index):
            for quotient, form in split_quotients(dim.index, state.evaluator(block))[1]:
                varies = both(rows, floors.interval(quotient, form, free).varies)
                state.dynamic = either(state.dynamic, varies)


def plain_dims(block: Block, access: Acc) -> list[int]:
    """Iteration variable of each dimension of an access that is indexed by single variables."""
    keys = [dim.index.key if isinstance(dim.index, expr.Iter) else -1 for dim in access.dims]
    if sorted(keys) != sorted(key for key, _ in block.iters):
        raise UnsupportedTrace(f"block {block.name} does not index a buffer by its variables alone")
    return keys


def access_of(accesses: Sequence[Acc], buffer: Buf, block: Block) -> Acc:
    """The one access of a block to a buffer."""
    matching = [a for a in accesses if a.buffer is buffer]
    if any(a.dims != matching[0].dims for a in matching):
        raise UnsupportedTrace(f"block {block.name} reads {buffer.name} at several places")
    return matching[0]


def move(
    state: State, block: Block, other: Block, buffer: Buf, location: int | IntArray, reverse: bool
) -> None:
    """Move a block under a loop of another one.

    Parameters
    ----------
    block, other
        The block that moves, and the one whose path it joins: its consumer, or its producer if
        `reverse`.
    buffer
        The buffer that connects them.
    location
        Position on the other's path; an array for a sampled one (-1: stay, -2: inlined).
    """
    if not other.in_all_rows or not block.in_all_rows:
        raise UnsupportedTrace(f"block {block.name} moves along a sampled path")
    access = access_of(block.reads if reverse else block.writes, buffer, block)
    theirs = access_of(other.writes if reverse else other.reads, buffer, other)
    keys, sampled = plain_dims(block, access), not isinstance(location, int)
    free = free_leaves(other, location, "" if reverse else buffer.scope)
    spans = region(state, other, theirs, free)
    mark_dynamic(state, other, theirs, free)
    new: dict[int, Loop] = {}
    position = {key: p for p, (key, _) in enumerate(block.iters)}
    for key, region_of in zip(keys, spans, strict=True):
        span, start = region_of
        if reverse:
            span, start = within(block, region_of, block.path[position[key]].extent, key)
        extent = span
        if sampled:
            extent = select(location < 0, block.path[position[key]].extent, span)
        leaf = Leaf(extent, False)
        block.env[key] = {**start, leaf: 1}
        if sampled and None in start:  # a block that stays starts at 0
            block.env[key] = {**block.env[key], None: select(location < 0, 0, start[None])}
        new[key] = Loop((leaf,), extent)
    top = _add_child(other.path, location)
    block.mask = [location >= p if sampled else True for p in range(top)] + [True] * len(new)
    block.path = other.path[:top] + [new[key] for key, _ in block.iters]
    block.joined = top
    if sampled:
        block.alive = location != -2
    cut_below(state, block)
    block.signed = block.signed or other.signed
    state.blocks.remove(block)
    state.blocks.insert(state.blocks.index(other) + reverse, block)


def within(
    block: Block, interval: tuple[Num, Form], full: Num, key: int | None = None
) -> tuple[Num, Form]:
    """An interval restricted to a dimension: clipped if its first index is fixed, else guarded.

    It exceeds the dimension only if a split does not divide a loop, or if a product was padded.

    Parameters
    ----------
    key
        The iteration variable of the dimension, on which the block's predicate then depends.
    """
    size, base = interval
    if any(possible(_greater(0, stride)) for stride in base.values()):
        raise UnsupportedTrace(f"block {block.name} is read backwards from a sampled location")
    beyond = _greater(forms.reach(base) - 1 + size, full)
    if not possible(beyond):
        return interval
    first = base.get(None, 0)
    fixed = forms.reach(base) == first + 1
    guarded = both(beyond, negate(fixed))
    block.guarded = either(block.guarded, guarded)
    if key is not None:
        block.predicates[key] = full, guarded
    return select(fixed, smaller(size, full - first), size), base


def _greater(a: Num, b: Num) -> Mask:
    return a > b


def _add_child(path: list[Loop], location: int | IntArray) -> int:
    """Mark the new child of a loop; returns how many loops the two blocks may have in common."""
    if isinstance(location, int):
        path[location].shared = True
        return location + 1
    top = int(location.max(initial=-1)) + 1
    for p in range(top):
        path[p].shared = either(path[p].shared, location == p)
    return top


def inlinable(block: Block) -> bool:
    """Whether TVM could inline a block into its consumers (`CheckInline`)."""
    return (
        not block.reduction
        and len(block.writes) == 1
        and not block.writes[0].buffer.param
        and all(isinstance(dim.index, expr.Iter) for dim in block.writes[0].dims)
    )


def inline_into(block: Block, consumer: Block, rows: Mask) -> None:
    """Replace a consumer's reads of a block's result by the block's reads, in some rows."""
    buffer = block.writes[0].buffer
    keys = plain_dims(block, block.writes[0])
    added: list[Acc] = []
    by: dict[int, expr.Expr] = {}
    for read in consumer.reads:
        if read.buffer is not buffer:
            added.append(read)
            continue
        by = {key: dim.index for key, dim in zip(keys, read.dims, strict=True)}
        if rows is not True:
            added.append(replace(read, mask=both(read.mask, negate(rows))))
        for source in block.reads:
            dims = tuple(Dim(expr.substitute(d.index, by), d.size) for d in source.dims)
            there = both(source.mask, both(read.mask, rows))
            add_read(added, Acc(source.buffer, dims, there))
    consumer.reads = added
    edges.inherit(block, consumer, by)
    count = consumer.loads.pop(buffer.name, 1)
    for table, extra in ((consumer.ops, block.ops), (consumer.loads, block.loads)):
        for name, value in extra.items():
            table[name] = table.get(name, 0) + select(rows, value * count, 0)
    if rows is True:
        consumer.copy = consumer.copy and block.copy
    consumer.signed = consumer.signed or block.signed
    consumer.bounded = consumer.bounded or block.bounded
    for key, there in block.conditions.items():
        for other in expr.variables(by[key]):
            old = consumer.conditions.get(other, False)
            consumer.conditions[other] = either(old, both(rows, there))
    for key in block.predicates.keys() & by.keys():
        end, there = block.predicates[key]
        for other in expr.variables(by[key]):
            alone = by[key] == expr.Iter(other)
            consumer.predicates[other] = end if alone else None, both(rows, there)


def inline_in_some(state: State, block: Block, consumer: Block, rows: Mask) -> None:
    """`inline_into` in some rows; unsupported if the consumer, a copy, would cease to be one.

    A statement has one role in all rows.
    """
    if consumer.copy and not block.copy:
        state.support_only(negate(rows))
    inline_into(block, consumer, rows)


def add_read(reads: list[Acc], access: Acc) -> None:
    """Add a read, or only its rows if the same read exists already."""
    for i, other in enumerate(reads):
        if other.buffer is access.buffer and other.dims == access.dims:
            reads[i] = replace(other, mask=either(other.mask, access.mask))
            return
    reads.append(access)


def as_location(value: object) -> IntArray:
    """A sampled location in a slot."""
    if not isinstance(value, np.ndarray):
        raise UnsupportedTrace("a block moves to something that is not a location")
    return value
