"""Split-K: a long reduction for few results, computed in parts by different thread blocks.

A product of few rows and columns has fewer tiles than the device has units. Its reduction is split
into parts, each a product of its own (TVM's rfactor), and a second kernel adds the parts up. Of the
reduction axes of a convolution the longest is split: its channels.

Notation
--------
m, n, k   rows and columns of the result, length of its reduction
axis      length of the reduction axis that is split
tiles     tiles of `TILE` x `TILE` results
parts     number of parts of the reduction
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Any, TypeGuard

from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tensorcore.strides import axes_of
from pruner_ms.tvm_compat.paths import as_int, iter_type_name, region_buffer
from pruner_ms.tvm_compat.schedules import arguments_of, get_block

TILE = 64
"""Rows and columns of the tile of a thread block: at the small end of good kernels."""

LEAST_K = 256
"""Least length of a part: prologue and epilogue dominate shorter ones."""


SHAPES = {"wmma": (16, 16, 16), "mma": (16, 8, 16)}
"""Shapes of the instructions with split-K designs, by family; others would be too many designs."""

LANES = {"wmma": (128, 64, 32), "mma": (32,)}
"""Threads of a block that adds parts up: the first that divides the rows of results. For `mma` one
warp: TVM distributes copies (LowerAutoCopy) as if all kernels of a function had as many threads
along x as the last one."""


@dataclass(frozen=True)
class Sizes:
    """A product; see the notation. `place` is the index of the axis among the block's, `last` the
    length of the last axis of the results."""

    m: int
    n: int
    k: int
    axis: int
    place: int
    last: int


def parts_for(sizes: Sizes, depth: int, units: int) -> tuple[int, ...]:
    """Numbers of parts to split a reduction into: at most two powers of two; empty if it is no use.

    No more parts than fill the device, and none shorter than `LEAST_K`.

    Parameters
    ----------
    depth
        k of one instruction; parts are multiples of it.
    units
        SMs of the device.
    """
    tiles = ceil(sizes.m / TILE) * ceil(sizes.n / TILE)
    powers = [p for p in (2, 4, 8, 16) if tiles * p / 2 < units]
    fit = [p for p in powers if sizes.axis % (p * depth) == 0 and sizes.k // p >= LEAST_K]
    return tuple(fit[-2:])


def lanes_for(sizes: Sizes, row: Instruction) -> int | None:
    """Threads of a block that adds parts up; None if no choice divides the rows of results."""
    return next((lanes for lanes in LANES[row.family] if sizes.last % lanes == 0), None)


def splits(sizes: Sizes | None, row: Instruction) -> TypeGuard[Sizes]:
    """Whether an instruction has split-K designs of a product."""
    if sizes is None or row.shape != SHAPES[row.family]:
        return False
    return row.family != "mma" or lanes_for(sizes, row) is not None


def sizes(block: Any) -> Sizes | None:
    """Sizes of a block with rows, columns and a reduction and nothing else; None for others."""
    kinds = axes_of(block)
    if kinds is None or set(kinds) != set("mnk"):
        return None
    extents = [as_int(v.dom.extent) for v in block.iter_vars]
    m, n, k = (prod(e for e, kind in zip(extents, kinds, strict=True) if kind == x) for x in "mnk")
    reductions = [place for place, kind in enumerate(kinds) if kind == "k"]
    place = max(reductions, key=lambda each: extents[each])
    last = [extent for extent, kind in zip(extents, kinds, strict=True) if kind != "k"][-1]
    return Sizes(m, n, k, extents[place], place, last)


def split(schedule: Any, block: Any, place: int, parts: int, lanes: int | None) -> tuple[Any, Any]:
    """A copy of a schedule in which a block's reduction is split, and its block of partial results.

    Parameters
    ----------
    place
        Index of the axis to split, and of its loop.
    lanes
        Threads of a block that adds the parts up; None leaves that kernel to later rules.
    """
    name = str(schedule.get(block).name_hint)
    parted = schedule.copy()
    reduction = get_block(parted, name)
    outer, _ = parted.split(parted.get_loops(reduction)[place], [parts, None])
    partial = parted.rfactor(outer, 0)
    loops = parted.get_loops(partial)
    # stock's rule looks for tiles in the last two spatial loops
    parted.reorder(loops[place], *loops[:place], *loops[place + 1 :])
    if lanes is not None:
        _add_up(parted, get_block(parted, name), lanes)
    return parted, partial


def _add_up(schedule: Any, block: Any, lanes: int) -> None:
    """Bind the block that adds parts up to threads, inside its elementwise consumers if any."""
    followers = _followers(schedule, block)
    for passed in followers[:-1]:
        schedule.compute_inline(passed)
    *rows, columns = schedule.get_loops(followers[-1] if followers else block)
    if not followers:  # the parts are its innermost loop
        columns = rows.pop()
    outer, threads = schedule.split(columns, [None, lanes])
    schedule.bind(schedule.fuse(*rows, outer), "blockIdx.x")
    schedule.bind(threads, "threadIdx.x")
    if followers:
        schedule.compute_at(block, threads, preserve_unit_loops=True)
        schedule.set_scope(block, 0, "local")


def _followers(schedule: Any, block: Any) -> list[Any]:
    """The chain of elementwise consumers of a block.

    Empty where another block reads an intermediate result, or the result of the last one: later
    rules may move that one to its readers, which would read registers of another kernel.
    """
    arguments = arguments_of(schedule)
    followers, last = [], block
    while following := schedule.get_consumers(last):
        made = region_buffer(schedule.get(last).writes[0])
        returned = any(made.same_as(buffer) for buffer in arguments)
        if returned or len(following) > 1:
            return []
        if not _alike(schedule.get(last), schedule.get(following[0])):
            return []
        last = following[0]
        followers.append(last)
    return followers


def _alike(block: Any, follower: Any) -> bool:
    """Whether a block computes one element from each of another's, in their order."""
    ours = region_buffer(block.writes[0])
    reads = [each.region for each in follower.reads if region_buffer(each).same_as(ours)]
    extents = [as_int(v.dom.extent) for v in follower.iter_vars]
    if len(reads) != 1 or extents != [as_int(size) for size in ours.shape]:
        return False
    if any(iter_type_name(v) != "S" for v in follower.iter_vars):
        return False
    return all(r.min.same_as(v.var) for r, v in zip(reads[0], follower.iter_vars, strict=True))
