"""Leaves of fused loops are split where a factor, or a group of iterations, ends inside one.

A fused loop is a number in mixed radix: leaf j counts units of lo_j iterations, the product of the
extents inside it. Splitting at F iterations splits the one leaf with lo_j < F < lo_j * extent_j in
two, which needs lo_j | F and F | lo_j * extent_j; rows in which that fails are unsupported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pruner_ms.symbolic.index.expr import Binary, Const, Expr, Iter
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.primitives.state import Acc, Block, Loop, State
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    either,
    larger,
    negate,
    possible,
    select,
    smaller,
    times,
)


def _cut(leaf: Leaf, low: Num, factor: Num) -> tuple[Leaf, Leaf, Mask]:
    """A leaf split at `factor` iterations of its loop, and the rows in which that is exact."""
    high = times(low, leaf.extent)
    inner = smaller(larger(factor // low, 1), leaf.extent)
    below, above = factor <= low, factor >= high
    inside = both(factor % low == 0, high % larger(factor, 1) == 0)
    exact = either(either(below, above), inside)
    exact = both(exact, leaf.extent % inner == 0)
    outer = leaf.extent // inner
    return Leaf(outer, leaf.reduction), Leaf(inner, leaf.reduction), exact


def _replace(state: State, parts: Mapping[Leaf, tuple[Leaf, Leaf]]) -> None:
    """Replace each leaf by an outer and an inner one, in every binding."""
    for block in state.blocks:
        for key, form in block.env.items():
            if not any(leaf in parts for leaf in form):
                continue
            refined: dict[Leaf | None, Num] = {}
            for old, stride in form.items():
                if old is None or old not in parts:
                    refined[old] = stride
                    continue
                outer, inner = parts[old]
                refined[outer] = times(stride, inner.extent)
                refined[inner] = stride
            block.env[key] = refined


def divisions(index: Expr) -> Iterator[tuple[int, int]]:
    """Iteration variables that an index divides, each with the divisor."""
    if isinstance(index, Binary):
        if index.op in ("//", "%") and isinstance(index.a, Iter) and isinstance(index.b, Const):
            yield index.a.key, index.b.value
        yield from divisions(index.a)
        yield from divisions(index.b)


def cut_groups(state: State, loops: Sequence[Loop]) -> None:
    """Split leaves of loops at group boundaries: where a division of a variable falls inside one.

    E.g. `v // 16` splits a leaf of stride 4 and extent 8 into two groups of four steps.
    """
    for block in state.blocks:
        if loops[0] not in block.path:
            continue
        wanted = {
            pair for read in block.reads for dim in read.dims for pair in divisions(dim.index)
        }
        for key, width in sorted(wanted):
            for loop in loops:
                _cut_loop(state, loop, block.env[key], width)


def cut_below(state: State, block: Block) -> None:
    """`cut_groups` for a block that was moved below loops of another one, on a CPU."""
    if state.target.gpu:
        return
    wanted = {pair for read in block.reads for dim in read.dims for pair in divisions(dim.index)}
    for key, width in sorted(wanted):
        for loop in block.path:
            _cut_loop(state, loop, block.env[key], width)


def _cut_loop(state: State, loop: Loop, form: Form, width: int) -> None:
    parts: dict[Leaf, tuple[Leaf, Leaf]] = {}
    for leaf in loop.leaves:
        # a leaf outside the index crosses no boundary: it counts as moving by whole groups
        low = form.get(leaf, width)
        low = select(low == 0, width, low)
        crossing = both(low < width, width < times(low, leaf.extent))
        if possible(crossing):
            outer, inner, exact = _cut(leaf, low, width)
            state.support_only(exact)
            parts[leaf] = (outer, inner)
    if parts:
        loop.leaves = tuple(new for leaf in loop.leaves for new in parts.get(leaf, (leaf,)))
        _replace(state, parts)


def crosses_groups(block: Block, access: Acc, level: Num) -> Mask:
    """Rows in which TVM does not infer that the region read below a loop lies in one group.

    The region is unknown where a loop at or above the level crosses group boundaries (`crossing`)
    and a loop below it runs within a group (`running`): the region's first and last index then
    simplify to different expressions. Besides:

    - Loops on threads are fused, and count as running at any position.
    - Loops that are fused into one parallel loop cross a boundary between them (`_glued_across`).
    - So does one of them whose index is computed from that of the fused loop (`_hidden`).
    - Where a remainder is read, too, groups are counted by a remainder: the loops below must run
      through all of them.
    """
    rows: Mask = False
    for key, width in {pair for dim in access.dims for pair in divisions(dim.index)}:
        crossing = _glued_across(block, block.env[key], width, level)
        running: Mask = any(loop.tag for loop in block.path)
        for q, loop in enumerate(block.path):
            long_leaves = [leaf.extent > 1 for leaf in loop.leaves if leaf in block.env[key]]
            around = both(q < level + 1, block.mask[q])
            for other in long_leaves:
                running = either(running, both(other, negate(around)))
            if len(long_leaves) > 1:
                two_long = both(long_leaves[0], long_leaves[1])
                crossing = either(crossing, two_long if loop.tag else both(two_long, around))
        rows = either(rows, both(crossing, running))
        hidden = _hidden(block, block.env[key], width, level)
        rows = either(rows, both(hidden, negate(running)))
        if not block.inner and any(_remainder(dim.index, key) for dim in access.dims):
            rows = either(rows, _groups_split(block, block.env[key], width, level))
    return rows


def _remainder(index: Expr, key: int) -> bool:
    """Whether an index contains a remainder of a variable."""
    if not isinstance(index, Binary):
        return False
    direct = index.op == "%" and index.a == Iter(key)
    return direct or _remainder(index.a, key) or _remainder(index.b, key)


def _groups_split(block: Block, form: Form, width: int, level: Num) -> Mask:
    """Rows in which loops around a level move between groups, and loops below it run."""
    outside: Mask = False
    inside: Mask = False
    for q, (loop, present) in enumerate(zip(block.path, block.mask, strict=True)):
        around = q < level + 1
        for leaf in loop.leaves:
            stride = form.get(leaf, 0)
            real = both(present, both(stride > 0, leaf.extent > 1))
            outer = stride % width == 0
            outside = either(outside, both(both(real, outer), around))
            inside = either(inside, both(real, negate(around)))
    return both(outside, inside)


def _glued_across(block: Block, form: Form, width: int, level: Num) -> Mask:
    """Rows in which one parallel loop around a level has digits on both sides of a boundary."""
    rows: Mask = False
    above: Mask = False
    below: Mask = False
    for q, (loop, present) in enumerate(zip(block.path, block.mask, strict=True)):
        if not possible(loop.parallel):
            continue
        starts = both(present, negate(loop.glued))
        above, below = (both(side, negate(starts)) for side in (above, below))
        for leaf in loop.leaves:
            stride = form.get(leaf, 0)
            real = both(present, both(stride > 0, leaf.extent > 1))
            outer = stride % width == 0
            above = either(above, both(real, outer))
            below = either(below, both(real, negate(outer)))
        around = both(both(present, loop.parallel), q < level + 1)
        rows = either(rows, both(around, both(above, below)))
    return rows


def _hidden(block: Block, form: Form, width: int, level: Num) -> Mask:
    """Rows in which a part of a parallel loop around a level moves between groups, with a stride
    equal to the iterations of the parts fused inside of it.

    E.g. of a loop x of 8 iterations, fused of parts of 2 and 4, the outer part moves by 4: TVM
    writes its index `x // 4 * 4`. It takes that for x less its remainder, and divides the sum of it
    and of the fixed loops below as one term.
    """
    rows: Mask = False
    within: Mask = False
    inside: Num = 1
    for q, (loop, present) in reversed(list(enumerate(zip(block.path, block.mask, strict=True)))):
        around = both(both(present, loop.parallel), q < level + 1)
        for leaf in reversed(loop.leaves):
            stride = form.get(leaf, 0)
            real = both(around, leaf.extent > 1)
            beyond = both(real, width - 1 < stride)
            rows = either(rows, both(within, beyond))
            below = both(stride > 1, stride < width)
            hidden = both(below, stride == inside)
            within = either(within, both(real, hidden))
            inside = select(present, times(inside, leaf.extent), inside)
        goes_on = negate(both(present, negate(loop.glued)))
        within = both(within, goes_on)
        inside = select(goes_on, inside, 1)
    return rows


def _peel(state: State, loop: Loop, factor: Num) -> tuple[Loop, Loop]:
    """Split a loop into an outer and an inner one of `factor` iterations, in every binding."""
    outer: list[Leaf] = []
    inner: list[Leaf] = []
    parts: dict[Leaf, tuple[Leaf, Leaf]] = {}
    low: Num = 1
    for leaf in reversed(loop.leaves):
        high, rest, exact = _cut(leaf, low, factor)
        if leaf is loop.leaves[0]:
            # one part covers the loop: the outermost digit continues beyond its end
            covers = negate(factor < times(low, leaf.extent))
            # the leaf stays the same object: bindings and `parts` find it by identity
            rest.extent = select(covers, -(-factor // low), rest.extent)
            exact = either(exact, covers)
        state.support_only(exact)
        parts[leaf] = (high, rest)
        outer.insert(0, high)
        inner.insert(0, rest)
        low = times(low, leaf.extent)
    _replace(state, parts)
    return Loop(tuple(outer), -(-loop.extent // factor)), Loop(tuple(inner), factor)


def guard(state: State, loop: Loop, exact: Mask) -> None:
    """Guard blocks whose loop a split does not divide (idle GPU threads); unsupported on a CPU."""
    if not state.target.gpu:
        state.support_only(exact)
        return
    for block in state.blocks:
        if loop in block.path:
            block.guarded = either(block.guarded, negate(exact))


def split_reduction(state: State, loop: Loop, factors: Sequence[Num | None]) -> list[Loop]:
    """Replace a fused reduction loop by its factors; one factor may be None."""
    product: Num = 1
    for factor in factors:
        product = product if factor is None else times(product, factor)
    if any(f is None for f in factors):
        guard(state, loop, loop.extent % product == 0)
    sizes = [-(-loop.extent // product) if f is None else f for f in factors]
    parts: list[Loop] = []
    rest = loop
    for factor in sizes[:0:-1]:
        rest, part = _peel(state, rest, factor)
        parts.insert(0, part)
    parts.insert(0, rest)
    parts[-1].shared = loop.shared
    for block in state.blocks:
        if loop in block.path:
            p = block.path.index(loop)
            block.path[p : p + 1] = parts
            block.mask[p : p + 1] = [block.mask[p]] * len(parts)
    return parts


def coefficient(form: Form, loop: Loop) -> Num:
    """Stride of a loop variable in an index as TVM writes it; 0 if only parts of it occur.

    A single leaf of several is written as a division, which StrideExtractor ignores.
    """
    if len(loop.leaves) == 1:
        return form.get(loop.leaves[0], 0)
    if not any(leaf in form for leaf in loop.leaves):
        return 0
    stride: Num = form.get(loop.leaves[-1], 0)
    expected: Num = 0
    seen: Mask = False
    complete: Mask = True
    for leaf in reversed(loop.leaves):
        step = form.get(leaf, 0)
        runs = leaf.extent != 1
        stride = select(both(runs, negate(seen)), step, stride)
        later = both(runs, seen)
        chained = either(negate(later), step == expected)
        complete = both(complete, chained)
        expected = select(runs, times(step, leaf.extent), expected)
        seen = either(seen, runs)
    return select(complete, stride, 0)
