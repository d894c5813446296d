"""Exact factorisations of a loop's extent, drawn uniformly as by TVM.

TVM draws the exponents of each prime uniformly among their compositions and rejects an innermost
factor above the limit (`schedule/primitive/sampling.cc`): all allowed factorisations are equally
likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import comb

import numpy as np

from pruner_ms.types import BoolArray, FloatArray, IntArray

TABLE_LIMIT = 1 << 17
"""Factorisations up to which a table is kept; beyond, rows are drawn prime by prime."""


@lru_cache(maxsize=4096)
def factorise(number: int) -> tuple[tuple[int, int], ...]:
    """Prime factors with their exponents."""
    factors = []
    prime = 2
    while prime * prime <= number:
        power = 0
        while number % prime == 0:
            number //= prime
            power += 1
        if power:
            factors.append((prime, power))
        prime += 1
    if number > 1:
        factors.append((number, 1))
    return tuple(factors)


@dataclass(frozen=True)
class TileSpec:
    """The factorisations of one tiled loop that may be drawn.

    Attributes
    ----------
    extent, parts
        The loop's extent, and the number of its factors.
    innermost
        Largest last factor, -1 for no limit.
    partition, multiple
        The product of the factors from number `partition` on is a multiple of `multiple`
        (SamplePartitionedTile; 1 for a perfect tile).
    """

    extent: int
    parts: int
    innermost: int = -1
    partition: int = 0
    multiple: int = 1

    def allowed(self, tiles: IntArray) -> BoolArray:
        """Rows that TVM could draw; tiles (N, parts)."""
        fits: BoolArray = np.prod(tiles, axis=1) == self.extent
        fits &= (tiles > 0).all(axis=1)
        if self.innermost != -1:
            fits &= tiles[:, -1] <= self.innermost
        if self.multiple > 1:
            fits &= np.prod(tiles[:, self.partition :], axis=1) % self.multiple == 0
        return fits

    def total(self) -> int:
        """Number of exact factorisations, allowed or not."""
        count = 1
        for _, power in factorise(self.extent):
            count *= comb(power + self.parts - 1, self.parts - 1)
        return count


@lru_cache(maxsize=512)
def table(spec: TileSpec) -> IntArray:
    """Every allowed factorisation, int64 (M, parts), in lexicographic order of prime exponents."""
    tiles = np.ones((1, spec.parts), np.int64)
    for prime, power in factorise(spec.extent):
        steps = np.array(list(_compositions(power, spec.parts)), np.int64)
        tiles = (tiles[:, None, :] * prime ** steps[None, :, :]).reshape(-1, spec.parts)
    allowed = tiles[spec.allowed(tiles)]
    allowed.flags.writeable = False
    return allowed


def _compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    if parts == 1:
        return [(total,)]
    return [
        (first, *rest)
        for first in range(total + 1)
        for rest in _compositions(total - first, parts - 1)
    ]


def count(spec: TileSpec) -> int:
    """Number of allowed factorisations, exactly."""
    if spec.total() <= TABLE_LIMIT:
        return len(table(spec))
    total = 0
    for last in _divisors(spec.extent):
        if spec.innermost != -1 and last > spec.innermost:
            continue
        total += TileSpec(spec.extent // last, spec.parts - 1).total()
    if spec.multiple == 1:
        return total
    inner = spec.parts - spec.partition
    return sum(
        TileSpec(part, inner).total() * TileSpec(spec.extent // part, spec.partition).total()
        for part in _divisors(spec.extent)
        if part % spec.multiple == 0
    )


def _divisors(number: int) -> list[int]:
    divisors = [1]
    for prime, power in factorise(number):
        divisors = [d * prime**k for d in divisors for k in range(power + 1)]
    return sorted(divisors)


def draw(spec: TileSpec, rows: int, rng: np.random.Generator) -> IntArray:
    """Draw rows uniformly among the allowed factorisations, int64 (rows, parts)."""
    if spec.total() <= TABLE_LIMIT:
        options = table(spec)
        return np.take(options, rng.integers(0, len(options), rows), axis=0)
    tiles = _draw_any(spec, rows, rng)
    while True:
        bad = ~spec.allowed(tiles)
        if not bad.any():
            return tiles
        tiles[bad] = _draw_any(spec, int(bad.sum()), rng)


def _draw_any(spec: TileSpec, rows: int, rng: np.random.Generator) -> IntArray:
    """Draw prime by prime: the exponents are a uniform composition (stars and bars)."""
    tiles = np.ones((rows, spec.parts), np.int64)
    for prime, power in factorise(spec.extent):
        places = power + spec.parts - 1
        bars = np.sort(np.argsort(rng.random((rows, places)), axis=1)[:, : spec.parts - 1], axis=1)
        edges = np.concatenate([np.full((rows, 1), -1), bars, np.full((rows, 1), places)], axis=1)
        tiles *= prime ** (np.diff(edges, axis=1) - 1)
    return tiles


def repair(spec: TileSpec, tiles: IntArray) -> IntArray:
    """Factors after TVM's repair, int64 (N, parts).

    From the innermost outwards, a factor that does not divide what is left takes all of it. TVM
    does not enforce the limit of the innermost factor on given decisions.
    """
    fixed = np.maximum(tiles, 1).astype(np.int64)
    if spec.multiple > 1:
        inner = np.prod(fixed[:, spec.partition :], axis=1)
        default = np.ones(spec.parts, np.int64)
        default[0] = spec.extent // spec.multiple
        default[spec.partition] = spec.multiple
        fixed[inner % spec.multiple != 0] = default
    rest = np.full(len(fixed), spec.extent, np.int64)
    for part in range(spec.parts - 1, 0, -1):
        divides = rest % fixed[:, part] == 0
        fixed[:, part] = np.where(divides, fixed[:, part], rest)
        rest = rest // fixed[:, part]
    fixed[:, 0] = rest
    return fixed


@lru_cache(maxsize=512)
def _prime_table(extent: int) -> tuple[IntArray, IntArray, IntArray]:
    """Divisors of an extent, and the distinct primes of each (padded with 1), with their number."""
    divisors = _divisors(extent)
    primes = [[p for p, _ in factorise(d)] for d in divisors]
    width = max(1, *(len(p) for p in primes)) if len(primes) > 1 else 1
    padded = np.array([p + [1] * (width - len(p)) for p in primes], np.int64)
    return np.array(divisors, np.int64), padded, np.array([len(p) for p in primes], np.int64)


def mutate(spec: TileSpec, tiles: IntArray, rng: np.random.Generator) -> IntArray:
    """Move one prime factor from one part to another; a row that would break a limit is redrawn.

    Parameters
    ----------
    tiles
        int64 (N, parts), exact.
    """
    rows = len(tiles)
    if rows == 0 or spec.extent == 1 or spec.parts == 1:
        return tiles.copy()
    divisors, primes, counts = _prime_table(spec.extent)
    source = np.argmax(rng.random(tiles.shape) * (tiles > 1), axis=1)
    target = (source + rng.integers(1, spec.parts, rows)) % spec.parts
    index_of_row = np.arange(rows)
    index = np.searchsorted(divisors, tiles[index_of_row, source])
    pick = (rng.random(rows) * counts[index]).astype(np.int64)
    prime = primes[index, pick]
    moved = tiles.copy()
    moved[index_of_row, source] //= prime
    moved[index_of_row, target] *= prime
    bad = ~spec.allowed(moved)
    if bad.any():
        moved[bad] = draw(spec, int(bad.sum()), rng)
    return moved


def neighbours(spec: TileSpec, tile: IntArray) -> IntArray:
    """The allowed factorisations in which one prime factor has moved, int64 (n, parts).

    Parameters
    ----------
    tile
        int64 (parts,), exact.
    """
    rows = []
    for source, target in permutations(range(spec.parts), 2):
        for prime, _ in factorise(int(tile[source])):
            moved = tile.copy()
            moved[source] //= prime
            moved[target] *= prime
            rows.append(moved)
    near = np.array(rows, np.int64).reshape(-1, spec.parts)
    return near[spec.allowed(near)]


def nearest(spec: TileSpec, wanted: FloatArray) -> IntArray:
    """The allowed factorisation nearest to each row of factors, by the sum of |log ratio|.

    Parameters
    ----------
    wanted
        Factors above 0, float (N, parts); their product need not be the extent.

    Returns
    -------
    IntArray
        int64 (N, parts). If there are too many factorisations for a table: the rounded factors
        after TVM's repair.
    """
    if spec.total() > TABLE_LIMIT:
        return repair(spec, np.maximum(np.rint(wanted), 1).astype(np.int64))
    options = table(spec)
    gaps = np.abs(np.log(options)[None] - np.log(wanted)[:, None]).sum(axis=2)
    rows: IntArray = options[gaps.argmin(axis=1)]
    return rows


def fitted(spec: TileSpec, tile: IntArray) -> IntArray:
    """Factorisations like a given one of another loop, int64 (3, parts); some may be equal.

    The ratio of the two extents goes into the outermost factor (the inner ones are copied), into
    the second factor, or into all factors in proportion to their logarithms.

    Parameters
    ----------
    tile
        Factors of the other loop, int64 (parts,).
    """
    extent = int(np.prod(tile))
    ways = np.repeat(tile[None].astype(np.float64), 3, axis=0)
    ways[0, 0] *= spec.extent / extent
    ways[1, min(1, spec.parts - 1)] *= spec.extent / extent
    if extent > 1:
        ways[2] **= np.log(spec.extent) / np.log(extent)
    return nearest(spec, ways)
