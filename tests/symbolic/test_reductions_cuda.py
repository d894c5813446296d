"""Reductions on CUDA: across threads, fused below their consumers, and grouped convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.lowering import compaction, cross_thread
from pruner_ms.symbolic.primitives import moves, refine
from tests.support.oracle import disagreements

ROWS = 16
WHOLE = [
    "softmax",
    "sum_rows",
    "sum_columns",
    "mean_square",
    "layer_norm",
    "max_pool",
    "avg_pool",
]
"""Every row of these must be expressed; of the others, every row that is must be right."""


def wrong(task: Any, sketch: Any, rows: np.ndarray) -> list[str]:
    """What differs between the closed form and the oracle, one text per row."""
    program = sketch.program(rows)
    texts = []
    for i in np.flatnonzero(program.supported):
        first = next(disagreements(program, i, rows[i], task.read(sketch, rows[i])), None)
        if first is not None:
            texts.append(f"{rows[i].tolist()}: {first}")
    return texts


@pytest.mark.parametrize("operator", [*WHOLE, "norm", "conv2d_grouped"])
def test_reductions_equal_the_oracle(operator: str, task: Any, rng: np.random.Generator) -> None:
    operator_task = task(operator, "cuda")
    for sketch in operator_task.space:
        assert sketch.closed, sketch.reason
        rows = sketch.sample(max(4, ROWS // len(operator_task.space)), rng)
        assert wrong(operator_task, sketch, rows) == []


@pytest.mark.parametrize("operator", WHOLE)
def test_every_row_is_expressed(operator: str, task: Any, rng: np.random.Generator) -> None:
    for sketch in task(operator, "cuda").space:
        assert sketch.program(sketch.sample(500, rng)).supported.all()


def test_grouped_convolution_on_a_cpu(task: Any, rng: np.random.Generator) -> None:
    conv2d = task("conv2d_grouped", "llvm")
    for sketch in conv2d.space:
        rows = sketch.sample(10, rng)
        assert wrong(conv2d, sketch, rows) == []
        assert sketch.program(sketch.sample(500, rng)).supported.mean() > 0.7


SUSPECTS, OTHERS = 200, 40
"""Rows drawn, of which all doubted ones are looked at until a broken rule shows, and others."""


def _nothing(*given: Any) -> Any:
    del given
    return False


BROKEN = [
    (
        "the thread's loop is no reduction",
        cross_thread,
        "_make_spatial",
        "softmax",
        lambda block: [],
    ),
    ("what reaches beyond the end is guarded", moves, "_greater", "avg_pool", _nothing),
    ("a split that does not divide is guarded", refine, "guard", "max_pool", _nothing),
    ("TVM loses sight of some groups", compaction, "crosses_groups", "conv2d_grouped", _nothing),
]


@pytest.mark.heavy
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
    operator_task = task(operator, "cuda")
    samples = [sketch.sample(SUSPECTS, rng) for sketch in operator_task.space]
    doubted = [
        ~sketch.program(rows).supported
        for sketch, rows in zip(operator_task.space, samples, strict=True)
    ]
    monkeypatch.setattr(module, name, broken)
    for sketch, rows, first in zip(operator_task.space, samples, doubted, strict=True):
        # a rule that doubts rows is right about few of them: those come first
        for row in np.concatenate([rows[first], rows[~first][:OTHERS]]):
            try:
                if wrong(operator_task, sketch, row[None]):
                    return
            except (IndexError, KeyError, ValueError, TypeError):
                return  # the program falls apart: that shows too
    pytest.fail(f"nothing shows that this rule is broken: {rule}")
