"""Reductions on a CPU: rfactor, chains of sampled locations, several consumers, pooling windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.index import intervals
from pruner_ms.symbolic.lowering import compaction, postprocs
from pruner_ms.symbolic.oracle.compare import differences
from pruner_ms.symbolic.primitives import chains, refine, trunk
from tests.support.oracle import disagreements

ROWS = 27
OPERATORS = [
    "softmax",
    "norm",
    "sum_rows",
    "sum_columns",
    "mean_square",
    "layer_norm",
    "max_pool",
    "avg_pool",
]
WHOLE = {"softmax", "sum_rows", "sum_columns", "mean_square", "layer_norm"}
"""Operators of which every row must be expressed."""


def wrong(task: Any, sketch: Any, rows: np.ndarray) -> list[str]:
    """What differs between the closed form and the oracle, one text per row."""
    program = sketch.program(rows)
    texts = []
    for i in np.flatnonzero(program.supported):
        first = next(disagreements(program, i, rows[i], task.read(sketch, rows[i])), None)
        if first is not None:
            texts.append(f"{rows[i].tolist()}: {first}")
    return texts


@pytest.mark.parametrize("operator", OPERATORS)
def test_reductions_equal_the_oracle(operator: str, task: Any, rng: np.random.Generator) -> None:
    operator_task = task(operator, "llvm")
    for sketch in operator_task.space:
        assert sketch.closed, sketch.reason
        rows = sketch.sample(max(4, ROWS // len(operator_task.space)), rng)
        assert wrong(operator_task, sketch, rows) == []


@pytest.mark.parametrize("operator", sorted(WHOLE))
def test_every_row_is_expressed(operator: str, task: Any, rng: np.random.Generator) -> None:
    for sketch in task(operator, "llvm").space:
        assert sketch.program(sketch.sample(500, rng)).supported.all()


def test_rows_do_not_depend_on_each_other(task: Any, rng: np.random.Generator) -> None:
    for sketch in task("softmax", "llvm").space:
        rows = sketch.sample(12, rng)
        together = sketch.program(rows)
        for i in range(len(rows)):
            assert list(differences(together, i, sketch.program(rows[i : i + 1]))) == []


def test_illegal_chains_are_repaired_like_tvm(task: Any, rng: np.random.Generator) -> None:
    softmax = task("softmax", "llvm")
    for sketch in softmax.space:
        drawn = sketch.choices.sample(6, rng)
        rows = sketch.canonical(drawn)
        for given, row in zip(drawn, rows, strict=True):
            assert sketch.row_of(sketch.replay(given).trace).tolist() == row.tolist()
        assert wrong(softmax, sketch, rows) == []


def test_locations_are_drawn_uniformly(task: Any, rng: np.random.Generator) -> None:
    sketch = task("softmax", "llvm").space[8]  # no tiles: one categorical, three locations
    rows = sketch.sample(30_000, rng)
    first, second = rows[:, 1], rows[:, 2]
    assert set(np.unique(first)) == {-1, 0, 1}
    shares = np.bincount(first + 1) / len(rows)
    assert np.abs(shares - 1 / 3).max() < 0.02
    at_root = np.unique(second[first == -1])
    assert at_root.tolist() == [-2, -1]  # two consumers without a common loop
    inside = np.unique(second[first == 1], return_counts=True)
    assert inside[0].tolist() == [-2, -1, 0, 1]
    assert np.ptp(inside[1] / inside[1].sum()) < 0.03


def _no_union(several: Any, full: Any) -> Any:
    return several[0][1], True


BROKEN = [
    ("a trunk is what all consumers share", trunk, "trunk_of", "softmax", None),
    (
        "what is allocated covers every access",
        compaction,
        "same_strides",
        "softmax",
        lambda b: True,
    ),
    ("reads of several consumers are united", chains, "union_all", "softmax", _no_union),
    ("loops below the first reduction are copied", postprocs._Nest, "add", "softmax", None),
    ("a part of a fused loop hides an index", refine, "_cut", "norm", None),
]


def _first_consumer(state: Any, block: Any) -> Any:
    consumer = state.consumers(block)[0]
    return trunk.Trunk(tuple(consumer.path), tuple(consumer.mask))


def _common(self: Any, loop: Any, outer: Any, inner: Any) -> None:
    self.path.append(loop)
    self.mask.append(outer | inner)


def _whole(leaf: Any, low: Any, factor: Any) -> Any:
    del low, factor
    return refine.Leaf(leaf.extent, leaf.reduction), refine.Leaf(1, leaf.reduction), True


_BREAKS = {"trunk_of": (chains, _first_consumer), "add": (postprocs._Nest, _common)}


@pytest.mark.parametrize(("rule", "module", "name", "operator", "broken"), BROKEN)
def test_a_broken_rule_shows(
    rule: str,
    module: Any,
    name: str,
    operator: str,
    broken: Any,
    task: Any,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator_task = task(operator, "llvm")
    samples = [sketch.sample(40, rng) for sketch in operator_task.space]
    where, what = _BREAKS.get(name, (module, _whole if name == "_cut" else broken))
    monkeypatch.setattr(where, name, what)
    for sketch, rows in zip(operator_task.space, samples, strict=True):
        for i in range(0, len(rows), 4):
            try:
                if wrong(operator_task, sketch, rows[i : i + 4]):
                    return
            except (IndexError, KeyError, ValueError, TypeError):
                return  # the program falls apart: that shows too
    pytest.fail(f"nothing shows that this rule is broken: {rule}")


def test_intervals_unite_where_one_is_the_whole() -> None:
    leaf = intervals.Leaf(4, False)
    inner, outer = (1, {leaf: 1}), (4, {})
    (size, base), exact = intervals.union(inner, outer, 4)
    assert (size, exact) == (4, True)
    assert set(base.values()) == {0}
    _, unknown = intervals.union(inner, (2, {}), 4)
    assert unknown is False
