"""Where a block may be computed when its consumers are several, sampled, or inlined in some rows.

The *trunk* of a block is what the nests of its consumers share, row by row: the path of the only
consumer, or the loops above the lowest common ancestor of all of them (`CollectComputeLocation` in
`schedule/analysis/analysis.cc`). A consumer counts in the rows in which it is there and reads the
block's result.

A location has two numbers: TVM's decision (-2 inlined, -1 root, else the place among the loops that
the row has) and the position on the trunk, whose entries are not all there in every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.forms import Mask, Num
from pruner_ms.symbolic.primitives.locations import first_place
from pruner_ms.symbolic.primitives.state import Block, Loop, State
from pruner_ms.types import BoolArray, IntArray


@dataclass(frozen=True)
class Trunk:
    """Loops under which a block may be put.

    Attributes
    ----------
    path, mask
        Loops, and the rows in which each is one.
    """

    path: tuple[Loop, ...]
    mask: tuple[Mask, ...]

    def ranks(self) -> list[Num]:
        """Place of each entry among the loops that a row has."""
        found: list[Num] = []
        count: Num = 0
        for here in self.mask:
            found.append(count)
            count = count + forms.select(here, 1, 0)
        return found


@dataclass(frozen=True)
class Spot:
    """A compute location.

    Attributes
    ----------
    decision
        As TVM writes it.
    position
        On the trunk's path; -1 root, -2 inlined.
    """

    trunk: Trunk
    decision: Num
    position: Num


def reading(block: Block, consumer: Block) -> Mask:
    """Rows in which a consumer reads what a block writes."""
    found: Mask = False
    for read in consumer.reads:
        if any(w.buffer is read.buffer for w in block.writes):
            found = forms.either(found, read.mask)
    return forms.both(found, consumer.alive)


def trunk_of(state: State, block: Block) -> Trunk:
    """The trunk of a block."""
    users = [(c, reading(block, c)) for c in state.consumers(block)]
    users = [(c, rows) for c, rows in users if forms.possible(rows)]
    if len(users) == 1:
        return Trunk(tuple(users[0][0].path), tuple(users[0][0].mask))
    path: list[Loop] = []
    for consumer, _ in users:
        _merge(path, consumer.path)
    masks: list[Mask] = []
    for loop in path:
        shared: Mask = True
        for consumer, rows in users:
            here: Mask = False
            if loop in consumer.path:
                here = consumer.mask[consumer.path.index(loop)]
            shared = forms.both(shared, forms.either(forms.negate(rows), here))
        masks.append(shared)
    kept = [(loop, m) for loop, m in zip(path, masks, strict=True) if forms.possible(m)]
    return Trunk(tuple(loop for loop, _ in kept), tuple(m for _, m in kept))


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

    A unit loop is none. After a reduction loop that is not a unit, no spatial one is, nor any
    reduction loop below the last spatial one.
    """
    last: Num = -1
    for p, (loop, here) in enumerate(zip(trunk.path, trunk.mask, strict=True)):
        if loop.spatial:
            last = forms.select(here, p, last)
    reduced: Mask = False
    stopped: Mask = False
    found: list[Mask] = []
    for p, (loop, here) in enumerate(zip(trunk.path, trunk.mask, strict=True)):
        real = forms.both(here, forms.differ(loop.extent, 1))
        if loop.spatial:
            stopped = forms.either(stopped, forms.both(real, reduced))
        else:
            reduced = forms.either(reduced, real)
            stopped = forms.either(stopped, forms.both(real, _above(last, p)))
        found.append(forms.both(real, forms.negate(stopped)))
    return found


def _above(last: Num, position: int) -> Mask:
    return last < position


def repaired(trunk: Trunk, decision: IntArray, inlinable: bool) -> Spot:
    """The largest candidate not above a given decision (`schedule/primitive/sampling.cc`)."""
    position: Num = first_place(decision <= -2, inlinable)
    found: Num = position
    for p, (rank, mask) in enumerate(zip(trunk.ranks(), legal(trunk), strict=True)):
        if mask is False:
            continue
        taken: BoolArray = forms.mask_column(mask, len(decision)) & (decision >= rank)
        position = forms.select(taken, p, position)
        found = forms.select(taken, rank, found)
    return Spot(trunk, found, position)


def drawn(trunk: Trunk, uniform: np.ndarray, inlinable: bool) -> Spot:
    """A candidate by a random number in [0, 1), uniformly."""
    masks = legal(trunk)
    fixed = 2 if inlinable else 1
    count = np.full(len(uniform), fixed, np.int8)
    for mask in masks:
        count += mask
    pick = (uniform * count).astype(np.int8)
    position: Num = first_place(pick == 0, inlinable)
    found: Num = position
    seen = np.full(len(uniform), fixed, np.int8)
    for p, (rank, mask) in enumerate(zip(trunk.ranks(), masks, strict=True)):
        if mask is False:
            continue
        taken = forms.mask_column(mask, len(uniform)) & (pick == seen)
        position = forms.select(taken, p, position)
        found = forms.select(taken, rank, found)
        seen += mask
    return Spot(trunk, found, position)
