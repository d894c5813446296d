"""Dynamic shared memory after `MergeSharedMemoryAllocations`, row by row.

TVM keeps a list of free entries, ordered by size (`transform/merge_shared_memory_allocations.cc`).
A buffer takes the smallest free entry that holds it and is not more than 16 times as large; else it
gathers smaller entries, the largest first, until they hold it; else it gets an entry of its own.
An entry that was gathered is as large as the buffer, or as what was gathered.

Notation
--------
N      rows
B      buffers, in the order of their first use
time   number of a subtree below the kernel; a buffer is free after the last one that uses it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.state import Block, Buf, State
from pruner_ms.types import IntArray

MATCH_RANGE = 16
"""An entry may be this many times as large as the buffer that takes it."""


@dataclass(frozen=True)
class Life:
    """A buffer's bytes, int64 (N,), and its first and last time."""

    size: IntArray
    first: int
    last: int


def merged(lives: Sequence[Life], rows: int) -> IntArray:
    """Bytes that all buffers take together, int64 (N,).

    Parameters
    ----------
    lives
        The buffers in the order of their first use.
    """
    if not lives:
        return np.zeros(rows, np.int64)
    free = np.zeros((len(lives), rows), np.int64)  # size of each free entry, 0 for none
    held = np.zeros((len(lives), rows), np.int64)  # size of the entry each buffer is in
    for time in sorted({t for life in lives for t in (life.first, life.last)}):
        for i, life in enumerate(lives):
            if life.first == time:
                held[i] = _allocate(free, life.size)
        for i, life in enumerate(lives):
            if life.last == time:
                free[i] = held[i]
    total: IntArray = free.sum(axis=0)
    return total


def _allocate(free: IntArray, size: IntArray) -> IntArray:
    """Size of the entry for a buffer; what it takes out of the free ones is set to 0."""
    huge = np.iinfo(np.int64).max
    fits = np.where((free >= size) & (free <= MATCH_RANGE * size) & (free > 0), free, huge)
    best = fits.argmin(axis=0)
    columns = np.arange(free.shape[1])
    found = fits[best, columns]
    whole = found < huge
    free[best[whole], columns[whole]] = 0
    order = np.argsort(-free, axis=0, kind="stable")
    gathered = np.zeros(free.shape[1], np.int64)
    for slot in order:
        entry = free[slot, columns]
        taken = ~whole & (entry > 0) & (entry < size) & (gathered < size)
        gathered += np.where(taken, entry, 0)
        free[slot[taken], columns[taken]] = 0
    held: IntArray = np.where(whole, found, np.maximum(size, gathered))
    return held


def _subtree(block: Block) -> object:
    """What hangs directly below the kernel and holds a block."""
    return next((loop for loop in block.path if not loop.tag), block)


def lives_of(state: State, sizes: Sequence[tuple[Buf, IntArray]]) -> list[Life]:
    """Lives of buffers out of the order of the blocks.

    Parameters
    ----------
    sizes
        Buffers with their bytes, int64 (N,).
    """
    times: dict[int, int] = {}
    uses: dict[Buf, list[int]] = {buffer: [] for buffer, _ in sizes}
    for block in state.blocks:
        time = times.setdefault(id(_subtree(block)), len(times))
        for access in (*block.reads, *block.writes):
            if access.buffer in uses:
                uses[access.buffer].append(time)
    known = [(uses[buffer], forms.column(size, state.rows)) for buffer, size in sizes]
    found = [Life(size, min(use), max(use)) for use, size in known if use]
    return sorted(found, key=lambda life: life.first)
