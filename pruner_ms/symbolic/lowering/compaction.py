"""Sizes of buffers after CompactBufferAllocation, row by row.

A buffer is allocated below the loops that are common to all its accesses
(`plan_update_buffer_allocation_location.cc`); its shape is the largest region that any access
touches while the loops below the allocation run (`compact_buffer_region.cc`). The update and the
initialisation of a reduction share all loops above the first reduction loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from pruner_ms.symbolic.index import expr, forms
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.expr import Binary, Expr
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.index.intervals import Interval, same_strides, union_all
from pruner_ms.symbolic.index.iter_map import fuses
from pruner_ms.symbolic.primitives.first_row import is_first_row, is_uncertain, solved
from pruner_ms.symbolic.primitives.moves import free_leaves, region
from pruner_ms.symbolic.primitives.refine import crosses_groups
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, State, Test
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    divides,
    either,
    gcd,
    larger,
    negate,
    possible,
    quotient,
    select,
    smaller,
    times,
)
from pruner_ms.tvm_compat.paths import MODULAR_BOUNDS

# Regions of padded blocks whose iterations the threads do not divide (`arith/iter_affine_map.cc`).
#
# The last threads are idle: a condition excludes the iterations from F on, in conjunction with the
# condition of the padding. If TVM cannot normalise the padding's condition
# (`NormalizeToIterOnBoundExpr`) it drops both, and the region is that of all iterations up to X.
#
# Notation
# --------
# F, X   as in `cuts`
# g      common divisor of both sides of a padding's condition


def overrun(state: State, block: Block, access: Acc, spans: list[Interval]) -> list[Interval]:
    """The regions of an access, including those of idle threads where TVM counts them.

    Rows in which that depends on details of TVM's simplifier are unsupported.
    """
    regions = list(spans)
    row_solved: Mask = False
    if is_first_row(block):
        state.support_only(negate(is_uncertain(block)))
        row_solved = solved(block)
    for cut in block.cuts if block.tests else ():
        state.support_only(negate(_placement_fails(state, block, cut)))
        if not possible(both(cut.guarded, _has_condition(block))):
            continue
        unsolved, inseparable = _unsolved(state, block, cut)
        idle_counted, undecided = (both(m, negate(row_solved)) for m in (unsolved, inseparable))
        for i, dim in enumerate(access.dims):
            form = state.evaluator(block).form(dim.index)
            for digit, leaf in enumerate(cut.leaves):
                if leaf not in form:
                    continue
                more = quotient(cut.reach - 1, cut.inside[digit]) - leaf.last
                more = select(cut.last(digit), times(form[leaf], more), 0)
                state.support_only(negate(both(undecided, more > 0)))
                regions[i] = regions[i][0] + select(idle_counted, more, 0), regions[i][1]
    return regions


def _placement_fails(state: State, block: Block, cut: Cut) -> Mask:
    """Rows in which TVM cannot place consumers, as it does not infer what this block covers.

    If only parts of one fused loop f run along the pixels p, with no gap between them, TVM solves
    the condition of the padding to `f < end`. If f has several such parts, and they do not fill
    whole rows of the image (W pixels each), TVM does not infer the indices `p // W` and `p % W`
    that a consumer reads. Nothing reads them if the block writes the function's result and no
    consumer was inlined.
    """
    widths = {w for write in block.writes for dim in write.dims for w in expr.divisors(dim.index)}
    refused: Mask = False
    has_reader = block.solved or not all(write.buffer.param for write in block.writes)
    for test in block.tests if widths and has_reader else ():
        form = state.evaluator(block).form(_pixel(test.index))
        ragged: Mask = False
        for width in widths:
            ragged = either(ragged, negate(divides(width, forms.reach(form))))
        alone: Mask = True
        parts: Num = 0
        for leaf, stride in form.items():
            if leaf in cut.leaves:
                parts = parts + _runs(leaf, stride)
            elif leaf is not None:
                alone = both(alone, negate(_runs(leaf, stride)))
        inner: Form = {leaf: form[leaf] for leaf in cut.leaves if leaf in form}
        one = both(alone, _adjoin(cut, inner))
        several_parts = both(ragged, parts > 1)
        refused = either(refused, both(test.rows, both(one, several_parts)))
    return refused


def _pixel(index: Expr) -> Expr:
    """The index of a pixel, given a quotient of it that counts rows."""
    while isinstance(index, Binary) and index.op == "//":
        index = index.a
    return index


def _adjoin(cut: Cut, moving: Form) -> Mask:
    """Rows in which no other digit of the loop lies between those that move an index."""
    if not moving:
        return False
    places = [i for i, leaf in enumerate(cut.leaves) if leaf in moving]
    between = [leaf for leaf in cut.leaves[places[0] : places[-1]] if leaf not in moving]
    return prod(leaf.extent for leaf in between) == 1


def _has_condition(block: Block) -> Mask:
    """Rows in which the padding has a condition."""
    rows: Mask = False
    for test in block.tests:
        rows = either(rows, test.rows)
    return rows


def _unsolved(state: State, block: Block, cut: Cut) -> tuple[Mask, Mask]:
    """Rows in which TVM cannot normalise a condition of the padding, and those that are unclear."""
    counted: Mask = False
    perhaps: Mask = False
    for test in block.tests:
        form = state.evaluator(block).form(test.index)
        moving = [(leaf, form[leaf]) for leaf in cut.leaves if leaf in form]
        unit: Mask = False
        moves: Mask = False
        for leaf, stride in moving:
            runs = _runs(leaf, stride)
            moves = either(moves, runs)
            unit = either(unit, both(runs, stride == 1))
        fits = either(negate(moves), both(unit, fuses(dict(moving))))
        counted = either(counted, both(test.rows, negate(fits)))
        inseparable = _not_separable(cut, form, test)
        perhaps = either(perhaps, both(test.rows, both(moves, inseparable)))
    return counted, both(perhaps, negate(counted))


def _runs(leaf: Leaf, stride: Num) -> Mask:
    """Rows in which a leaf moves an index."""
    return both(leaf.extent != 1, stride > 0)


def _not_separable(cut: Cut, form: Form, test: Test) -> Mask:
    """Rows in which a part of the loop moves a digit of a condition by whole steps.

    TVM then moves the part out of the digit, and the rest is not recognised as the loop.
    """
    factor: Num = test.end
    for leaf, stride in form.items():
        if leaf is not None:
            factor = gcd(factor, select(stride == 1, 0, stride))
    rows: Mask = False
    for digit, leaf in enumerate(cut.leaves):
        if leaf not in form:
            continue
        least = form[leaf] == 1
        digit_extent = select(factor == 1, leaf.extent, factor)
        period = times(cut.inside[digit], select(least, digit_extent, 1))
        for step, extent in zip(cut.steps[:-1], cut.extents[:-1], strict=True):
            divisible = divides(period, step)
            part = both(divisible, extent != 1)
            rows = either(rows, both(_runs(leaf, form[leaf]), part))
    return rows


@dataclass(frozen=True)
class Placed:
    """A buffer with its allocation.

    Attributes
    ----------
    shape
        Elements per dimension.
    strides
        Elements between neighbours of a dimension.
    first, level
        A block that accesses it, and the position on that block's path of the innermost loop
        around the allocation, -1 for none; `first` is None for an argument of the function.
    exists
        Rows in which it is accessed.
    bases
        Per dimension None if every access begins at the allocation's first index; else that first
        index: accesses may then move within the buffer with the loops around the allocation.
    """

    buffer: Buf
    shape: tuple[Num, ...]
    strides: tuple[Num, ...]
    level: Num
    exists: Mask
    first: Block | None = None
    bases: tuple[Form | None, ...] = ()

    @property
    def offset_varies(self) -> bool:
        """Whether the offset of an access may vary with loops around the allocation."""
        return any(base is not None for base in self.bases)

    def level_of(self, block: Block) -> Num:
        """The level on the path of another block that accesses the buffer."""
        return -1 if self.first is None else level_on(block, self.first, self.level)


def strides_of(shape: Sequence[Num], align: tuple[int, int, int] | None = None) -> tuple[Num, ...]:
    """Row-major strides; that of one dimension may be aligned (`CalcStrides`)."""
    strides: list[Num] = []
    stride: Num = 1
    for dim in range(len(shape) - 1, -1, -1):
        if align is not None and align[0] % len(shape) == dim:
            _, factor, offset = align
            stride = stride + (factor + offset - stride % factor) % factor
        strides.insert(0, stride)
        stride = times(stride, shape[dim])
    return tuple(strides)


def common_depth(a: Block, b: Block) -> Num:
    """Depth, on the path of the first block, of the innermost loop that both blocks share."""
    places = {loop: q for q, loop in enumerate(b.path)}
    depth: Num = 0
    for p, (loop, present) in enumerate(zip(a.path, a.mask, strict=True)):
        if loop in places:
            together = both(present, b.mask[places[loop]])
            depth = select(together, p + 1, depth)
    return depth


def level_on(block: Block, first: Block, level: Num) -> Num:
    """Position, on a block's path, of the loop at `level` on another block's path; -1 for none."""
    top = level + 1 if isinstance(level, int) else int(level.max(initial=-1)) + 1
    if block is first or block.path[:top] == first.path[:top]:
        return level
    position: Num = -1
    for q, (loop, present) in enumerate(zip(block.path, block.mask, strict=True)):
        if loop in first.path[:top]:
            p = first.path.index(loop)
            around = both(level >= p, both(present, first.mask[p]))
            position = select(around, q, position)
    return position


def accessors(state: State, buffer: Buf) -> list[tuple[Block, Acc, Mask]]:
    """Blocks that access a buffer, with the access and its rows."""
    return [
        (block, access, both(block.alive, access.mask))
        for block in state.blocks
        for access in (*block.reads, *block.writes)
        if access.buffer is buffer
    ]


def place(state: State, buffer: Buf) -> Placed:
    """Allocation of one buffer that is not an argument of the function."""
    users = accessors(state, buffer)
    first = users[0][0]
    depth: Num = len(first.path)
    for block, _, rows in users[1:]:
        if block is not first:
            shared = common_depth(first, block)
            depth = select(rows, smaller(depth, shared), depth)
    if buffer.scope == "global" and any(loop.tag.startswith("blockIdx") for loop in first.path):
        depth = 0  # all blocks of the grid share it
    level = depth - 1
    shape: list[Num] = [0] * len(buffer.shape)
    exists: Mask = False
    regions: list[list[tuple[Mask, Interval]]] = [[] for _ in buffer.shape]
    for block, access, rows in _distinct(users):
        exists = either(exists, rows)
        around = level_on(block, first, level)
        for cut in () if MODULAR_BOUNDS else block.cuts:
            independent = both(cut.chained, negate(cut.shortened))
            state.support_only(either(negate(rows), independent))
        below = both(rows, around >= 0)  # else all loops run, and the whole buffer is accessed
        state.support_only(negate(both(below, crosses_groups(block, access, around))))
        spans = region(state, block, access, running(block, buffer, around))
        spans = overrun(state, block, access, spans)
        if _private(buffer):  # every thread has its own
            threads = bound_leaves(block)
            spans = [(size, {x: v for x, v in b.items() if x not in threads}) for size, b in spans]
        for i, span in enumerate(spans):
            shape[i] = larger(shape[i], select(rows, span[0], 0))
            regions[i].append((rows, span))
    bases: list[Form | None] = [None] * len(shape)
    for i, intervals in enumerate(regions):
        if not same_strides([base for _, (_, base) in intervals]):
            (shape[i], bases[i]), exact = union_all(intervals, buffer.shape[i])
            state.support_only(exact)
    sizes = [smaller(span, full) for span, full in zip(shape, buffer.shape, strict=True)]
    sizes = [select(exists, span, 1) for span in sizes]
    strides = strides_of(sizes, buffer.align)
    return Placed(buffer, tuple(sizes), strides, level, exists, first, tuple(bases))


def running(block: Block, buffer: Buf, level: Num) -> dict[Leaf, Mask]:
    """Leaves that run while the loops around a buffer's allocation are fixed.

    Memory of a thread is allocated below the loops over threads, wherever these are on the path
    (LiftThreadBinding).
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
    """Users without those whose region is that of another one (the two sides of an update)."""
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
    """All accessed buffers with their allocations, in order of first use."""
    placed: dict[Buf, Placed] = {}
    for block in state.blocks:
        for access in (*block.reads, *block.writes):
            buffer = access.buffer
            if buffer in placed:
                continue
            if buffer.param:
                placed[buffer] = Placed(buffer, buffer.shape, strides_of(buffer.shape), -1, True)
            else:
                placed[buffer] = place(state, buffer)
    return placed
