"""Variables that stand for several, wherever these are in an index."""

from __future__ import annotations

import itertools

import pytest

from pruner_ms.symbolic.index.expr import Binary, Const, Expr, Iter, variables
from pruner_ms.symbolic.primitives.blockize import gathered

G, R, S, C, N, K = range(6)
EXTENTS = {G: 2, R: 3, S: 3, C: 4, N: 1}
SUMS = [([(R, 12), (S, 4), (C, 1)], K)]


def value(index: Expr, at: dict[int, int]) -> int:
    if isinstance(index, Const):
        return index.value
    if isinstance(index, Iter):
        return at[index.key]
    assert isinstance(index, Binary)
    a, b = value(index.a, at), value(index.b, at)
    return {"+": a + b, "*": a * b, "-": a - b, "//": a // max(b, 1), "%": a % max(b, 1)}[index.op]


def plus(a: Expr, b: Expr) -> Expr:
    return Binary("+", a, b)


def times(a: Expr, b: int) -> Expr:
    return Binary("*", a, Const(b))


NESTED = plus(times(plus(times(plus(times(Iter(G), 3), Iter(R)), 3), Iter(S)), 4), Iter(C))


@pytest.mark.parametrize(
    ("index", "left"),
    [
        (NESTED, {G, K}),  # ((g * 3 + r) * 3 + s) * 4 + c
        (times(NESTED, 8), {G, K}),
        (plus(NESTED, Iter(N)), {G, K, N}),
        (plus(NESTED, Const(5)), {G, K}),
        (plus(NESTED, Iter(S)), {G, R, S, C}),  # one of them has another stride
        (plus(times(Iter(R), 12), Iter(C)), {R, C}),  # one of them is missing
        (Iter(G), {G}),
        (Binary("//", NESTED, Const(4)), {G, R, S, C}),  # not affine
    ],
)
def test_all_parts_become_the_variable_or_none(index: Expr, left: set[int]) -> None:
    new_index = gathered(index, EXTENTS, SUMS)
    assert variables(new_index) == left
    for g, r, s, c in itertools.product(*(range(EXTENTS[key]) for key in (G, R, S, C))):
        at = {G: g, R: r, S: s, C: c, N: 0, K: 12 * r + 4 * s + c}
        assert value(new_index, at) == value(index, at)


def test_a_part_of_one_iteration_may_have_any_stride() -> None:
    parts = [([(N, 36), *SUMS[0][0]], K)]
    assert variables(gathered(NESTED, EXTENTS, parts)) == {G, K}
