"""Quotients of sums, falling indices, and flat blocks that are written out, by trying them out."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.index import expr, floors
from pruner_ms.symbolic.index.digits import Quotient
from pruner_ms.symbolic.index.expr import Binary, Const, Evaluator, Iter
from pruner_ms.symbolic.index.flat import Binding, FlatBlock, Index, tabulated
from pruner_ms.symbolic.index.forms import Leaf
from pruner_ms.symbolic.rows import both, column, mask_column, possible, select
from tests.support.oracle import disagreements, draw

SUM = Binary("+", Iter(0), Iter(1))
ROWS = 16


def _random(rng: np.random.Generator) -> tuple[list[Leaf], dict[Leaf | None, Any], int]:
    """Leaves of four loops, a form over them with one value per row, and a divisor."""
    leaves = [Leaf(rng.integers(1, 5, ROWS), False) for _ in range(4)]
    form: dict[Leaf | None, Any] = {leaf: rng.integers(0, 7, ROWS) for leaf in leaves}
    form[None] = int(rng.integers(0, 5))
    return leaves, form, int(rng.integers(2, 6))


def _table(leaves: list[Leaf], form: dict[Leaf | None, Any], k: int, row: int) -> np.ndarray:
    """The quotient in every iteration of a row, one axis per loop."""
    extents = [int(np.asarray(leaf.extent)[row]) for leaf in leaves]
    total = np.full(extents, int(form[None]))
    for axis, leaf in enumerate(leaves):
        shape = [1] * len(leaves)
        shape[axis] = extents[axis]
        total = total + (int(form[leaf][row]) * np.arange(extents[axis])).reshape(shape)
    quotients: np.ndarray = total // k
    return quotients


def test_widths_and_steps_of_a_quotient(rng: np.random.Generator) -> None:
    for _ in range(20):
        leaves, form, k = _random(rng)
        where = {leaf: p for p, leaf in enumerate(leaves)}
        quotient = Quotient(SUM, k, 0, 1)
        floored_sum = floors.Floored(quotient, form, where, {})
        for row, level in product(range(ROWS), range(5)):
            table = _table(leaves, form, k, row)
            inner = tuple(range(level, 4))
            widest = int((table.max(axis=inner) - table.min(axis=inner)).max()) + 1
            assert int(column(floored_sum.width(level), ROWS)[row]) == widest
        for row, p in product(range(ROWS), range(4)):
            table = _table(leaves, form, k, row)
            at = tuple(int(axis == p) for axis in range(4))
            moved = table[at] - table[0, 0, 0, 0] if table.shape[p] > 1 else 0
            step = select(leaves[p].extent > 1, floored_sum.step(p), 0)
            assert int(column(step, ROWS)[row]) == moved


def test_regions_of_a_quotient(rng: np.random.Generator) -> None:
    exact_rows = 0
    for _ in range(20):
        leaves, form, k = _random(rng)
        free = {leaf: leaf in leaves[2:] for leaf in leaves}
        grown, base, exact, varies = floors.interval(Quotient(SUM, k, 0, 3), form, free)
        assert not possible(both(exact, varies))
        for row in np.flatnonzero(mask_column(exact, ROWS)).tolist():
            exact_rows += 1
            table = 3 * _table(leaves, form, k, row)
            widths = table.max(axis=(2, 3)) - table.min(axis=(2, 3))
            assert (widths == column(grown, ROWS)[row]).all()
            for i, j in product(*map(range, table.shape[:2])):
                first = sum(
                    int(column(base.get(leaf, 0), ROWS)[row]) * at
                    for leaf, at in ((None, 1), (leaves[0], i), (leaves[1], j))
                )
                assert first == table[i, j].min()
    assert exact_rows > 0


def test_only_quotients_of_sums_are_taken() -> None:
    def half_of(index: expr.Expr) -> expr.Expr:
        return Binary("//", index, Const(2))

    assert floors.divides_sum(half_of(SUM))
    assert floors.divides_sum(Binary("-", half_of(SUM), Const(1)))
    assert not floors.divides_sum(half_of(Iter(0)))
    assert not floors.divides_sum(Binary("+", half_of(SUM), half_of(Iter(0))))
    assert not floors.divides_sum(Binary("%", SUM, Const(2)))
    assert not floors.divides_sum(Binary("//", SUM, Const(floors.LIMIT + 1)))


def test_falling_indices_are_known() -> None:
    leaf = Leaf(3, False)
    index = Binary("-", Const(7), Iter(0))
    assert expr.may_decrease(index)
    assert expr.may_decrease(Binary("*", Iter(0), Const(-1)))
    assert not expr.may_decrease(Binary("-", Iter(0), Const(1)))
    evaluator = Evaluator({0: {leaf: 2}}, signed=True)
    assert evaluator.form(index) == {leaf: -2, None: 7}
    evaluator.form(Binary("//", index, Const(4)))
    assert evaluator.exact is False
    assert expr.interval(index, {0: {leaf: 2}}) == (3, 7)


@pytest.mark.parametrize("vector", [4, 8])
def test_flat_blocks_are_written_out(vector: int) -> None:
    extents = (3, 6, 5)
    block = FlatBlock(np.ones(1, bool), extents, 0, 3, vector)
    high, low = Binary("//", Iter(1), Const(4)), Binary("%", Iter(1), Const(4))
    index = Binary("+", Binary("*", high, Const(8)), Binary("+", low, Iter(2)))
    bindings = {k: Binding(k, ((k, 1, 0, 1),)) for k in range(3)}
    access = tabulated(block, [Index(index, 2, 10), Index(Iter(0), 1, 7)], bindings)
    assert access is not None
    x = np.arange(-(-90 // vector) * vector)
    i, j, k = x // 30, x // 5 % 6 + 1, x % 5 + 2
    values = [j // 4 * 8 + j % 4 + k, i]
    for n, value in enumerate(values):
        table = value.reshape(-1, vector)
        assert access.widths[n] == (table.max(axis=1) - table.min(axis=1)).max() + 2 - n
        assert access.total_widths is not None
        assert access.total_widths[n] == value.max() - value.min() + 2 - n
    flat = 10 * values[0] + 7 * values[1]
    assert access.steps == (flat[vector] - flat[0], flat[1] - flat[0])


@pytest.mark.parametrize(
    ("operator", "space"),
    [("conv2d_transposed", "llvm"), ("conv2d_transposed", "cuda"), ("winograd", "llvm")],
)
def test_spaces_equal_the_oracle(
    operator: str, space: str, task: Any, rng: np.random.Generator
) -> None:
    operator_task = task(operator, space)
    compared = 0
    for sketch in operator_task.space:
        assert sketch.closed, sketch.reason
        rows = draw(sketch, max(3, 2 * ROWS // len(operator_task.space)), rng)
        program = sketch.program(rows)
        for i in np.flatnonzero(program.supported).tolist():
            reading = operator_task.read(sketch, rows[i])
            compared += 1
            texts = disagreements(program, i, rows[i], reading)
            assert next(texts, None) is None, rows[i].tolist()
    assert compared > 0


def test_what_tvm_rejects_is_known(task: Any, rng: np.random.Generator) -> None:
    transposed_conv = task("conv2d_transposed", "llvm")
    sketch = transposed_conv.space[0]
    rows = sketch.sample(200, rng)
    supported, accepted = sketch.program(rows).supported, sketch.accepted(rows)
    assert accepted[supported].all()
    assert not accepted.all()
    for i in np.flatnonzero(~supported)[:12]:
        assert transposed_conv.read(sketch, rows[i]).accepted == accepted[i], rows[i].tolist()
