"""The list of what may go to the oracle says what is true, and nothing more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.open_spaces import DOUBTED, OPEN, RARE
from tests.support.operators import (
    NO_SPACE,
    OPERATORS,
    PAIRS,
    TARGETS,
    TENSORIZED,
    tuning_context,
)

ROWS = 2048


@pytest.mark.parametrize(("operator", "space"), PAIRS)
@pytest.mark.sampled(48)
def test_only_what_is_listed_goes_to_the_oracle(
    operator: str, space: str, task: Any, rng: np.random.Generator
) -> None:
    operator_task = task(operator, space)
    listed = OPEN.get((operator, space), {})
    for sketch in operator_task.space:
        reasons = [reason for reason, indices in listed.items() if sketch.index in indices]
        assert sketch.closed == (not reasons), (sketch.index, sketch.reason, reasons)
        assert all(reason in sketch.reason for reason in reasons)
    closed = operator_task.space.closed
    shares = [1 - sketch.program(sketch.sample(ROWS, rng)).supported.mean() for sketch in closed]
    doubted = float(np.mean(shares or [0.0]))
    # a sample of a pair at the border falls on either side of it: three standard errors are not it
    error = 3 * (RARE * (1 - RARE) / (ROWS * max(len(closed), 1))) ** 0.5
    if (operator, space) in DOUBTED:
        assert doubted > RARE - error, f"{doubted:.2%} of rows"
    else:
        assert doubted <= RARE + error, f"{doubted:.2%} of rows"


@pytest.mark.parametrize(("operator", "space"), NO_SPACE)
def test_stock_has_no_space(operator: str, space: str) -> None:
    with pytest.raises(Exception, match=r"out of bounds|ScheduleError|positive"):
        tuning_context(operator, space)


def test_the_list_names_what_there_is() -> None:
    assert set(OPEN) <= set(PAIRS)
    assert set(DOUBTED) <= set(PAIRS)
    assert set(TENSORIZED) <= set(OPERATORS)
    assert {space for _, space in PAIRS} == set(TARGETS)
