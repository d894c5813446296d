"""Vectors of padded products whose lanes a condition tells apart: TVM writes each lane out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.oracle import make_task


@pytest.mark.parametrize(
    ("sketch", "row"),
    [
        # copies of A by vectors of all 48 columns, 45 of them there
        (3, [1, 16, 8, 1, 2, 4, 19, 2, 8, 6, 3, 2, 2]),
        (5, [1, 16, 4, 2, 2, 2, 38, 2, 6, 8, 3, -1, 2]),
        # the result is written back by vectors of 16, and 300 columns are no multiple
        (5, [1, 2, 64, 1, 19, 4, 2, 2, 8, 6, 3, 1, 1]),
        # of 2 and of 4 they are: one condition for all lanes
        (5, [16, 2, 1, 4, 152, 1, 2, 1, 48, 1, 2, 2, 4]),
        (5, [16, 2, 4, 1, 1, 76, 4, 1, 3, 16, 1, 3, 3]),
        # a padded copy that is inlined takes its condition along
        (5, [1, 4, 8, 4, 1, 76, 2, 2, 1, 48, 3, 7, -2]),
    ],
)
def test_statements_after_unrolling(sketch: int, row: list[int]) -> None:
    task = make_task("gemm_odd", "cpu")
    design, rows = task.space[sketch], np.array([row])
    program = design.program(rows)
    assert program.supported.all() and program.unrolled is not None
    reading = task.read(design, rows[0], unrolled=True)
    assert reading.program is not None and reading.program.unrolled is not None
    assert program.unrolled().tolist() == reading.program.unrolled().tolist()
