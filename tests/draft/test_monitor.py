"""The recall monitor's verdict, and what a run teaches about builds and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.config import SearchConfig
from pruner_ms.draft.explore.experience import (
    BUILD_BOUNDS,
    LEAST_SHARE,
    acceptance,
    build_factor,
    quotas,
    shares,
)
from pruner_ms.draft.explore.monitor import LEAST_UNDRAFTED, recall_of, widened


def trials(seed, drafted=32, undrafted=8, gain=0.3, truth=1.0):
    """Predictions, measurements and how each was chosen; `gain` is drafted over undrafted time,
    `truth` how much of the latency the draft sees."""
    rng = np.random.default_rng(seed)
    by_chance = np.arange(drafted + undrafted) >= drafted
    measured = np.exp(rng.normal(0, 0.5, drafted + undrafted)) * np.where(by_chance, 1.0, gain)
    noise = np.exp(rng.normal(0, 0.5, len(measured)))
    return measured**truth * noise ** (1.5 - truth), measured, by_chance


def test_a_draft_that_works_is_left_alone():
    assert not any(recall_of(*trials(seed)).misses for seed in range(50))


def test_undrafted_candidates_that_win_are_noticed():
    recalls = [recall_of(*trials(seed, gain=3.0)) for seed in range(20)]
    assert all(f.misses for f in recalls)
    assert all("faster than drafted" in f.reason and f.beaten < 0.05 for f in recalls)


def test_a_draft_that_orders_by_chance_is_noticed():
    recalls = [recall_of(*trials(seed, undrafted=40, truth=0.0)) for seed in range(20)]
    assert sum(f.misses for f in recalls) >= 15
    assert any("rank correlation" in f.reason for f in recalls)


def test_drafted_and_undrafted_alike_seldom_give_a_false_alarm():
    alarms = [recall_of(*trials(seed, gain=1.0)).beaten < 0.05 for seed in range(400)]
    assert np.mean(alarms) < 0.07


def test_the_test_is_that_of_mann_and_whitney():
    rng = np.random.default_rng(0)
    undrafted, drafted = rng.random(9), rng.random(25) + 0.2
    both = np.r_[drafted, undrafted]
    recall = recall_of(both, both, np.arange(34) >= 25)
    wins = sum(u < d for u in undrafted for d in drafted)
    z = (wins - 9 * 25 / 2 - 0.5) / np.sqrt(9 * 25 * 35 / 12)
    draws = np.random.default_rng(1).standard_normal(200_000)
    assert recall.beaten == pytest.approx(np.mean(draws > z), abs=0.01)


def test_few_measurements_say_nothing():
    few = trials(0, drafted=7, undrafted=LEAST_UNDRAFTED - 1, gain=9.0, truth=0.0)
    recall = recall_of(*few)
    assert (recall.misses, recall.beaten) == (False, 1.0) and np.isnan(recall.rank)
    assert not recall_of(np.zeros(0), np.zeros(0), np.zeros(0, np.bool_)).misses


def test_widening_keeps_more_and_stays_within_its_bounds():
    config = SearchConfig()
    wide = widened(config)
    assert wide.spec_size == 2 * config.spec_size
    assert config.uniform_share < wide.uniform_share <= 0.5
    assert config.explore_share < wide.explore_share <= 0.25
    assert widened(widened(wide)).uniform_share == 0.5
    assert wide.population == config.population


def test_builds_slower_than_predicted_are_learned_and_shrunk():
    predicted = np.array([1.0, 2.0, 0.5, 1.0] * 16)
    assert build_factor(predicted, predicted) == 1.0
    assert build_factor(predicted, 4 * predicted) == pytest.approx(4.0, rel=0.25)
    assert 1.0 <= build_factor(predicted[:1], 4 * predicted[:1]) < 1.5
    assert build_factor(predicted, 1e6 * predicted) == BUILD_BOUNDS[1]
    assert build_factor(predicted, 1e-6 * predicted) == BUILD_BOUNDS[0]


def test_one_odd_build_and_unknown_predictions_change_little():
    predicted = np.ones(20)
    measured = np.ones(20)
    measured[3] = 1e4
    assert build_factor(predicted, measured) == 1.0
    unknown = np.where(np.arange(20) < 19, np.nan, 1.0)
    assert build_factor(unknown, measured) == 1.0
    assert build_factor(np.zeros(0), np.zeros(0)) == 1.0


def test_refusals_lower_a_share_down_to_a_floor():
    assert shares({}, {}) == {}
    assert shares({0: 3, 1: 5}, {}) == {0: 1.0, 1: 1.0}
    some = shares({0: 40, 1: 40}, {1: 36})
    assert some[0] == 1.0 and some[1] == pytest.approx((4 + 8) / (40 + 8))
    assert shares({0: 10, 1: 10_000}, {1: 10_000})[1] == LEAST_SHARE
    assert acceptance(np.array([0]), np.array([0]))[0] == 1.0


def test_quotas_hold_only_what_is_refused():
    assert quotas([0, 1, 2], 100, {1: 0.25}) == {0: 100, 1: 25, 2: 100}
    assert quotas([7], 3, {7: 0.1}) == {7: 1}
