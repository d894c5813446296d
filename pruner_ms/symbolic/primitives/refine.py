"""Splitting a fused reduction loop: its leaves are cut where the factors' boundaries fall.

A fused loop is a number in mixed radix: leaf j counts units of lo_j iterations, the product of the
extents inside it. Splitting at F iterations cuts the one leaf with lo_j < F < lo_j * extent_j in
two, which needs lo_j | F and F | lo_j * extent_j; in rows where that fails no leaf describes the
parts, and the row is doubted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.expr import Binary, Const, Expr, Iter
from pruner_ms.symbolic.index.forms import Form, Leaf, Mask, Num
from pruner_ms.symbolic.primitives.state import Acc, Block, Loop, State


def _cut(leaf: Leaf, low: Num, factor: Num) -> tuple[Leaf, Leaf, Mask]:
    """A leaf in two at `factor` iterations of its loop, and the rows in which that is exact."""
    high = forms.times(low, leaf.extent)
    inner = forms.smaller(forms.larger(factor // low, 1), leaf.extent)
    below, above = factor <= low, factor >= high
    inside = forms.both(
        forms.compare(factor % low, 0), forms.compare(high % forms.larger(factor, 1), 0)
    )
    exact = forms.either(forms.either(below, above), inside)
    exact = forms.both(exact, forms.compare(leaf.extent % inner, 0))
    outer = leaf.extent // inner
    return Leaf(outer, leaf.reduction), Leaf(inner, leaf.reduction), exact


def _replace(state: State, parts: Mapping[Leaf, tuple[Leaf, Leaf]]) -> None:
    """Put an outer and an inner leaf in the place of each, in every binding."""
    for block in state.blocks:
        for key, form in block.env.items():
            if not any(leaf in parts for leaf in form):
                continue
            found: dict[Leaf | None, Num] = {}
            for old, stride in form.items():
                if old is None or old not in parts:
                    found[old] = stride
                    continue
                outer, inner = parts[old]
                found[outer] = forms.times(stride, inner.extent)
                found[inner] = stride
            block.env[key] = found


def divisions(index: Expr) -> Iterator[tuple[int, int]]:
    """Iteration variables that an index divides, each with what by."""
    if isinstance(index, Binary):
        if index.op in ("//", "%") and isinstance(index.a, Iter) and isinstance(index.b, Const):
            yield index.a.key, index.b.value
        yield from divisions(index.a)
        yield from divisions(index.b)


def cut_groups(state: State, loops: Sequence[Loop]) -> None:
    """Cut the leaves of loops where a division of a variable falls inside one (group boundaries).

    `v // 16` for a leaf of stride 4 and extent 8: four steps stay in a group, two groups follow.
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
    """The same for a block that has come below loops of another one, on a CPU."""
    if state.target.gpu:
        return
    wanted = {pair for read in block.reads for dim in read.dims for pair in divisions(dim.index)}
    for key, width in sorted(wanted):
        for loop in block.path:
            _cut_loop(state, loop, block.env[key], width)


def _cut_loop(state: State, loop: Loop, form: Form, width: int) -> None:
    parts: dict[Leaf, tuple[Leaf, Leaf]] = {}
    for leaf in loop.leaves:
        low = form.get(leaf, width)
        low = forms.select(forms.compare(low, 0), width, low)
        crossing = forms.both(_less(low, width), _less(width, forms.times(low, leaf.extent)))
        if forms.possible(crossing):
            outer, inner, exact = _cut(leaf, low, width)
            state.doubt(exact)
            parts[leaf] = (outer, inner)
    if parts:
        loop.leaves = tuple(new for leaf in loop.leaves for new in parts.get(leaf, (leaf,)))
        _replace(state, parts)


def torn(block: Block, access: Acc, level: Num) -> Mask:
    """Rows in which TVM does not see that what is read below a loop lies in one group.

    A loop around crosses group boundaries, and loops below it run within a group: the first and
    the last index simplify to different expressions, and the region is not known any more. Loops
    on threads, which are fused, hide a crossing wherever they are. Loops that became one parallel
    loop cross a boundary that lies between them; so does one loop of them whose index has to be
    taken out of theirs (`_hidden`). Where a remainder is read, too, the groups are
    counted by a remainder, and those that are met below a loop must be all that there are.
    """
    found: Mask = False
    for key, width in {pair for dim in access.dims for pair in divisions(dim.index)}:
        crossing = _glued_across(block, block.env[key], width, level)
        running: Mask = any(loop.tag for loop in block.path)
        for q, loop in enumerate(block.path):
            several = [_less(1, leaf.extent) for leaf in loop.leaves if leaf in block.env[key]]
            around = forms.both(_less(q, level + 1), block.mask[q])
            for other in several:
                running = forms.either(running, forms.both(other, forms.negate(around)))
            if len(several) > 1:
                both = forms.both(several[0], several[1])
                crossing = forms.either(crossing, both if loop.tag else forms.both(both, around))
        found = forms.either(found, forms.both(crossing, running))
        hidden = _hidden(block, block.env[key], width, level)
        found = forms.either(found, forms.both(hidden, forms.negate(running)))
        if not block.inner and any(_remainder(dim.index, key) for dim in access.dims):
            found = forms.either(found, _some_of_several(block, block.env[key], width, level))
    return found


def _remainder(index: Expr, key: int) -> bool:
    """Whether an index holds a remainder of a variable."""
    if not isinstance(index, Binary):
        return False
    own = index.op == "%" and index.a == Iter(key)
    return own or _remainder(index.a, key) or _remainder(index.b, key)


def _some_of_several(block: Block, form: Form, width: int, level: Num) -> Mask:
    """Rows in which loops around a level go from group to group, and loops below it run."""
    outside: Mask = False
    inside: Mask = False
    for q, (loop, here) in enumerate(zip(block.path, block.mask, strict=True)):
        around = _less(q, level + 1)
        for leaf in loop.leaves:
            stride = form.get(leaf, 0)
            real = forms.both(here, forms.both(_less(0, stride), _less(1, leaf.extent)))
            outer = forms.compare(stride % width, 0)
            outside = forms.either(outside, forms.both(forms.both(real, outer), around))
            inside = forms.either(inside, forms.both(real, forms.negate(around)))
    return forms.both(outside, inside)


def _glued_across(block: Block, form: Form, width: int, level: Num) -> Mask:
    """Rows in which one parallel loop around a level has digits on both sides of a boundary."""
    found: Mask = False
    above: Mask = False
    below: Mask = False
    for q, (loop, here) in enumerate(zip(block.path, block.mask, strict=True)):
        if not forms.possible(loop.parallel):
            continue
        starts = forms.both(here, forms.negate(loop.glued))
        above, below = (forms.both(side, forms.negate(starts)) for side in (above, below))
        for leaf in loop.leaves:
            stride = form.get(leaf, 0)
            real = forms.both(here, forms.both(_less(0, stride), _less(1, leaf.extent)))
            outer = forms.compare(stride % width, 0)
            above = forms.either(above, forms.both(real, outer))
            below = forms.either(below, forms.both(real, forms.negate(outer)))
        around = forms.both(forms.both(here, loop.parallel), _less(q, level + 1))
        found = forms.either(found, forms.both(around, forms.both(above, below)))
    return found


def _hidden(block: Block, form: Form, width: int, level: Num) -> Mask:
    """Rows in which a part of a parallel loop around a level goes from group to group, and moves
    its variable by as much as the parts fused inside of it have iterations.

    TVM writes its index `x // 4 * 4`, which it takes for x without a remainder: the sum of that
    and of what stands still below it is then divided as if it were of one piece.
    """
    found: Mask = False
    within: Mask = False
    inside: Num = 1
    for q, (loop, here) in reversed(list(enumerate(zip(block.path, block.mask, strict=True)))):
        around = forms.both(forms.both(here, loop.parallel), _less(q, level + 1))
        for leaf in reversed(loop.leaves):
            stride = form.get(leaf, 0)
            real = forms.both(around, _less(1, leaf.extent))
            beyond = forms.both(real, _less(width - 1, stride))
            found = forms.either(found, forms.both(within, beyond))
            below = forms.both(_less(1, stride), _less(stride, width))
            hidden = forms.both(below, forms.compare(stride, inside))
            within = forms.either(within, forms.both(real, hidden))
            inside = forms.select(here, forms.times(inside, leaf.extent), inside)
        goes_on = forms.negate(forms.both(here, forms.negate(loop.glued)))
        within = forms.both(within, goes_on)
        inside = forms.select(goes_on, inside, 1)
    return found


def _less(a: Num, b: Num) -> Mask:
    return a < b


def _peel(state: State, loop: Loop, factor: Num) -> tuple[Loop, Loop]:
    """A loop as an outer and an inner one of `factor` iterations, in every binding."""
    outer: list[Leaf] = []
    inner: list[Leaf] = []
    parts: dict[Leaf, tuple[Leaf, Leaf]] = {}
    low: Num = 1
    for leaf in reversed(loop.leaves):
        high, rest, exact = _cut(leaf, low, factor)
        if leaf is loop.leaves[0]:
            # one part covers it all: the outermost digit runs on beyond its end
            covers = forms.negate(_less(factor, forms.times(low, leaf.extent)))
            rest.extent = forms.select(covers, -(-factor // low), rest.extent)
            exact = forms.either(exact, covers)
        state.doubt(exact)
        parts[leaf] = (high, rest)
        outer.insert(0, high)
        inner.insert(0, rest)
        low = forms.times(low, leaf.extent)
    _replace(state, parts)
    return Loop(tuple(outer), -(-loop.extent // factor)), Loop(tuple(inner), factor)


def guard(state: State, loop: Loop, exact: Mask) -> None:
    """Where a split does not divide, threads have nothing to do in some iterations."""
    if not state.target.gpu:
        state.doubt(exact)
        return
    for block in state.blocks:
        if loop in block.path:
            block.guarded = forms.either(block.guarded, forms.negate(exact))


def split_reduction(state: State, loop: Loop, factors: Sequence[Num | None]) -> list[Loop]:
    """Replace a fused reduction loop by its factors; one factor may be None."""
    known: Num = 1
    for factor in factors:
        known = known if factor is None else forms.times(known, factor)
    if any(f is None for f in factors):
        guard(state, loop, forms.compare(loop.extent % known, 0))
    sizes = [-(-loop.extent // known) if f is None else f for f in factors]
    found: list[Loop] = []
    rest = loop
    for factor in sizes[:0:-1]:
        rest, part = _peel(state, rest, factor)
        found.insert(0, part)
    found.insert(0, rest)
    found[-1].shared = loop.shared
    for block in state.blocks:
        if loop in block.path:
            p = block.path.index(loop)
            block.path[p : p + 1] = found
            block.mask[p : p + 1] = [block.mask[p]] * len(found)
    return found


def coefficient(form: Form, loop: Loop) -> Num:
    """Stride of a loop variable in an index as TVM writes it; 0 where only parts of it occur.

    A leaf alone of several stands under a division, where StrideExtractor does not look.
    """
    if len(loop.leaves) == 1:
        return form.get(loop.leaves[0], 0)
    if not any(leaf in form for leaf in loop.leaves):
        return 0
    stride: Num = form.get(loop.leaves[-1], 0)
    expected: Num = 0
    seen: Mask = False
    whole: Mask = True
    for leaf in reversed(loop.leaves):
        step = form.get(leaf, 0)
        several = forms.differ(leaf.extent, 1)
        stride = forms.select(forms.both(several, forms.negate(seen)), step, stride)
        later = forms.both(several, seen)
        chained = forms.either(forms.negate(later), forms.compare(step, expected))
        whole = forms.both(whole, chained)
        expected = forms.select(several, forms.times(step, leaf.extent), expected)
        seen = forms.either(seen, several)
    return forms.select(whole, stride, 0)
