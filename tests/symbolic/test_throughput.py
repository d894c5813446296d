"""Rows a second: drawn, interpreted, and asked for every footprint at five levels. Printed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

ROWS = 8192
FLOOR = 20_000  # rows a second, far below what one idle core does: a guard, not a benchmark


@pytest.mark.parametrize("rules", ["llvm", "cuda"])
@pytest.mark.parametrize("workload", ["gemm", "conv2d_nhwc"])
def test_rows_per_second(
    workload: str, rules: str, task: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for sketch in task(workload, rules).space:
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            program = sketch.program(sketch.sample(ROWS, rng))
            for statement in program.statements:
                for level in np.linspace(0, len(statement.loops), 5).astype(int):
                    for access in statement.accesses:
                        access.footprint(int(level))
            best = min(best, time.process_time() - start)
        with capsys.disabled():
            print(f"\n{workload} {rules} {sketch.index}: {ROWS / best / 1e3:,.0f} k rows/s", end="")
        assert ROWS / best > FLOOR
