"""How many candidates a design space has, exactly, where compute locations depend on the tiles.

A loop is a candidate for a compute location unless it runs once, and which loops run once follows
from which factors are 1. Rows that agree in that have the same locations: one row of each such
class is asked, and counts for all of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from pruner_ms.symbolic import tiles
from pruner_ms.symbolic.decisions import Decision, Decisions, Place, Tile
from pruner_ms.types import IntArray

CHUNK = 4096
"""Classes looked at together."""


def classes_of(item: Decision) -> tuple[IntArray, list[int]]:
    """One value of each class of a decision, int64 (C, width), and how many the class has."""
    if isinstance(item, Tile):
        table = tiles.table(item.spec)
        _, first, sizes = np.unique(table == 1, axis=0, return_index=True, return_counts=True)
        return table[first], [int(n) for n in sizes]
    if isinstance(item, Place):
        return np.full((1, 1), -1, np.int64), [1]  # looked at one by one
    # a number that the trace goes on to use may be a loop's extent: each is a class
    return np.arange(item.options, dtype=np.int64)[:, None], [1] * item.options


def count(choices: Decisions, canonical: Callable[[IntArray], IntArray]) -> int:
    """Number of distinct candidates.

    Parameters
    ----------
    choices
        Decisions of a closed-form design space.
    canonical
        Rows as TVM repairs them, int64 (N, columns) to the same.
    """
    if not choices.places:
        return choices.count()
    return sum(_counted(choices, *classes, canonical) for classes in _classes(choices))


def _counted(
    choices: Decisions, rows: IntArray, sizes: IntArray, canonical: Callable[[IntArray], IntArray]
) -> int:
    """Candidates of some classes, locations placed one after the other, as TVM does."""
    for item, where in choices.slices():
        if isinstance(item, Place):
            rows, sizes = _located(rows, sizes, where.start, item.depth, canonical)
    return sum(int(n) for n in sizes)


def _classes(choices: Decisions) -> Iterator[tuple[IntArray, IntArray]]:
    """Rows, one per class, int64 (N, columns), and the sizes of their classes, (N,)."""
    parts = [classes_of(item) for item in choices.items]
    shape = [len(values) for values, _ in parts]
    for start in range(0, prod(shape), CHUNK):
        places = np.unravel_index(np.arange(start, min(start + CHUNK, prod(shape))), shape)
        chosen = [v[place] for (v, _), place in zip(parts, places, strict=True)]
        sizes = np.ones(len(places[0]), object)  # products may pass 64 bits
        for (_, many), place in zip(parts, places, strict=True):
            sizes = sizes * np.array(many, object)[place]
        yield np.concatenate(chosen, axis=1), sizes


def _located(
    rows: IntArray,
    sizes: IntArray,
    column: int,
    depth: int,
    canonical: Callable[[IntArray], IntArray],
) -> tuple[IntArray, IntArray]:
    """Each row with every location that TVM leaves as it is."""
    values = np.arange(-2, depth)
    tried = np.repeat(rows, len(values), axis=0)
    tried[:, column] = np.tile(values, len(rows))
    kept = canonical(tried)[:, column] == tried[:, column]
    return tried[kept], np.repeat(sizes, len(values))[kept]
