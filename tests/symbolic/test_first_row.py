"""One row that is cut off a tile of many: the closed form says what TVM makes of it, or nothing."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from pruner_ms.tensorcore.layouts import BY_COLUMNS, BY_ROWS
from tests.support.designs import design_of, is_split
from tests.support.operators import context_of
from tests.support.oracle import disagreements, task_of
from tests.support.products import laid_out, with_bias

COMPARED = 12
CASES = {
    # rows, columns, layout; whether something follows
    "whole tiles": (1, 64, BY_ROWS, False),
    "an odd number of columns": (1, 97, BY_ROWS, False),
    "pairs of columns": (1, 250, BY_ROWS, False),
    "by columns, bias": (1, 40, BY_COLUMNS, True),
    "one column": (100, 1, BY_COLUMNS, False),
    "one column, bias": (100, 1, BY_COLUMNS, True),
}


@lru_cache(maxsize=2)
def sketches(case):
    rows, columns, layout, follows = CASES[case]

    def tensors():
        matmul = laid_out(layout, rows, columns, 96, "float16")
        return with_bias(matmul) if follows else matmul

    task = task_of(*context_of(tensors, "tensorcore"))
    unsplit_sketches = [s for s in task.space if not is_split(s.trace)]
    return task, [s for s in unsplit_sketches if design_of(s.trace)[0]]


@pytest.mark.heavy
@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_one_row_is_what_the_oracle_says(case, rng):
    task, designs = sketches(case)
    assert designs
    for sketch in designs:
        rows = sketch.sample(COMPARED, rng)
        program = sketch.program(rows)
        for i in np.flatnonzero(program.supported):
            reading = task.read(sketch, rows[i])
            assert list(disagreements(program, i, rows[i], reading)) == [], rows[i]


@pytest.mark.parametrize(
    ("case", "kind", "least", "most"),
    [
        ("whole tiles", "", 1.0, 1.0),
        ("an odd number of columns", "mma", 0.3, 0.99),
        ("one column", "mma", 0.3, 0.99),
        ("by columns, bias", "wmma_sync_8x32x16", 1.0, 1.0),
    ],
)
def test_not_much_is_left_to_the_oracle(case, kind, least, most):
    _, designs = sketches(case)
    of_kind = [s for s in designs if design_of(s.trace)[0].startswith(kind)]
    assert of_kind
    for sketch in of_kind:
        rows = sketch.sample(512, np.random.default_rng(0))
        assert least <= sketch.program(rows).supported.mean() <= most
