"""Compute locations of a block with several consumers, or with sampled or partly inlined ones.

The *trunk* of a block is the common part of its consumers' nests, row by row: the path of the only
consumer, or the loops above the lowest common ancestor of all of them (`CollectComputeLocation` in
`schedule/analysis/analysis.cc`). A consumer counts in the rows in which it exists and reads the
block's result.

A location has two numbers: TVM's decision (-2 inlined, -1 root, else the index among the loops of
the row) and the position on the trunk, some entries of which are missing in some rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.symbolic.primitives.locations import inlined_or_root
from pruner_ms.symbolic.primitives.state import Block, Loop, State
from pruner_ms.symbolic.rows import Mask, Num, both, either, mask_column, negate, possible, select
from pruner_ms.types import BoolArray, IntArray


@dataclass(frozen=True)
class Trunk:
    """Loops under which a block may be placed.

    Attributes
    ----------
    path, mask
        Loops, and the rows in which each exists.
    """

    path: tuple[Loop, ...]
    mask: tuple[Mask, ...]

    def ranks(self) -> list[Num]:
        """Index of each entry among the loops of a row."""
        ranks: list[Num] = []
        count: Num = 0
        for mask in self.mask:
            ranks.append(count)
            count = count + select(mask, 1, 0)
        return ranks


@dataclass(frozen=True)
class Location:
    """A compute location.

    Attributes
    ----------
    decision
        TVM's number.
    position
        On the trunk's path; -1 root, -2 inlined.
    """

    trunk: Trunk
    decision: Num
    position: Num


def reading(block: Block, consumer: Block) -> Mask:
    """Rows in which a consumer reads what a block writes."""
    rows: Mask = False
    for read in consumer.reads:
        if any(w.buffer is read.buffer for w in block.writes):
            rows = either(rows, read.mask)
    return both(rows, consumer.alive)


def trunk_of(state: State, block: Block) -> Trunk:
    """The trunk of a block."""
    users = [(c, reading(block, c)) for c in state.consumers(block)]
    users = [(c, rows) for c, rows in users if possible(rows)]
    if len(users) == 1:
        return Trunk(tuple(users[0][0].path), tuple(users[0][0].mask))
    path: list[Loop] = []
    for consumer, _ in users:
        _merge(path, consumer.path)
    masks: list[Mask] = []
    for loop in path:
        shared: Mask = True
        for consumer, rows in users:
            present: Mask = False
            if loop in consumer.path:
                present = consumer.mask[consumer.path.index(loop)]
            shared = both(shared, either(negate(rows), present))
        masks.append(shared)
    entries = [(loop, m) for loop, m in zip(path, masks, strict=True) if possible(m)]
    return Trunk(tuple(loop for loop, _ in entries), tuple(m for _, m in entries))


def _merge(path: list[Loop], other: Sequence[Loop]) -> None:
    """Add the loops of another path, each after the one above it."""
    at = 0
    for loop in other:
        if loop in path:
            at = path.index(loop) + 1
        else:
            path.insert(at, loop)
            at += 1


def legal(trunk: Trunk) -> list[Mask]:
    """Rows in which each loop of a trunk is a candidate.

    Excluded are unit loops, spatial loops below a non-unit reduction loop, and reduction loops
    below the last spatial one.
    """
    last: Num = -1
    for p, (loop, present) in enumerate(zip(trunk.path, trunk.mask, strict=True)):
        if loop.spatial:
            last = select(present, p, last)
    reduced: Mask = False
    stopped: Mask = False
    masks: list[Mask] = []
    for p, (loop, present) in enumerate(zip(trunk.path, trunk.mask, strict=True)):
        real = both(present, loop.extent != 1)
        if loop.spatial:
            stopped = either(stopped, both(real, reduced))
        else:
            reduced = either(reduced, real)
            stopped = either(stopped, both(real, _above(last, p)))
        masks.append(both(real, negate(stopped)))
    return masks


def _above(last: Num, position: int) -> Mask:
    return last < position


def repaired(trunk: Trunk, decision: IntArray, inlinable: bool) -> Location:
    """The last candidate that does not exceed a decision (`schedule/primitive/sampling.cc`)."""
    position: Num = inlined_or_root(decision <= -2, inlinable)
    decided: Num = position
    for p, (rank, mask) in enumerate(zip(trunk.ranks(), legal(trunk), strict=True)):
        if mask is False:
            continue
        chosen: BoolArray = mask_column(mask, len(decision)) & (decision >= rank)
        position = select(chosen, p, position)
        decided = select(chosen, rank, decided)
    return Location(trunk, decided, position)


def drawn(trunk: Trunk, uniform: np.ndarray, inlinable: bool) -> Location:
    """A candidate drawn uniformly, by random numbers in [0, 1)."""
    masks = legal(trunk)
    fixed = 2 if inlinable else 1
    count = np.full(len(uniform), fixed, np.int8)
    for mask in masks:
        count += mask
    pick = (uniform * count).astype(np.int8)
    position: Num = inlined_or_root(pick == 0, inlinable)
    decided: Num = position
    seen = np.full(len(uniform), fixed, np.int8)
    for p, (rank, mask) in enumerate(zip(trunk.ranks(), masks, strict=True)):
        if mask is False:
            continue
        chosen = mask_column(mask, len(uniform)) & (pick == seen)
        position = select(chosen, p, position)
        decided = select(chosen, rank, decided)
        seen += mask
    return Location(trunk, decided, position)
