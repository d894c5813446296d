"""How often a network is run to be timed, and what two timings say."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.integration.timing import (
    Timing,
    compare_timing,
    compared,
    plan,
    take_turns,
    time_model,
)
from pruner_ms.integration.verify import random_inputs


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (1e-3, (100, 11)),  # a repeat of 0.1 s, all repeats
        (0.2, (1, 11)),
        (10.0, (1, 6)),  # what fits into 60 s
        (30.0, (1, 3)),  # never fewer than three
    ],
)
def test_the_plan_fits_the_clock_and_the_limit(first, expected):
    assert plan(first, repeats=11, min_repeat_sec=0.1, limit_sec=60.0) == expected


def test_fewer_repeats_than_three_are_done_when_asked_for():
    assert plan(30.0, repeats=1, min_repeat_sec=0.1, limit_sec=1.0) == (1, 1)


def test_a_comparison_is_of_medians_with_the_quartiles_of_neighbours():
    comparison = compared([2.0, 4.0, 2.0, 40.0], [1.0, 2.0, 1.0, 2.0], (1, 5))
    assert comparison.speedup == pytest.approx(3.0 / 1.5)
    assert (comparison.low, comparison.high) == (2.0, pytest.approx(6.5))
    assert comparison.after == Timing((1.0, 2.0, 1.0, 2.0), 5)
    assert comparison.after.iqr == pytest.approx(1.0)


def test_a_network_is_timed_alone_and_against_itself(net, target):
    inputs = random_inputs(net.loaded.inputs, np.random.default_rng(0))
    timing = time_model(net.plain, target, inputs, repeats=3, min_repeat_sec=0.01)
    assert len(timing.seconds) == 3
    assert 0 < timing.median < 1
    comparison = compare_timing(
        net.plain, net.plain, target, inputs, repeats=5, min_repeat_sec=0.01
    )
    assert len(comparison.before.seconds) == len(comparison.after.seconds) == 5
    assert min(*comparison.before.seconds, *comparison.after.seconds) > 0
    assert comparison.low <= comparison.high


def test_neither_of_two_is_always_the_first():
    order = []

    def clock(name, number):
        order.append((name, number))
        return float(len(order))

    series = take_turns(
        [lambda n: clock("before", n), lambda n: clock("after", n)], numbers=(7, 3), count=3
    )
    names = ["before", "after", "after", "before", "before", "after"]
    assert [name for name, _ in order] == names
    assert set(order) == {("before", 7), ("after", 3)}
    assert series == [[1.0, 4.0, 5.0], [2.0, 3.0, 6.0]]
