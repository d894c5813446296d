"""Geometric means and their intervals: workloads are drawn again, then their seeds."""

from __future__ import annotations

import math
from statistics import fmean

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.race.factors import LEAST_WORKLOADS, Factor, factor

_seeds = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=4)


def factor_of(values: dict[str, list[float]]) -> Factor | None:
    # a workload of which nothing is known has a block all the same
    table = pd.Series(values, dtype=object).explode().rename_axis("workload").reset_index(name="x")
    return factor(table["x"], table["workload"], seed=0)


def of(values: dict[str, list[float]]) -> Factor:
    estimate = factor_of(values)
    assert estimate is not None
    return estimate


def test_seeds_that_agree_are_no_more_than_one() -> None:
    estimate = of({str(n): [1.0 if n else math.e] * 2 for n in range(5)})
    assert estimate.x == pytest.approx(math.exp(0.2)) and estimate.pairs == 10
    # the first workload is drawn 0 times in 33 of 100, at most 2 times in 94, at most 3 in 99;
    # of ten blocks that were independent it would be 5 of 10
    assert estimate.interval == pytest.approx([1.0, math.exp(3 / 5)])


def test_seeds_of_a_workload_are_drawn_too() -> None:
    estimate = of({str(n): [1.0, math.e] for n in range(5)})
    # of ten coins at most 1 in 1 of 100, at most 2 in 5 of 100
    assert estimate.interval == pytest.approx([math.exp(2 / 10), math.exp(8 / 10)])


def test_a_workload_with_more_seeds_brings_them_all() -> None:
    estimate = of({str(n): [1.0] if n else [math.e] * 3 for n in range(5)})
    assert estimate.x == pytest.approx(math.exp(3 / 7))
    # drawn 3 times it has 9 of 11 blocks
    assert estimate.interval == pytest.approx([1.0, math.exp(9 / 11)])


@pytest.mark.parametrize("workloads", [1, 2, LEAST_WORKLOADS - 1, LEAST_WORKLOADS])
def test_over_few_workloads_there_is_no_interval(workloads: int) -> None:
    estimate = of({str(n): [2.0 + n, 3.0] for n in range(workloads)})
    assert (estimate.interval is None) == (workloads < 5)
    assert estimate.pairs == 2 * workloads and estimate.x > 1


def test_workloads_of_which_nothing_is_known_do_not_count() -> None:
    assert of({str(n): [2.0] if n else [] for n in range(LEAST_WORKLOADS)}).interval is None


@settings(deadline=None, max_examples=30)
@given(st.lists(_seeds, min_size=LEAST_WORKLOADS, max_size=8), st.floats(0.1, 10.0))
def test_an_interval_lies_among_the_factors_and_scales(
    values: list[list[float]], scale: float
) -> None:
    one = of({str(n): own for n, own in enumerate(values)})
    other = of({str(n): [v * scale for v in own] for n, own in enumerate(values)})
    logs = [math.log(v) for own in values for v in own]
    assert one.pairs == len(logs) and math.log(one.x) == pytest.approx(fmean(logs), abs=1e-9)
    assert one.interval is not None and other.interval is not None
    low, high = map(math.log, one.interval)
    assert min(logs) - 1e-3 <= low <= high <= max(logs) + 1e-3
    assert other.x == pytest.approx(one.x * scale)
    assert other.interval == pytest.approx([end * scale for end in one.interval])


@pytest.mark.parametrize("values", [{}, {"a": []}])
def test_nothing_has_no_mean(values: dict[str, list[float]]) -> None:
    assert factor_of(values) is None
