"""The size of a design space: against a list of all its candidates."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic import tiles
from pruner_ms.symbolic.decisions import Choice, Decisions, Place, Tile
from pruner_ms.symbolic.space import classes_of, count_distinct, decision_space
from pruner_ms.symbolic.tiles import TileSpec
from pruner_ms.tvm_compat.paths import Target, TuneContext, te, te_workload

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
OPERATORS = {
    "padded convolution": lambda: te_workload.conv2d_nhwc(1, 4, 4, 1, 2, 3, 1, 1),
    "transposed convolution": lambda: te_workload.conv2d_transpose_nhwc(1, 2, 2, 1, 2, 4, 2, 1),
    "softmax": lambda: te_workload.softmax_mn(4, 4),
    "product": lambda: te_workload.matmul(4, 6, 4),
}


def space_of(operator: str) -> Any:
    context = TuneContext(
        te.create_prim_func(OPERATORS[operator]()),
        target=Target(LLVM),
        space_generator="post-order-apply",
        search_strategy=None,
        num_threads=1,
        rand_state=1,
    )
    return decision_space(list(context.generate_design_space()), context.mod, context.target)


def every(item: Any) -> list[tuple[int, ...]]:
    """Every value of a decision, locations out of bounds included."""
    if isinstance(item, Tile):
        return [tuple(int(v) for v in row) for row in tiles.table(item.spec)]
    if isinstance(item, Choice):
        return [(i,) for i in range(item.options)]
    return [(p,) for p in range(-2, item.depth + 2)]


def listed(sketch: Any) -> int:
    """Distinct candidates, by listing the rows and what TVM makes of each."""
    keys: set[bytes] = set()
    parts = [every(item) for item in sketch.choices.items]
    # categoricals of the CPU's spaces are unroll steps: they say nothing about locations
    free = [1 if isinstance(item, Choice) else None for item in sketch.choices.items]
    parts = [part[:1] if fixed else part for part, fixed in zip(parts, free, strict=True)]
    batch = []
    for values in product(*parts):
        batch.append([v for part in values for v in part])
        if len(batch) == 8192:
            keys.update(sketch.key(sketch.canonical(np.array(batch, np.int64))))
            batch = []
    if batch:
        keys.update(sketch.key(sketch.canonical(np.array(batch, np.int64))))
    times = [item.options for item in sketch.choices.items if isinstance(item, Choice)]
    return len(keys) * int(np.prod(times, initial=1))


@pytest.mark.heavy
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_count_is_that_of_a_list(operator: str) -> None:
    space = space_of(operator)
    for sketch in space:
        assert sketch.closed, sketch.reason
        assert sketch.count() == listed(sketch)
    assert space.count() == sum(sketch.count() for sketch in space)


@pytest.mark.parametrize("operator", ["conv2d_nhwc", "conv2d_transposed", "conv2d_bn_relu"])
def test_rows_of_a_class_have_the_same_locations(
    operator: str, task: Any, rng: np.random.Generator
) -> None:
    sketch = next(s for s in task(operator).space if s.choices.places)
    column = sketch.choices.places[0]
    rows = sketch.sample(200, rng)
    ones = [classes_of(item)[0] for item in sketch.choices.items]
    for row in rows:
        alike = row.copy()
        for (item, where), values in zip(sketch.choices.slices(), ones, strict=True):
            if isinstance(item, Tile):
                same = (values == 1) == (row[where] == 1)
                alike[where] = values[same.all(axis=1)][0]
        assert legal(sketch, row, column) == legal(sketch, alike, column)


def legal(sketch: Any, row: np.ndarray, column: int) -> list[int]:
    """Locations that TVM would leave."""
    tried = np.tile(row, (34, 1))
    tried[:, column] = np.arange(-2, 32)
    return np.unique(sketch.canonical(tried)[:, column]).tolist()


def test_sizes_beyond_64_bits_are_counted() -> None:
    spec = TileSpec(720_720, 4)
    choices = Decisions((*(Tile(spec) for _ in range(4)), Place(0)))
    # a location that is always inlined: as many candidates as tiles
    count = count_distinct(choices, lambda rows: np.where(np.arange(rows.shape[1]) == 16, -2, rows))
    assert count == tiles.count(spec) ** 4 > 2**64
