"""Factorisations: exact, uniform, within their limits, counted."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pruner_ms.symbolic import tiles
from pruner_ms.symbolic.tiles import TileSpec

SPECS = [
    TileSpec(64, 4, 64),
    TileSpec(360, 3, 16),
    TileSpec(127, 4, 64),
    TileSpec(1, 2, 64),
    TileSpec(48, 2),
    TileSpec(96, 5, -1, 3, 4),
]


def enumerated(spec: TileSpec) -> set[tuple[int, ...]]:
    """Every allowed factorisation, the slow way."""
    divisors = [d for d in range(1, spec.extent + 1) if spec.extent % d == 0]
    factorisations = set()
    for parts in product(divisors, repeat=spec.parts):
        inner = prod(parts[spec.partition :])
        if prod(parts) != spec.extent or inner % spec.multiple:
            continue
        if spec.innermost == -1 or parts[-1] <= spec.innermost:
            factorisations.add(parts)
    return factorisations


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_table_is_the_enumeration(spec: TileSpec) -> None:
    rows = [tuple(int(v) for v in row) for row in tiles.table(spec)]
    assert len(rows) == len(set(rows)) == tiles.count(spec)
    assert set(rows) == enumerated(spec)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_count_without_a_table(spec: TileSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "TABLE_LIMIT", 0)
    assert tiles.count(spec) == len(enumerated(spec))


@pytest.mark.parametrize("limit", [0, 1 << 17])
def test_draws_are_uniform(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "TABLE_LIMIT", limit)
    spec = TileSpec(24, 3, 8)
    drawn = tiles.draw(spec, 30_000, np.random.default_rng(5))
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    expected = len(drawn) / tiles.count(spec)
    assert len(counts) == tiles.count(spec)
    assert ((counts - expected) ** 2 / expected).sum() < 2 * len(counts)


@settings(max_examples=60, deadline=None)
@given(
    extent=st.integers(1, 4000),
    parts=st.integers(2, 5),
    limit=st.sampled_from([-1, 1, 4, 64]),
    seed=st.integers(0, 1 << 30),
)
def test_mutants_are_allowed_and_move_one_prime(
    extent: int, parts: int, limit: int, seed: int
) -> None:
    spec, rng = TileSpec(extent, parts, limit), np.random.default_rng(seed)
    rows = tiles.draw(spec, 40, rng)
    mutants = tiles.mutate(spec, rows, rng)
    assert spec.allowed(rows).all()
    assert spec.allowed(mutants).all()
    if limit == -1 and extent > 1:
        assert ((rows != mutants).sum(axis=1) == 2).all()


@settings(max_examples=60, deadline=None)
@given(extent=st.integers(1, 500), seed=st.integers(0, 1 << 30))
def test_repair_is_exact_and_leaves_exact_rows_alone(extent: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = TileSpec(extent, 4, 64)
    fixed = tiles.repair(spec, rng.integers(1, 20, (30, 4)))
    assert (fixed.prod(axis=1) == extent).all()
    exact = tiles.draw(spec, 30, rng)
    assert (tiles.repair(spec, exact) == exact).all()


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_neighbours_are_all_that_one_moved_prime_makes(spec: TileSpec) -> None:
    options = [tuple(int(v) for v in row) for row in tiles.table(spec)]

    def one_prime_apart(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        ratios = [Fraction(x, y) for x, y in zip(a, b, strict=True) if x != y]
        if len(ratios) != 2 or ratios[0] * ratios[1] != 1:
            return False
        prime = max(ratios)
        return prime.denominator == 1 and len(tiles.factorise(prime.numerator)) == 1 == sum(
            power for _, power in tiles.factorise(prime.numerator)
        )

    for tile in options[:: max(1, len(options) // 20)]:
        near = [tuple(row) for row in tiles.neighbours(spec, np.array(tile)).tolist()]
        assert len(near) == len(set(near))
        assert set(near) == {other for other in options if one_prime_apart(tile, other)}


def test_nearest_is_the_least_sum_of_logarithms_of_ratios() -> None:
    spec = TileSpec(12, 2)
    wanted = np.array([[3.0, 4.0], [11.0, 1.0], [1.0, 7.0]])
    assert tiles.nearest(spec, wanted).tolist() == [[3, 4], [12, 1], [1, 12]]


def test_tiles_of_another_extent_keep_what_is_inside() -> None:
    spec = TileSpec(112, 4, 64)
    outside, second, spread = tiles.fitted(spec, np.array([7, 2, 1, 4])).tolist()
    assert outside == [14, 2, 1, 4]
    assert second == [7, 4, 1, 4]
    assert np.prod(spread) == 112
    same = tiles.fitted(TileSpec(56, 4, 64), np.array([7, 2, 1, 4]))
    assert same.tolist() == [[7, 2, 1, 4]] * 3


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_fitted_tiles_are_allowed(spec: TileSpec, rng: np.random.Generator) -> None:
    for extent in (1, 7, 64, 360):
        other = tiles.draw(TileSpec(extent, spec.parts), 5, rng)
        for tile in other:
            assert spec.allowed(tiles.fitted(spec, tile)).all()
