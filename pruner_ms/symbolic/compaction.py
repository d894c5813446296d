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
from pruner_ms.symbolic.forms import Mask, Num
from pruner_ms.symbolic.moves import free_leaves, region
from pruner_ms.symbolic.state import Acc, Block, Buf, State


@dataclass(frozen=True)
class Placed:
    """A buffer where it is allocated.

    Attributes
    ----------
    shape
        Elements per dimension.
    strides
        Elements between neighbours of a dimension.
    level
        Position on its accessors' paths of the innermost loop around the allocation, -1 for none.
    exists
        Rows in which something touches it.
    """

    buffer: Buf
    shape: tuple[Num, ...]
    strides: tuple[Num, ...]
    level: Num
    exists: Mask


def strides_of(
    shape: Sequence[Num], align: tuple[int, int, int] | None = None
) -> tuple[Num, ...]:
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
    """How many outermost loops two blocks share."""
    depth: Num = 0
    together: Mask = True
    for p, (left, right) in enumerate(zip(a.path, b.path, strict=False)):
        if left is not right:
            break
        together = forms.both(together, forms.both(a.mask[p], b.mask[p]))
        if together is False:
            break
        depth = forms.select(together, p + 1, depth)
    return depth


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
    level = depth - 1
    shape: list[Num] = [0] * len(buffer.shape)
    exists: Mask = False
    for block, access, rows in _distinct(users):
        exists = forms.either(exists, rows)
        spans = region(state, block, access, free_leaves(block, level))
        for i, (span, _) in enumerate(spans):
            shape[i] = forms.larger(shape[i], forms.select(rows, span, 0))
    found = tuple(forms.smaller(span, full) for span, full in zip(shape, buffer.shape, strict=True))
    found = tuple(forms.select(exists, span, 1) for span in found)
    return Placed(buffer, found, strides_of(found, buffer.align), level, exists)


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
