"""Dynamic shared memory after `MergeSharedMemoryAllocations`, row by row.

TVM keeps a list of free entries, ordered by size (`transform/merge_shared_memory_allocations.cc`).
A buffer takes the smallest free entry that holds it and is at most 16 times as large; otherwise it
merges smaller entries, the largest first, until they hold it; otherwise it gets a new entry. A
merged entry is as large as the buffer, or as the sum of its parts.

Notation
--------
N      rows
B      buffers, in the order of their first use
time   index of a subtree below the kernel; a buffer is free after the last one that uses it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.dtypes import bytes_of
from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.lowering.compaction import Placed
from pruner_ms.symbolic.lowering.copy_padding import padded_rows, store_elements
from pruner_ms.symbolic.primitives.state import Block, Buf, Loop, State
from pruner_ms.symbolic.primitives.thread_steps import AUTO_COPY
from pruner_ms.symbolic.rows import Num, column, times
from pruner_ms.tvm_compat.passes import MERGE_ONCE, default_pass_config
from pruner_ms.tvm_compat.paths import REUSES_DYNAMIC
from pruner_ms.types import IntArray

MATCH_RANGE = 16
"""An entry is at most this many times as large as the buffer that takes it."""


@dataclass(frozen=True)
class Lifetime:
    """A buffer's bytes, int64 (N,), its first and last time, and its type."""

    size: IntArray
    first: int
    last: int
    dtype: str = ""


def merged(lives: Sequence[Lifetime], rows: int) -> IntArray:
    """Bytes that all buffers occupy, int64 (N,).

    Parameters
    ----------
    lives
        The buffers in the order of their first use.
    """
    if not lives:
        return np.zeros(rows, np.int64)
    free = np.zeros((len(lives), rows), np.int64)  # size of each free entry, 0 for none
    held = np.zeros((len(lives), rows), np.int64)  # size of the entry of each buffer
    for time in sorted({t for life in lives for t in (life.first, life.last)}):
        for i, life in enumerate(lives):
            if life.first == time:
                held[i] = _allocate(free, life.size)
        for i, life in enumerate(lives):
            if life.last == time:
                free[i] = held[i]
    total: IntArray = free.sum(axis=0)
    return total


def verified(lives: Sequence[Lifetime], built: IntArray) -> IntArray:
    """Bytes that VerifyGPUCode counts, int64 (N,), after StorageRewrite has reused memory.

    A buffer that is used after all others takes an entry that holds it, as in `merged`; if there is
    none it extends the largest smaller entry of its type (`tirx/transform/storage_rewrite.cc`).

    Parameters
    ----------
    lives
        The buffers in the order of their first use.
    built
        Bytes from `merged`, int64 (N,).
    """
    if len(lives) < 2 or any(life.last >= lives[-1].first for life in lives[:-1]):
        return built
    size = lives[-1].size
    holds = np.zeros(len(built), bool)
    best = np.zeros(len(built), np.int64)
    for life in lives[:-1]:
        holds |= (life.size >= size) & (life.size <= MATCH_RANGE * size)
        if life.dtype == lives[-1].dtype:
            near = (life.size < size) & (life.size >= size // MATCH_RANGE)
            best = np.maximum(best, np.where(near, life.size, 0))
    total = np.sum([life.size for life in lives], axis=0) - best
    return np.where(holds | (best == 0), built, total)


def _allocate(free: IntArray, size: IntArray) -> IntArray:
    """Size of the entry for a buffer; the free entries that it takes are set to 0."""
    if not free.any():
        return size
    huge = np.iinfo(np.int64).max
    fits = np.where((free >= size) & (free <= MATCH_RANGE * size) & (free > 0), free, huge)
    best = fits.argmin(axis=0)
    columns = np.arange(free.shape[1])
    best_size = fits[best, columns]
    fitted = best_size < huge
    free[best[fitted], columns[fitted]] = 0
    order = np.argsort(-free, axis=0, kind="stable")
    gathered = np.zeros(free.shape[1], np.int64)
    for slot in order:
        entry = free[slot, columns]
        used = ~fitted & (entry > 0) & (entry < size) & (gathered < size)
        gathered += np.where(used, entry, 0)
        free[slot[used], columns[used]] = 0
    held: IntArray = np.where(fitted, best_size, np.maximum(size, gathered))
    return held


@dataclass(frozen=True)
class Tile:
    """A buffer in dynamic shared memory, and the number of its versions in a pipeline."""

    buffer: Buf
    placed: Placed
    versions: Num


def _subtree(block: Block) -> object:
    """The loop (or block) directly below the kernel that contains a block."""
    return next((loop for loop in block.path if not loop.tag), block)


def _size(state: State, tile: Tile) -> Num:
    """Bytes of a tile with its versions; tiles that LowerAutoCopy fills have padded rows."""
    shape, strides = tile.placed.shape, tile.placed.strides
    copied = any(
        AUTO_COPY in block.notes and any(w.buffer is tile.buffer for w in block.writes)
        for block in state.blocks
    )
    item = bytes_of(tile.buffer.dtype)
    elements = times(strides[0], shape[0])
    if copied:
        if len(shape) != 2:
            raise UnsupportedTrace(f"the tile {tile.buffer.name} does not have two dimensions")
        elements = times(shape[0], padded_rows(shape[1], 8 * item))
    return times(elements, times(tile.versions, item))


def _store_stages(state: State, root: Loop, warps: Num) -> list[tuple[Block, Num]]:
    """Blocks that store accumulators through a buffer in shared memory, and its bytes."""
    stages: list[tuple[Block, Num]] = []
    for block in state.blocks:
        source = block.reads[0].buffer if block.reads else None
        if AUTO_COPY not in block.notes or block.path[0] is not root or source is None:
            continue
        if not source.scope.startswith("shared") and source.scope != "global":
            columns = block.inner[-1].extent
            elements = store_elements(warps, columns)
            stages.append((block, times(elements, bytes_of(source.dtype))))
    return stages


def dynamic_shared(
    state: State, root: Loop, tiles: Sequence[Tile], warps: Num
) -> tuple[IntArray, IntArray]:
    """Bytes of dynamic shared memory of a kernel as built, and as VerifyGPUCode counts them.

    The postprocessor has no pass configuration; builds of programs with tensor instructions have
    one (`default_pass_config`), which stops StorageRewrite from reusing memory.

    Parameters
    ----------
    root
        The kernel's outermost loop.
    tiles
        Its buffers.
    warps
        Extent of threadIdx.y.
    """
    moments: dict[int, int] = {}
    uses: dict[Buf, list[int]] = {tile.buffer: [] for tile in tiles}
    stages = _store_stages(state, root, warps)
    lives: list[Lifetime] = []
    for block in state.blocks:
        time = moments.setdefault(id(_subtree(block)), len(moments))
        for access in (*block.reads, *block.writes):
            if access.buffer in uses:
                uses[access.buffer].append(time)
        lives += [
            Lifetime(
                column(size, state.rows).astype(np.int64), time, time, stored.reads[0].buffer.dtype
            )
            for stored, size in stages
            if stored is block
        ]
    for tile in tiles:
        use = uses[tile.buffer]
        size = column(_size(state, tile), state.rows).astype(np.int64)
        lives.append(Lifetime(size, min(use), max(use), tile.buffer.dtype))
    lives.sort(key=lambda life: life.first)
    once = default_pass_config(state.target.kind, True).get(MERGE_ONCE, False)
    anew = merged(lives, state.rows)
    counted = verified(lives, anew) if REUSES_DYNAMIC else anew
    return anew if once else counted, counted
