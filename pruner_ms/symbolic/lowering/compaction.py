"""Sizes of buffers after CompactBufferAllocation, row by row.

A buffer is allocated below the loops that all its accesses share
(`plan_update_buffer_allocation_location.cc`); its shape is the largest region that any access
touches while the loops below that place run (`compact_buffer_region.cc`). The update and the
initialisation of a reduction share all loops above the first reduction loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from pruner_ms.symbolic.index import expr, forms
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.expr import Binary, Expr
from pruner_ms.symbolic.index.forms import Form, Leaf, Mask, Num
from pruner_ms.symbolic.index.intervals import Interval, together, union_all
from pruner_ms.symbolic.index.iter_map import fuses
from pruner_ms.symbolic.primitives.first_row import is_first_row, solved, unsure
from pruner_ms.symbolic.primitives.moves import free_leaves, region
from pruner_ms.symbolic.primitives.refine import torn
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, State, Test
from pruner_ms.tvm_compat.paths import MODULAR_BOUNDS

# Regions of padded blocks whose work threads share unevenly (`arith/iter_affine_map.cc`).
#
# The last threads are idle: a condition keeps the iterations from F on from running. Beside it
# stands the condition of the padding. Where TVM does not understand that one
# (`NormalizeToIterOnBoundExpr`) it gives up the other one too, and a region holds what iterations
# up to X would touch.
#
# Notation
# --------
# F, X   as in `cuts`
# g      what both sides of a padding's condition are divided by


def overrun(state: State, block: Block, access: Acc, spans: list[Interval]) -> list[Interval]:
    """The regions of an access, with what idle threads would touch where TVM counts them.

    Rows in which that hangs on how far TVM's simplifier gets are doubted.
    """
    found = list(spans)
    known: Mask = False
    if is_first_row(block):
        state.doubt(forms.negate(unsure(block)))
        known = solved(block)
    for cut in block.cuts if block.tests else ():
        state.doubt(forms.negate(_refused(state, block, cut)))
        if not forms.possible(forms.both(cut.guarded, _tested(block))):
            continue
        obscure, torn = _obscure(state, block, cut)
        counted, perhaps = (forms.both(m, forms.negate(known)) for m in (obscure, torn))
        for i, dim in enumerate(access.dims):
            form = state.evaluator(block).form(dim.index)
            for digit, leaf in enumerate(cut.leaves):
                if leaf not in form:
                    continue
                more = forms.quotient(cut.reach - 1, cut.inside[digit]) - leaf.last
                more = forms.select(cut.last(digit), forms.times(form[leaf], more), 0)
                state.doubt(forms.negate(forms.both(perhaps, more > 0)))
                found[i] = found[i][0] + forms.select(counted, more, 0), found[i][1]
    return found


def _refused(state: State, block: Block, cut: Cut) -> Mask:
    """Rows of which TVM refuses to place more blocks, as it does not see what this one covers.

    Rows of pixels are parts of one loop f without columns between them: their condition is solved,
    `f < end`, and tiles that f does not fill are no digits of pixels, unless whole rows of the
    image fill them. A block behind reads the pixels, or has been inlined.
    """
    widths = {w for write in block.writes for dim in write.dims for w in expr.divisors(dim.index)}
    found: Mask = False
    read = block.solved or not all(write.buffer.param for write in block.writes)
    for test in block.tests if widths and read else ():
        form = state.evaluator(block).form(_pixel(test.index))
        torn: Mask = False
        for width in widths:
            torn = forms.either(torn, forms.negate(forms.divides(width, forms.reach(form))))
        alone: Mask = True
        parts: Num = 0
        for leaf, stride in form.items():
            if leaf in cut.leaves:
                parts = parts + _runs(leaf, stride)
            elif leaf is not None:
                alone = forms.both(alone, forms.negate(_runs(leaf, stride)))
        inner: Form = {leaf: form[leaf] for leaf in cut.leaves if leaf in form}
        one = forms.both(alone, _adjoin(cut, inner))
        several = forms.both(torn, parts > 1)
        found = forms.either(found, forms.both(test.rows, forms.both(one, several)))
    return found


def _pixel(index: Expr) -> Expr:
    """What a row of pixels is a quotient of."""
    while isinstance(index, Binary) and index.op == "//":
        index = index.a
    return index


def _adjoin(cut: Cut, moving: Form) -> Mask:
    """Rows in which no other digit of the loop lies between those that move an index."""
    if not moving:
        return False
    places = [i for i, leaf in enumerate(cut.leaves) if leaf in moving]
    between = [leaf for leaf in cut.leaves[places[0] : places[-1]] if leaf not in moving]
    return forms.compare(prod(leaf.extent for leaf in between), 1)


def _tested(block: Block) -> Mask:
    """Rows in which there is a condition of the padding."""
    found: Mask = False
    for test in block.tests:
        found = forms.either(found, test.rows)
    return found


def _obscure(state: State, block: Block, cut: Cut) -> tuple[Mask, Mask]:
    """Rows in which a condition of the padding is not understood, and in which it may not be."""
    counted: Mask = False
    perhaps: Mask = False
    for test in block.tests:
        form = state.evaluator(block).form(test.index)
        moving = [(leaf, form[leaf]) for leaf in cut.leaves if leaf in form]
        unit: Mask = False
        moves: Mask = False
        for leaf, stride in moving:
            runs = _runs(leaf, stride)
            moves = forms.either(moves, runs)
            unit = forms.either(unit, forms.both(runs, forms.compare(stride, 1)))
        fits = forms.either(forms.negate(moves), forms.both(unit, fuses(dict(moving))))
        counted = forms.either(counted, forms.both(test.rows, forms.negate(fits)))
        torn = _torn(cut, form, test)
        perhaps = forms.either(perhaps, forms.both(test.rows, forms.both(moves, torn)))
    return counted, forms.both(perhaps, forms.negate(counted))


def _runs(leaf: Leaf, stride: Num) -> Mask:
    """Rows in which a leaf moves an index."""
    return forms.both(forms.differ(leaf.extent, 1), stride > 0)


def _torn(cut: Cut, form: Form, test: Test) -> Mask:
    """Rows in which a part of the loop moves a digit of a condition by whole steps.

    The part is then taken out of the digit, and what is left is not the loop any more.
    """
    factor: Num = test.end
    for leaf, stride in form.items():
        if leaf is not None:
            factor = forms.gcd(factor, forms.select(forms.compare(stride, 1), 0, stride))
    found: Mask = False
    for digit, leaf in enumerate(cut.leaves):
        if leaf not in form:
            continue
        least = forms.compare(form[leaf], 1)
        several = forms.select(forms.compare(factor, 1), leaf.extent, factor)
        period = forms.times(cut.inside[digit], forms.select(least, several, 1))
        for step, extent in zip(cut.steps[:-1], cut.extents[:-1], strict=True):
            whole = forms.divides(period, step)
            part = forms.both(whole, forms.differ(extent, 1))
            found = forms.either(found, forms.both(_runs(leaf, form[leaf]), part))
    return found


@dataclass(frozen=True)
class Placed:
    """A buffer where it is allocated.

    Attributes
    ----------
    shape
        Elements per dimension.
    strides
        Elements between neighbours of a dimension.
    first, level
        A block that touches it, and the position on that block's path of the innermost loop
        around the allocation, -1 for none; `first` is None for an argument of the function.
    exists
        Rows in which something touches it.
    bases
        Per dimension the first index of what is allocated, where it is not that of every access:
        an access may then move in it with the loops around the allocation. None where it is.
    """

    buffer: Buf
    shape: tuple[Num, ...]
    strides: tuple[Num, ...]
    level: Num
    exists: Mask
    first: Block | None = None
    bases: tuple[Form | None, ...] = ()

    @property
    def drifts(self) -> bool:
        """Whether loops around the allocation may move an access in it."""
        return any(base is not None for base in self.bases)

    def level_of(self, block: Block) -> Num:
        """The level on the path of another block that touches the buffer."""
        return -1 if self.first is None else level_on(block, self.first, self.level)


def strides_of(shape: Sequence[Num], align: tuple[int, int, int] | None = None) -> tuple[Num, ...]:
    """Row-major strides; that of one dimension may be aligned (`CalcStrides`)."""
    found: list[Num] = []
    stride: Num = 1
    for dim in range(len(shape) - 1, -1, -1):
        if align is not None and align[0] % len(shape) == dim:
            _, factor, offset = align
            stride = stride + (factor + offset - stride % factor) % factor
        found.insert(0, stride)
        stride = forms.times(stride, shape[dim])
    return tuple(found)


def common_depth(a: Block, b: Block) -> Num:
    """How far down the first block's path the last loop is that two blocks share."""
    places = {loop: q for q, loop in enumerate(b.path)}
    depth: Num = 0
    for p, (loop, here) in enumerate(zip(a.path, a.mask, strict=True)):
        if loop in places:
            together = forms.both(here, b.mask[places[loop]])
            depth = forms.select(together, p + 1, depth)
    return depth


def level_on(block: Block, first: Block, level: Num) -> Num:
    """Position on a block's path of what is at `level` on another one's, -1 for none."""
    top = level + 1 if isinstance(level, int) else int(level.max(initial=-1)) + 1
    if block is first or block.path[:top] == first.path[:top]:
        return level
    found: Num = -1
    for q, (loop, here) in enumerate(zip(block.path, block.mask, strict=True)):
        if loop in first.path[:top]:
            p = first.path.index(loop)
            around = forms.both(_reaches(level, p), forms.both(here, first.mask[p]))
            found = forms.select(around, q, found)
    return found


def _reaches(level: Num, position: int) -> Mask:
    return level >= position


def accessors(state: State, buffer: Buf) -> list[tuple[Block, Acc, Mask]]:
    """Who touches a buffer, how, and in which rows."""
    return [
        (block, access, forms.both(block.alive, access.mask))
        for block in state.blocks
        for access in (*block.reads, *block.writes)
        if access.buffer is buffer
    ]


def place(state: State, buffer: Buf) -> Placed:
    """Allocation of one buffer that is no argument of the function."""
    users = accessors(state, buffer)
    first = users[0][0]
    depth: Num = len(first.path)
    for block, _, rows in users[1:]:
        if block is not first:
            shared = common_depth(first, block)
            depth = forms.select(rows, forms.smaller(depth, shared), depth)
    if buffer.scope == "global" and any(loop.tag.startswith("blockIdx") for loop in first.path):
        depth = 0  # every block of the grid sees it
    level = depth - 1
    shape: list[Num] = [0] * len(buffer.shape)
    exists: Mask = False
    regions: list[list[tuple[Mask, Interval]]] = [[] for _ in buffer.shape]
    for block, access, rows in _distinct(users):
        exists = forms.either(exists, rows)
        around = level_on(block, first, level)
        for cut in () if MODULAR_BOUNDS else block.cuts:
            known = forms.both(cut.chained, forms.negate(cut.shortened))
            state.doubt(forms.either(forms.negate(rows), known))
        below = forms.both(rows, around >= 0)  # else all loops run, and all of it is touched
        state.doubt(forms.negate(forms.both(below, torn(block, access, around))))
        spans = region(state, block, access, running(block, buffer, around))
        spans = overrun(state, block, access, spans)
        if _private(buffer):  # every thread has its own
            threads = bound_leaves(block)
            spans = [(size, {x: v for x, v in b.items() if x not in threads}) for size, b in spans]
        for i, span in enumerate(spans):
            shape[i] = forms.larger(shape[i], forms.select(rows, span[0], 0))
            regions[i].append((rows, span))
    bases: list[Form | None] = [None] * len(shape)
    for i, several in enumerate(regions):
        if not together([base for _, (_, base) in several]):
            (shape[i], bases[i]), exact = union_all(several, buffer.shape[i])
            state.doubt(exact)
    found = tuple(forms.smaller(span, full) for span, full in zip(shape, buffer.shape, strict=True))
    found = tuple(forms.select(exists, span, 1) for span in found)
    strides = strides_of(found, buffer.align)
    return Placed(buffer, found, strides, level, exists, first, tuple(bases))


def running(block: Block, buffer: Buf, level: Num) -> dict[Leaf, Mask]:
    """Leaves that run while the loops around a buffer's allocation stand still.

    Memory of a thread is allocated below its loops wherever they are (LiftThreadBinding).
    """
    free = free_leaves(block, level, buffer.scope)
    if _private(buffer):
        free.update((leaf, False) for leaf in bound_leaves(block))
    return free


def _private(buffer: Buf) -> bool:
    """Whether a buffer is memory of one thread, or of one warp."""
    return buffer.scope != "global" and not buffer.scope.startswith("shared")


def bound_leaves(block: Block) -> set[Leaf]:
    """Leaves of the loops of a block that are bound to a thread axis."""
    return {leaf for loop in block.path if loop.tag for leaf in loop.leaves}


def _distinct(users: list[tuple[Block, Acc, Mask]]) -> list[tuple[Block, Acc, Mask]]:
    """Users without those that touch what another one touches (the two sides of an update)."""
    seen: list[tuple[Block, Acc, Mask]] = []
    for block, access, rows in users:
        same = any(
            b.path is block.path and b.env is block.env and a.dims == access.dims
            for b, a, _ in seen
        )
        if not same:
            seen.append((block, access, rows))
    return seen


def place_all(state: State) -> dict[Buf, Placed]:
    """Every buffer that a block touches, in order of first use."""
    found: dict[Buf, Placed] = {}
    for block in state.blocks:
        for access in (*block.reads, *block.writes):
            buffer = access.buffer
            if buffer in found:
                continue
            if buffer.param:
                found[buffer] = Placed(buffer, buffer.shape, strides_of(buffer.shape), -1, True)
            else:
                found[buffer] = place(state, buffer)
    return found
