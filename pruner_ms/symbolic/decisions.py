"""Decisions of a design space as integer columns: drawing, mutation, crossover, counting.

Only the trace's sampling instructions are needed, so that this works for every stock space, with or
without a closed form. A row is one candidate; its columns are, in the order of the sampling
instructions: the factors of a tile, the index of a categorical, a compute location.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic import tiles
from pruner_ms.symbolic.primitives.trace import Inst
from pruner_ms.symbolic.tiles import TileSpec
from pruner_ms.types import BoolArray, FloatArray, IntArray

TILE_SHARE = 0.9
"""Share of mutations that change a tile (MetaSchedule's `MutateTileSize`)."""


@dataclass(frozen=True)
class Tile:
    """A tiled loop: one column per factor."""

    spec: TileSpec

    @property
    def width(self) -> int:
        """Columns."""
        return self.spec.parts

    @property
    def options(self) -> int:
        """How many values there are."""
        return tiles.count(self.spec)

    def draw(self, rows: int, rng: np.random.Generator) -> IntArray:
        """Draw as TVM does, int64 (rows, width)."""
        return tiles.draw(self.spec, rows, rng)

    def mutate(self, values: IntArray, rng: np.random.Generator) -> IntArray:
        """Change every row, if there is another tile."""
        return tiles.mutate(self.spec, values, rng)

    def neighbours(self, value: IntArray) -> IntArray:
        """Tiles with one prime factor moved to another part, int64 (n, width)."""
        return tiles.neighbours(self.spec, value)

    def fitted(self, value: IntArray) -> IntArray:
        """Tiles like a given one of a loop of another extent, int64 (3, width)."""
        return tiles.fitted(self.spec, value)

    def default(self) -> IntArray:
        """The tile whose outermost factor is as large as allowed, int64 (1, width)."""
        return self.repair(np.ones((1, self.width), np.int64))

    def repair(self, values: IntArray) -> IntArray:
        """The values after TVM's repair."""
        return tiles.repair(self.spec, values)


@dataclass(frozen=True)
class Choice:
    """A categorical: an index, drawn with given probabilities."""

    values: tuple[int, ...]
    probabilities: tuple[float, ...]
    width: int = 1

    @property
    def options(self) -> int:
        """How many values there are."""
        return len(self.values)

    def draw(self, rows: int, rng: np.random.Generator) -> IntArray:
        """Draw as TVM does, int64 (rows, 1)."""
        edges = np.cumsum(self.probabilities)
        drawn = np.searchsorted(edges, rng.random(rows) * edges[-1], side="right")
        index: IntArray = np.minimum(drawn, len(edges) - 1).astype(np.int64)
        return index[:, None]

    def mutate(self, values: IntArray, rng: np.random.Generator) -> IntArray:
        """Another index in every row, if there is one."""
        if self.options == 1:
            return values.copy()
        shift = rng.integers(1, self.options, values.shape)
        shifted: IntArray = (values + shift) % self.options
        return shifted

    def neighbours(self, value: IntArray) -> IntArray:
        """The previous and the next index, int64 (n, 1); values that have an order are sorted."""
        return _adjacent(int(value[0]), 0, self.options)

    def fitted(self, value: IntArray) -> IntArray:
        """The index of the value nearest to a given number, int64 (1, 1)."""
        return np.array([[np.abs(np.array(self.values) - value).argmin()]], np.int64)

    def default(self) -> IntArray:
        """The most probable index, int64 (1, 1)."""
        return np.array([[np.argmax(self.probabilities)]], np.int64)

    def repair(self, values: IntArray) -> IntArray:
        """Indices clipped to the range; TVM does not accept others."""
        return np.clip(values, 0, self.options - 1)


@dataclass(frozen=True)
class Place:
    """A compute location: -2 inlined, -1 root, else a position on the consumer's path.

    Which positions are candidates depends on the row's tiles: a closed-form space repairs the
    column (`Sketch.canonical`), otherwise TVM does at replay.
    """

    depth: int
    width: int = 1

    @property
    def options(self) -> int:
        """Upper bound on the number of values."""
        return self.depth + 2

    def draw(self, rows: int, rng: np.random.Generator) -> IntArray:
        """Uniformly over all positions, candidates or not, int64 (rows, 1)."""
        return rng.integers(-2, self.depth, (rows, 1))

    def mutate(self, values: IntArray, rng: np.random.Generator) -> IntArray:
        """Another position in every row."""
        shift = rng.integers(1, self.options, values.shape)
        return (values + 2 + shift) % self.options - 2

    def neighbours(self, value: IntArray) -> IntArray:
        """The next outer and the next inner position, int64 (n, 1)."""
        return _adjacent(int(value[0]), -2, self.depth)

    def fitted(self, value: IntArray) -> IntArray:
        """The same position, as far as there is one, int64 (1, 1)."""
        return np.clip(value, -2, self.depth - 1)[None]

    def default(self) -> IntArray:
        """The root, int64 (1, 1)."""
        return np.full((1, 1), -1, np.int64)

    def repair(self, values: IntArray) -> IntArray:
        """Positions of at least -2, the lowest one with a meaning."""
        return np.maximum(values, -2)


Decision = Tile | Choice | Place


def _adjacent(value: int, first: int, end: int) -> IntArray:
    """The numbers next to a given one, within a range, int64 (n, 1)."""
    inside = [number for number in (value - 1, value + 1) if first <= number < end]
    return np.array(inside, np.int64)[:, None]


@dataclass(frozen=True)
class Decisions:
    """All decisions of a design space.

    Attributes
    ----------
    items
        In the order of the sampling instructions.
    """

    items: tuple[Decision, ...]
    starts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        starts = np.cumsum([0, *(d.width for d in self.items)])
        object.__setattr__(self, "starts", tuple(int(s) for s in starts[:-1]))

    @property
    def columns(self) -> int:
        """Columns of a row."""
        return sum(d.width for d in self.items)

    @property
    def places(self) -> tuple[int, ...]:
        """Columns that are compute locations."""
        pairs = zip(self.items, self.starts, strict=True)
        return tuple(start for item, start in pairs if isinstance(item, Place))

    def with_depths(self, depths: Mapping[int, int]) -> Decisions:
        """The same decisions, with bounds on compute locations by their index in `items`."""
        items = [Place(depths[i]) if i in depths else d for i, d in enumerate(self.items)]
        return Decisions(tuple(items))

    def slices(self) -> list[tuple[Decision, slice]]:
        """Each decision with its columns."""
        pairs = zip(self.items, self.starts, strict=True)
        return [(item, slice(start, start + item.width)) for item, start in pairs]

    def sample(self, rows: int, rng: np.random.Generator) -> IntArray:
        """Draw rows as TVM does, locations over all positions; int64 (rows, columns)."""
        rows_drawn = np.empty((rows, self.columns), np.int64)
        for item, where in self.slices():
            rows_drawn[:, where] = item.draw(rows, rng)
        return rows_drawn

    def repair(self, rows: IntArray) -> IntArray:
        """Tiles and indices after TVM's repair; locations stay."""
        repaired = np.array(rows, np.int64)
        for item, where in self.slices():
            repaired[:, where] = item.repair(repaired[:, where])
        return repaired

    def weights(self) -> FloatArray:
        """Probability that a mutation changes each decision; 0 for those with one value only."""
        free: FloatArray = np.array([d.options > 1 for d in self.items], float)
        tile: FloatArray = np.array([isinstance(d, Tile) for d in self.items], float) * free
        other = free - tile
        weights: FloatArray = free / max(free.sum(), 1.0)
        if tile.sum() and other.sum():
            weights = TILE_SHARE * tile / tile.sum() + (1 - TILE_SHARE) * other / other.sum()
        return weights

    def mutate(self, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """Change one decision of every row; the input stays as it is."""
        mutants = np.array(rows, np.int64)
        weights = self.weights()
        if not weights.sum() or not len(mutants):
            return mutants
        edges = np.cumsum(weights)
        gene = np.searchsorted(edges, rng.random(len(mutants)) * edges[-1], side="right")
        gene = np.minimum(gene, len(edges) - 1)
        for i, (item, where) in enumerate(self.slices()):
            chosen = np.flatnonzero(gene == i)
            if len(chosen):
                mutants[chosen, where] = item.mutate(mutants[chosen, where], rng)
        return mutants

    def crossover(self, a: IntArray, b: IntArray, rng: np.random.Generator) -> IntArray:
        """Each decision from one of two parents, row by row."""
        children = np.array(a, np.int64)
        for _, where in self.slices():
            other = rng.random(len(children)) < 0.5
            children[other, where] = b[other, where]
        return children

    def neighbours(self, row: IntArray) -> IntArray:
        """All rows one step of one decision away from a row, int64 (n, columns)."""
        rows = [np.zeros((0, self.columns), np.int64)]
        for item, where in self.slices():
            values = item.neighbours(row[where])
            near = np.repeat(row[None], len(values), axis=0)
            near[:, where] = values
            rows.append(near)
        return np.concatenate(rows)

    def fitted(self, other: Decisions, row: IntArray) -> IntArray:
        """Rows like a given row of another task's design space, int64 (n, columns).

        There are none if the two spaces differ in the number of tiles or of a tile's factors.
        Categoricals and compute locations correspond in order; one that the other space lacks gets
        its most probable value, or the root.

        Parameters
        ----------
        other, row
            The other design space and a row of it, int64 (columns,).
        """
        if self.frame != other.frame or not self.items:
            return np.zeros((0, self.columns), np.int64)
        meant = {kind: iter(other._meant(row, kind)) for kind in (Tile, Choice, Place)}
        parts = []
        for item in self.items:
            value = next(meant[type(item)], None)
            parts.append(item.default() if value is None else item.fitted(value))
        ways = max(map(len, parts), default=0)
        return np.concatenate([part[np.arange(ways) % len(part)] for part in parts], axis=1)

    @property
    def frame(self) -> tuple[int, ...]:
        """Factors of each tile."""
        return tuple(item.width for item in self.items if isinstance(item, Tile))

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the tiled loops."""
        return tuple(item.spec.extent for item in self.items if isinstance(item, Tile))

    def _meant(self, row: IntArray, kind: type) -> list[IntArray]:
        """The values of a row for all decisions of one kind: factors, a number, or a position."""
        pairs = [(item, row[where]) for item, where in self.slices() if isinstance(item, kind)]
        return [
            np.array(item.values)[np.clip(value, 0, item.options - 1)]
            if isinstance(item, Choice)
            else value
            for item, value in pairs
        ]

    def count(self) -> int:
        """Number of distinct rows; with compute locations, an upper bound."""
        return prod(d.options for d in self.items)

    def valid(self, rows: IntArray) -> BoolArray:
        """Rows with tiles that TVM could have drawn, and existing indices."""
        fits = np.ones(len(rows), bool)
        for item, where in self.slices():
            values = rows[:, where]
            if isinstance(item, Tile):
                fits &= item.spec.allowed(values)
            elif isinstance(item, Choice):
                fits &= (values[:, 0] >= 0) & (values[:, 0] < item.options)
        return fits

    def split(self, row: IntArray) -> list[list[int] | int]:
        """A row as TVM's decisions: a list for a tile, an int for the others."""
        return [
            [int(v) for v in row[where]] if isinstance(item, Tile) else int(row[where][0])
            for item, where in self.slices()
        ]


def read_decisions(
    insts: Sequence[Inst], defaults: Sequence[Sequence[int]], depth: int
) -> Decisions:
    """Decisions of a trace.

    Parameters
    ----------
    insts
        The trace's instructions.
    defaults
        The decisions with which the design space was generated, per sampling instruction: the
        product of a tile's factors is the extent of its loop.
    depth
        Bound on the positions of a compute location.

    Raises
    ------
    UnsupportedTrace
        A sampling instruction is of an unknown kind.
    """
    items: list[Decision] = []
    for inst in insts:
        if inst.decision < 0:
            continue
        items.append(_item(inst, defaults[inst.decision], depth))
    return Decisions(tuple(items))


def _item(inst: Inst, default: Sequence[int], depth: int) -> Decision:
    if inst.kind == "SamplePerfectTile":
        parts, innermost = (int(a) for a in inst.attrs)
        return Tile(TileSpec(prod(default), parts, innermost))
    if inst.kind == "SamplePartitionedTile":
        parts, partition, multiple = (int(a) for a in inst.attrs)
        return Tile(TileSpec(prod(default), parts, -1, partition, multiple))
    if inst.kind == "SampleCategorical":
        values, odds = inst.attrs
        return Choice(tuple(int(v) for v in values), tuple(float(p) for p in odds))
    if inst.kind == "SampleComputeLocation":
        return Place(depth)
    raise UnsupportedTrace(f"there is no decision column for {inst.kind}")
