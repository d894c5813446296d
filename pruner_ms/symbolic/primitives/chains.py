"""Moving a block to a sampled location in the nests of its consumers, which may have moved, too.

Rules: `compute_at.cc` (CalculateBlockVarDomain, MakeNewLoop). In the rows in which the block moves
it gets one new loop per iteration variable; in the others it keeps its nest. The old and the new
loops are masked entries of its path; if the two nests have the same shape they share entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.expr import Iter
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.index.intervals import Interval, covers, union_all
from pruner_ms.symbolic.primitives import moves
from pruner_ms.symbolic.primitives.refine import cut_below
from pruner_ms.symbolic.primitives.state import Block, Buf, Loop, State
from pruner_ms.symbolic.primitives.trunk import Location, Trunk, drawn, repaired, trunk_of
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    certain,
    either,
    mask_column,
    negate,
    possible,
    select,
)


def sample(state: State, block: Block, column: int) -> Location:
    """Repair the decided location of a block, or draw one if the state has a chooser."""
    trunk = trunk_of(state, block)
    inlinable = moves.inlinable(block)
    if state.chooser is None:
        return repaired(trunk, state.decisions[column], inlinable)
    return drawn(trunk, state.chooser.random(state.rows), inlinable)


def free_below(block: Block, trunk: Trunk, position: Num) -> dict[Leaf, Mask]:
    """Leaf of a block's path -> rows in which it runs while a loop of a trunk is fixed."""
    places = {loop: p for p, loop in enumerate(trunk.path)}
    deepest = int(np.max(position, initial=-1))
    free: dict[Leaf, Mask] = dict.fromkeys(block.inner, True)
    for loop in block.path:
        moves_on = loop not in places or places[loop] > deepest
        runs: Mask = True if moves_on else places[loop] > position
        free.update((leaf, runs) for leaf in loop.leaves)
    return free


def required(state: State, block: Block, buffer: Buf, spot: Location) -> list[Interval]:
    """Interval that the consumers read of a buffer below the location, per dimension."""
    moved: Mask = spot.position >= 0
    intervals: list[list[tuple[Mask, Interval]]] = [[] for _ in buffer.shape]
    for consumer in state.consumers(block):
        free = free_below(consumer, spot.trunk, spot.position)
        for read in consumer.reads:
            rows = both(read.mask, consumer.alive)
            if read.buffer is buffer and possible(rows):
                spans = moves.region(state, consumer, read, free)
                moves.mark_dynamic(state, consumer, read, free, both(rows, moved))
                for per_dim, span in zip(intervals, spans, strict=True):
                    per_dim.append((rows, span))
    joined: list[Interval] = []
    for per_dim, full in zip(intervals, buffer.shape, strict=True):
        interval, exact = union_all(per_dim, full)
        state.support_only(either(negate(moved), exact))
        joined.append(moves.within(block, interval, full))
    return joined


def place(state: State, block: Block, spot: Location) -> None:
    """Move a block to a sampled location."""
    moved: Mask = spot.position >= 0
    inlined = mask_column(spot.position == -2, state.rows)
    consumers = state.consumers(block)
    if possible(moved):
        _enter(state, block, spot, mask_column(moved, state.rows))
    if inlined.any():
        block.alive = both(block.alive, ~inlined)
        for consumer in consumers:
            moves.inline_in_some(state, block, consumer, inlined)
    state.blocks.remove(block)
    first = min(state.blocks.index(consumer) for consumer in consumers)
    state.blocks.insert(first, block)


def place_below(state: State, block: Block, loop: Loop) -> None:
    """Move a block below a loop that is around all its consumers."""
    trunk = trunk_of(state, block)
    if loop not in trunk.path:
        raise UnsupportedTrace(f"block {block.name} moves below a loop not around its consumers")
    consumers = state.consumers(block)
    position = trunk.path.index(loop)
    _enter(state, block, Location(trunk, position, position), True)
    state.blocks.remove(block)
    first = min(state.blocks.index(consumer) for consumer in consumers)
    state.blocks.insert(first, block)


def _enter(state: State, block: Block, spot: Location, moved: Mask) -> None:
    """Add a block's new loops, and the loops above them, in the rows in which it moves."""
    buffer = block.writes[0].buffer
    if any(w.dims != block.writes[0].dims for w in block.writes):
        raise UnsupportedTrace(f"block {block.name} writes its results at different indices")
    keys = [dim.index.key if isinstance(dim.index, Iter) else -1 for dim in block.writes[0].dims]
    spatial = [key for key, reduction in block.iters if not reduction]
    if sorted(keys) != sorted(spatial):
        raise UnsupportedTrace(f"block {block.name} does not index a buffer by its variables alone")
    spans = dict(zip(keys, required(state, block, buffer, spot), strict=True))
    for key, old in (_merged if plain(block) else _beside)(state, block, spans, moved).items():
        block.env[key] = old
    block.signed = block.signed or any(c.signed for c in state.consumers(block))
    top = int(np.max(spot.position, initial=-1)) + 1
    trunk = spot.trunk
    cuts = [cut for consumer in state.consumers(block) for cut in consumer.cuts]
    if any(loop in trunk.path[:top] for cut in cuts for loop in cut.loops):
        raise UnsupportedTrace(f"block {block.name} moves below a part of loops that were fused")
    mask = [both(trunk.mask[p], spot.position >= p) for p in range(top)]
    for p in range(top):
        loop = trunk.path[p]
        loop.shared = either(loop.shared, spot.position == p)
    block.path = [*trunk.path[:top], *block.path]
    block.mask = [*mask, *block.mask]
    block.joined = top
    cut_below(state, block)


def plain(block: Block) -> bool:
    """Whether a block has one loop per variable, in order, as after a move."""
    return (
        block.in_all_rows
        and not block.joined
        and len(block.path) == len(block.iters) == len(block.env)
        and all(
            len(loop.leaves) == 1 and _is(block.env[key], loop.leaves[0])
            for loop, (key, _) in zip(block.path, block.iters, strict=True)
        )
    )


def simple(block: Block) -> bool:
    """Whether `moves.move` can move a block: it is plain and not a reduction."""
    return not block.reduction and plain(block)


def _is(form: Form, leaf: Leaf) -> bool:
    stride = form.get(leaf)
    return len(form) == 1 and isinstance(stride, int) and stride == 1


def _merged(
    state: State, block: Block, spans: Mapping[int, Interval], moved: Mask
) -> dict[int, Form]:
    """One loop per variable for all rows, with its old extent where the block stays."""
    env: dict[int, Form] = {}
    path: list[Loop] = []
    for loop, (key, reduction) in zip(block.path, block.iters, strict=True):
        if reduction:
            path.append(loop)
            env[key] = block.env[key]
            continue
        size, base = spans[key]
        extent = select(moved, size, loop.extent)
        leaf = Leaf(extent, False)
        stays = {k: select(moved, stride, 0) for k, stride in base.items()}
        env[key] = {**stays, leaf: 1}
        path.append(Loop((leaf,), extent))
    block.path = path
    block.mask = [True] * len(path)
    return env


def _beside(
    state: State, block: Block, spans: Mapping[int, Interval], moved: Mask
) -> dict[int, Form]:
    """New loops beside the old ones; derived variables are computed from the new leaves."""
    after: dict[Leaf, Form] = {}
    env: dict[int, Form] = {}
    path: list[Loop] = []
    for key, reduction in block.iters:
        old = block.env[key]
        leaves = [leaf for loop in block.path for leaf in loop.leaves if leaf in old]
        if reduction or len(leaves) > 1:
            full = forms.reach(old)
            span = (full, {}) if reduction else spans[key]
            became, exact = _fused_variable(leaves, old, span, full)
            state.support_only(either(negate(moved), exact))
            loop = Loop(tuple(leaf for leaf, _ in became), span[0])
            after.update((was, form) for was, (_, form) in zip(leaves, became, strict=True))
            new = _substituted(old, after)
        else:
            size, base = spans[key]
            leaf = Leaf(size, False)
            loop, new = Loop((leaf,), size), {**base, leaf: 1}
            if leaves:
                after[leaves[0]] = new
        env[key] = _selected(moved, new, old)
        path.append(loop)
    for key, old in block.env.items():
        if key not in env:
            env[key] = _selected(moved, _substituted(old, after), old)
    block.path = [*block.path, *path]
    block.mask = [both(m, negate(moved)) for m in block.mask] + [moved] * len(path)
    return env


def _fused_variable(
    leaves: Sequence[Leaf], old: Form, span: Interval, full: Num
) -> tuple[list[tuple[Leaf, Form]], Mask]:
    """New leaves and forms for a variable of several leaves, and the rows in which they are exact.

    They are exact if the variable takes all its values, or if it is fixed by leaves of the same
    strides and extents.
    """
    size, base = span
    point = both(size == 1, full != 1)
    fresh = [Leaf(select(point, 1, leaf.extent), leaf.reduction) for leaf in leaves]
    became: list[dict[Leaf | None, Num]] = [{leaf: 1} for leaf in fresh]
    matched: Mask = base.get(None, 0) == 0
    for other, stride in base.items():
        if other is None:
            continue
        unused = stride == 0
        for leaf, form in zip(leaves, became, strict=True):
            fits = either(stride == old[leaf], unused)
            if certain(fits) and certain(other.extent == leaf.extent):
                form[other] = select(unused, 0, 1)
                break
        else:
            matched = both(matched, unused)
    complete = covers(size, base, full)
    return list(zip(fresh, became, strict=True)), either(complete, both(point, matched))


def _substituted(old: Form, after: Mapping[Leaf, Form]) -> Form:
    """A form with every leaf replaced by its new form."""
    total: Form = {}
    for leaf, stride in old.items():
        part: Form = {None: stride} if leaf is None else forms.scale(after[leaf], stride)
        total = forms.add(total, part)
    return total


def _selected(moved: Mask, new: Form, old: Form) -> Form:
    """The new form where the block moved, the old one where it stayed."""
    selected: dict[Leaf | None, Num] = {}
    for leaf in {**old, **new}:
        stride = select(moved, new.get(leaf, 0), old.get(leaf, 0))
        if isinstance(stride, int) or stride.any():
            selected[leaf] = stride
    return selected
