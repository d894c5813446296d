"""Split-K: a long sum for few results, added up in parts by blocks of threads of their own.

A product of few rows and columns has fewer tiles than the device has units. Its sums are cut into
parts, each a product of its own (TVM's rfactor), and a second kernel adds the parts up.

Notation
--------
m, n, k   rows and columns of the result, length of its sums
tiles     tiles of `TILE` x `TILE` results
parts     into how many parts the sums are cut
"""

from __future__ import annotations

from math import ceil
from typing import Any

from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tvm_compat.paths import as_int, iter_type_name
from pruner_ms.tvm_compat.schedules import get_block

TILE = 64
"""Rows and columns of a block of threads' tile: small ones of good kernels."""

LEAST_SUMS = 256
"""Products of a part, at least: shorter ones are all start and end."""


SHAPES = {"wmma": (16, 16, 16), "mma": (16, 8, 16)}
"""Of the instructions that take parts, by family: designs are many enough as they are."""

LANES = 32
"""Threads that add parts up beside each other where copies of the product are `mma`'s: TVM shares
those out (LowerAutoCopy) as if all kernels of a function had as many threads along x as the last
one."""


def splits(row: Instruction) -> bool:
    """Whether sums are cut for an instruction, too."""
    return row.shape == SHAPES[row.family]


def parts_for(m: int, n: int, k: int, depth: int, units: int) -> tuple[int, ...]:
    """Into how many parts sums are cut: at most two powers of two, none where it is no use.

    No more than fill the device, and none so short that starting and ending is all they do.

    Parameters
    ----------
    depth
        Products of one instruction; parts are multiples of it.
    units
        SMs of the device.
    """
    tiles = ceil(m / TILE) * ceil(n / TILE)
    powers = [p for p in (2, 4, 8, 16) if tiles * p / 2 < units]
    fit = [p for p in powers if k % (p * depth) == 0 and k // p >= LEAST_SUMS]
    return tuple(fit[-2:])


def sizes(block: Any) -> tuple[int, int, int] | None:
    """m, n and k of a block with rows, columns and sums and nothing else; None for others."""
    extents = [as_int(v.dom.extent) for v in block.iter_vars]
    kinds = "".join(iter_type_name(v) for v in block.iter_vars)
    if kinds != "SSR":
        return None
    m, n, k = extents
    return m, n, k


def split(schedule: Any, block: Any, parts: int, lanes: int = 0) -> tuple[Any, Any]:
    """A copy of a schedule in which a block's sums are cut, and its block of the parts.

    Parameters
    ----------
    block
        The block; its last loop is over the sums.
    lanes
        Threads of a block that add the parts up; 0 leaves that to the rules that follow.
    """
    name = str(schedule.get(block).name_hint)
    found = schedule.copy()
    whole = get_block(found, name)
    outer, _ = found.split(found.get_loops(whole)[-1], [parts, None])
    partial = found.rfactor(outer, 0)
    rows, columns, part, sums = found.get_loops(partial)
    # stock's rule looks for tiles in the last two spatial loops
    found.reorder(part, rows, columns, sums)
    if lanes:
        adding = found.fuse(*found.get_loops(get_block(found, name))[:-1])
        for loop, thread in zip(
            found.split(adding, [None, lanes]), ("blockIdx.x", "threadIdx.x"), strict=True
        ):
            found.bind(loop, thread)
    return found, partial
