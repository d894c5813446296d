"""Sizes of buffers after CompactBufferAllocation, row by row.

A buffer is allocated below the loops that all its accesses share
(`plan_update_buffer_allocation_location.cc`); its shape is the largest region that any access
touches while the loops below that place run (`compact_buffer_region.cc`). The update and the
initialisation of a reduction share all loops above the first reduction loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.forms import Form, Leaf, Mask, Num
from pruner_ms.symbolic.intervals import Interval, together, union_all
from pruner_ms.symbolic.moves import free_leaves, region
from pruner_ms.symbolic.overrun import overrun
from pruner_ms.symbolic.refine import torn
from pruner_ms.symbolic.state import Acc, Block, Buf, State
from pruner_ms.tvm_compat.paths import MODULAR_BOUNDS


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
