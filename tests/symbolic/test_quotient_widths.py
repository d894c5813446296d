"""Intervals of quotients, against every iteration of every loop."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.index import quotient_widths
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.digit_sums import Sum, independent
from pruner_ms.symbolic.index.digits import INSIDE, Quotient
from pruner_ms.symbolic.index.expr import Iter
from pruner_ms.symbolic.index.forms import Leaf
from pruner_ms.symbolic.index.image_digits import Digit
from pruner_ms.symbolic.index.nests import Nest

CASES = 300


def everything(low: int, modulus: int, loops: Any, parts: Any, digits: Any) -> int:
    """The interval by the definition: loops (runs, stride, extent), parts (runs, extent)."""
    axes = [(runs, extent) for runs, _, extent in loops] + list(parts)
    grid = np.indices([extent for _, extent in axes])
    total = np.zeros(grid.shape[1:], np.int64)
    for at, (_, stride, _) in zip(grid, loops, strict=False):
        total = total + stride * at
    x = np.zeros(grid.shape[1:], np.int64)
    for at, (_, extent) in zip(grid[len(loops) :], parts, strict=True):
        x = x * extent + at
    for stride, inside, mod in digits:
        value = x // max(inside, 1)
        total = total + stride * (value % mod if mod else value)
    q = total // low
    q = q % modulus if modulus else q
    moving = tuple(i for i, (runs, _) in enumerate(axes) if runs)
    return int((q.max(axis=moving) - q.min(axis=moving)).max()) + 1


def _column(value: int) -> Any:
    return np.array([value], np.int64)


def test_widest_is_the_definition(rng: np.random.Generator) -> None:
    for _ in range(CASES):
        low, modulus = int(rng.choice([1, 2, 3, 7, 14])), int(rng.choice([0, 3, 5, 14]))
        loops = [
            (bool(rng.integers(2)), int(rng.integers(0, 40)), int(rng.integers(1, 6)))
            for _ in range(rng.integers(1, 4))
        ]
        parts = [
            (bool(rng.integers(2)), int(rng.integers(1, 7))) for _ in range(rng.integers(1, 4))
        ]
        inside = int(rng.choice([1, 2, 4, 6, 12]))
        outer = (int(rng.integers(1, 20)), inside, 0)
        digits = [outer, (1, 1, inside)][: int(rng.integers(0, 3))]
        widths = quotient_widths.widest(
            low,
            modulus,
            [(runs, _column(stride), _column(extent)) for runs, stride, extent in loops],
            [(runs, _column(extent)) for runs, extent in parts],
            [tuple(map(_column, digit)) for digit in digits],
        )
        expected = everything(low, modulus, loops, parts, digits)
        assert widths.tolist() == [expected], (low, modulus, loops, parts, digits)


def test_loops_that_go_on_are_one() -> None:
    pairs = [(12, 5), (4, 3), (9, 1), (1, 4)]
    (stride, extent), *others = quotient_widths.joined([(_column(a), _column(b)) for a, b in pairs])
    assert not others
    assert (stride.tolist(), extent.tolist()) == ([1], [60])


@pytest.mark.parametrize(("loop", "cycle"), [((12, 5), 28), ((12, 7), 28), ((28, 3), 28)])
def test_a_folded_loop_takes_the_same_values(loop: tuple[int, int], cycle: int) -> None:
    stride, extent = quotient_widths.folded((_column(loop[0]), _column(loop[1])), cycle)
    values = {int(stride[0]) * i % cycle for i in range(int(extent[0]))}
    assert values == {loop[0] * i % cycle for i in range(loop[1])}


def _image(tile: int, fetch: tuple[int, ...], row: int) -> tuple[Cut, dict[Leaf, int], list[Leaf]]:
    """A fetch of (tile, row) elements below a loop over tiles; its pixels are what is divided."""
    blocks, pixels, columns = Leaf(6, False), Leaf(tile, False), Leaf(row, False)
    threads = prod(fetch)
    extents = (-(-tile * row // threads), *fetch)
    loops = [object() for _ in extents]
    cut = Cut([pixels, columns], tile * row, loops, extents)
    return cut, {blocks: tile, pixels: 1}, [blocks, pixels, columns]


@pytest.mark.parametrize("fetch", [(4, 2), (6, 4), (2, 8)])
@pytest.mark.parametrize("row", [4, 6, 16])
def test_pixels_of_a_fetch(fetch: tuple[int, int], row: int) -> None:
    cut, form, (blocks, *_) = _image(16, fetch, row)
    # blocks, threads, outer, lanes
    nest = Nest(
        {blocks: 0},
        {leaf: (cut, i) for i, leaf in enumerate(cut.leaves)},
        {cut: [(3, 2), (2, 0), (1, 1)]},
        {},
    )
    digit = Digit(Quotient(Iter(0), 1, 7, 1), form, nest)
    assert digit.exact
    values = 0 * cut.reach
    inside = cut.inside[0]
    for level in range(4):
        loops = [(level <= 0, 16, 6)]
        places = {0: 2, 1: 1, 2: 3}
        parts = [(places[k] >= level, int(extent)) for k, extent in enumerate(cut.extents)]
        expected = everything(1, 7, loops, parts, [(1, int(inside), values)])
        assert np.all(digit.width(level) == expected), level


def test_a_tile_that_crosses_an_image_is_all_of_it() -> None:
    """TVM evaluates intervals: 24 pixels of rows of 14 are known to start nowhere."""
    blocks, pixels = Leaf(7, False), Leaf(24, False)
    form = {blocks: 24, pixels: 1}
    nest = Nest({blocks: 0}, {}, {}, {})
    column = Digit(Quotient(Iter(0), 1, 14, 1), form, nest)
    assert [column.width(level) for level in (0, INSIDE)] == [14, 14]
    assert column.step(0) == 0
    row = Digit(Quotient(Iter(0), 14, 0, 1), form, nest)
    assert [row.width(level) for level in (0, INSIDE)] == [13, 3]
    assert row.step(0) == 24 // 14
    aligned = Digit(Quotient(Iter(0), 1, 48, 1), form, nest)
    assert aligned.step(0) == 24


def test_digits_that_share_a_loop_do_not_add_up() -> None:
    blocks, other = Leaf(6, False), Leaf(2, False)
    nest = Nest({blocks: 0, other: 1}, {}, {}, {})
    first = Digit(Quotient(Iter(0), 1, 7, 1), {blocks: 3}, nest)
    second = Digit(Quotient(Iter(0), 1, 5, 1), {blocks: 2}, nest)
    alone = Digit(Quotient(Iter(0), 1, 5, 1), {other: 3}, nest)
    assert not independent({}, [first, second], nest)
    assert independent({}, [first, alone], nest)
    assert not independent({blocks: 1}, [first], nest)


@pytest.mark.parametrize("row", [6, 8, 12])
@pytest.mark.parametrize("fetch", [(4, 2), (6, 2)])
def test_pixels_below_a_filter(fetch: tuple[int, int], row: int) -> None:
    """Column of the image and of the filter: m mod 7 + (k // 4) mod 3."""
    cut, pixels, (blocks, _, columns) = _image(14, fetch, row)
    steps = Leaf(48 // row, False)
    filters = {steps: row, columns: 1}
    nest = Nest(
        {blocks: 0, steps: 2},
        {leaf: (cut, i) for i, leaf in enumerate(cut.leaves)},
        {cut: [(4, 2), (3, 0), (1, 1)]},
        {},
    )
    digits = [
        Digit(Quotient(Iter(0), 1, 7, 1), pixels, nest),
        Digit(Quotient(Iter(1), 4, 3, 1), filters, nest),
    ]
    total = Sum(digits, {}, nest)
    assert np.all(total.exact)
    axes = [6, int(cut.extents[1]), 48 // row, int(cut.extents[0]), int(cut.extents[2])]
    b, t, k, o, v = np.indices(axes)
    x = (o * cut.extents[1] + t) * cut.extents[2] + v
    index = (b * 14 + x // row) % 7 + (k * row + x % row) // 4 % 3
    for level in range(6):
        moving = tuple(range(level, 5))
        expected = (index.max(axis=moving) - index.min(axis=moving)).max() + 1
        assert np.all(total.width(level) == expected), level


def test_terms_of_a_quotient_are_asked_for_their_outermost_interval_alone(
    task: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies between adds up to it; trying it out took most of a convolution's drafts."""
    asked: list[int] = []
    own = Sum.width

    def width(self: Sum, level: int) -> Any:
        asked.append(level)
        return own(self, level)

    monkeypatch.setattr(Sum, "width", width)
    chains = 0
    for sketch in task("conv2d_half", "tensorcore").space:
        program = sketch.program(sketch.sample(16, rng))
        for access in (a for s in program.statements for a in s.accesses):
            for dim, span in enumerate(access.spans):
                several = [term for term in span.terms if term.chain is not None]
                if len({term.chain for term in several}) != 1 or len(several) < 3:
                    continue
                chains += 1
                asked.clear()
                full_width = access._width(dim, len(span.terms))
                assert len(set(asked)) == 2 and INSIDE in asked
                total = span.size + sum(term.reach() for term in span.terms)
                np.testing.assert_array_equal(full_width, total)
    assert chains > 20
