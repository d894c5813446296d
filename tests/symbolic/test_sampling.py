"""Rows are drawn as TVM draws schedules: the same values, as often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic import tiles
from pruner_ms.symbolic.tiles import TileSpec
from pruner_ms.tvm_compat.paths import Schedule, Trace

KINDS = [
    ("conv2d_nhwc", "llvm"),
    ("softmax", "cuda"),
    ("gemm_half", "cuda-mma"),
]
DRAWS, OURS = 250, 20_000
LEAST = 6.0
"""Expected draws of a value; rarer ones are taken together."""


def drawn_by_tvm(sketch: Any, rng: np.random.Generator) -> np.ndarray:
    """Rows of fresh schedules: every decision is TVM's."""
    rows = []
    for seed in rng.integers(1, 2**31 - 1, DRAWS):
        schedule = Schedule(sketch.mod, seed=int(seed), error_render_level="none")
        Trace(list(sketch.trace.insts), {}).apply_to_schedule(schedule, remove_postproc=True)
        rows.append(sketch.row_of(schedule.trace))
    return np.stack(rows)


def excess(theirs: np.ndarray, ours: np.ndarray) -> float:
    """Standard normal deviate of the chi-squared of two samples of rows (Wilson and Hilferty)."""
    _, index = np.unique(np.concatenate([theirs, ours]), axis=0, return_inverse=True)
    index = index.reshape(-1)
    count = index.max() + 1
    seen = np.bincount(index[: len(theirs)], minlength=count).astype(float)
    share = np.bincount(index[len(theirs) :], minlength=count) / len(ours)
    expected = share * len(theirs)
    rare = expected < LEAST
    seen = np.r_[seen[~rare], seen[rare].sum()]
    expected = np.r_[expected[~rare], expected[rare].sum()]
    seen, expected = seen[expected > 0], expected[expected > 0]
    if len(seen) < 2:
        return 0.0
    squared = ((seen - expected) ** 2 / expected).sum()
    spread = 2.0 / (9.0 * (len(seen) - 1))
    return float((np.cbrt(squared / (len(seen) - 1)) - 1.0 + spread) / np.sqrt(spread))


@pytest.mark.heavy
@pytest.mark.parametrize(("workload", "rules"), KINDS)
def test_every_decision_is_drawn_as_often(
    workload: str, rules: str, task: Any, rng: np.random.Generator
) -> None:
    space = task(workload, rules).space
    sketch = space[len(space) - 1]
    theirs, ours = drawn_by_tvm(sketch, rng), sketch.sample(OURS, rng)
    assert sketch.closed
    for item, where in sketch.choices.slices():
        assert excess(theirs[:, where], ours[:, where]) < 5, item
    # neither are two decisions drawn together
    first = np.arange(sketch.columns - 1)
    for column in rng.permutation(first)[:6]:
        pair = [column, column + 1]
        assert excess(theirs[:, pair], ours[:, pair]) < 5


def test_the_comparison_sees_a_difference(rng: np.random.Generator) -> None:
    even = rng.integers(0, 8, (DRAWS, 1))
    odd = np.minimum(rng.integers(0, 12, (DRAWS, 1)), 7)
    ours = rng.integers(0, 8, (OURS, 1))
    assert excess(even, ours) < 5 < excess(odd, ours)


@pytest.mark.parametrize("limit", [0, tiles.TABLE_LIMIT])
def test_partitioned_tiles_are_drawn_uniformly(
    limit: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(tiles, "TABLE_LIMIT", limit)
    spec = TileSpec(96, 4, -1, 2, 8)
    drawn = tiles.draw(spec, 40_000, rng)
    values, counts = np.unique(drawn, axis=0, return_counts=True)
    expected = len(drawn) / tiles.count(spec)
    assert len(values) == tiles.count(spec)
    assert (np.prod(values[:, 2:], axis=1) % 8 == 0).all()
    free = len(counts) - 1
    squared = ((counts - expected) ** 2 / expected).sum()
    assert squared < free + 6 * np.sqrt(2 * free)
