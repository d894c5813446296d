"""Metrics against values worked out by hand, and against their definitions."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pruner_ms.pools import metrics

LATENCIES = arrays.arrays(
    np.float64,
    st.integers(1, 7),
    elements=st.sampled_from([1.0, 1.5, 2.0, 3.0, 8.0, np.inf]),
)
VALUES = arrays.arrays(np.float64, st.integers(3, 30), elements=st.integers(-5, 5).map(float))
INF = np.inf


def test_equal_values_share_their_ranks():
    ranks = metrics.average_ranks(np.array([3.0, 1.0, 3.0, INF, INF]))
    assert ranks.tolist() == [2.5, 1.0, 2.5, 4.5, 4.5]


def test_spearman_by_hand():
    a, b = np.array([1.0, 2.0, 3.0, 4.0]), np.array([10.0, 30.0, 20.0, 40.0])
    # squared differences of ranks: 0 1 1 0, 1 - 6 * 2 / (4 * 15)
    assert metrics.spearman(a, b) == pytest.approx(0.8)
    assert metrics.spearman(a, -b) == pytest.approx(-0.8)
    # ranks 1 2.5 2.5 4 against 1 3 2 4: covariance 4.5, norms sqrt(4.5) and sqrt(5)
    assert metrics.spearman(np.array([1.0, 2.0, 2.0, 4.0]), b) == pytest.approx(4.5 / 22.5**0.5)


def test_spearman_is_not_given_where_it_means_nothing():
    assert metrics.spearman(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert metrics.spearman(np.ones(5), np.arange(5.0)) is None


@given(VALUES, st.integers(0, 2**31))
def test_spearman_is_that_of_scipys_definition(a, seed):
    b = np.random.default_rng(seed).permutation(a) + 0.5 * a
    correlation = metrics.spearman(a, b)
    ranks = [np.array([np.mean([1 + np.sum(x < v), np.sum(x <= v)]) for v in x]) for x in (a, b)]
    if correlation is None:
        assert min(r.std() for r in ranks) == 0
        return
    assert correlation == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert correlation == pytest.approx(metrics.spearman(b, a))
    assert metrics.spearman(np.exp(a), b) == pytest.approx(correlation)


def test_recall_by_hand():
    latency, order = np.array([4.0, 2.0, INF, 1.0]), np.array([2, 0, 1, 3])
    recalls = [metrics.recall(latency, order, k) for k in (1, 2, 3, 4)]
    assert recalls == [0.0, 0.25, 0.5, 1.0]
    assert metrics.recall(np.full(3, INF), np.arange(3), 2) is None


def test_random_recall_by_hand():
    # of 1, 2 and 4 seconds: any alone gives 1, 1/2, 1/4; of two, one of three pairs lacks the best
    latency = np.array([4.0, 1.0, 2.0])
    assert metrics.random_recall(latency, 1) == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert metrics.random_recall(latency, 2) == pytest.approx((1 + 1 + 0.5) / 3)
    assert metrics.random_recall(latency, 3) == pytest.approx(1)


@settings(max_examples=60)
@given(LATENCIES, st.integers(1, 7))
def test_random_recall_is_the_mean_over_all_subsets(latency, k):
    k = min(k, len(latency))
    mean_recall = metrics.random_recall(latency, k)
    if not np.isfinite(latency).any():
        assert mean_recall is None
        return
    exact = [latency.min() / latency[list(c)].min() for c in combinations(range(len(latency)), k)]
    assert mean_recall == pytest.approx(np.mean(exact))


@settings(max_examples=30)
@given(LATENCIES)
def test_recall_never_falls_with_more_records_and_ends_at_one(latency):
    if not np.isfinite(latency).any():
        return
    for order in list(permutations(range(len(latency))))[:20]:
        recalls = [metrics.recall(latency, np.array(order), k) for k in range(1, len(order) + 1)]
        assert recalls == sorted(recalls)
        assert recalls[-1] == 1.0


def test_the_order_is_by_cost_and_ties_are_dealt_out():
    cost = np.array([2.0, np.nan, 1.0, INF])
    order = metrics.order_of(cost, np.random.default_rng(0))
    assert order[:2].tolist() == [2, 0]
    assert sorted(order[2:]) == [1, 3]
    firsts = {int(metrics.order_of(np.ones(3), np.random.default_rng(s))[0]) for s in range(30)}
    assert firsts == {0, 1, 2}


@pytest.mark.parametrize(("cut", "n", "size"), [(1, 9, 1), (64, 9, 9), (0.128, 4000, 512)])
def test_sizes(cut, n, size):
    assert metrics.size_of(cut, n) == size
    assert metrics.size_of(0.128, 1) == 1


def test_the_winner_is_looked_for_in_the_ranking():
    latency = np.array([5.0, 1.0, 3.0])
    assert metrics.winner_percentile(latency, np.array([1, 0, 2])) == 0
    assert metrics.winner_percentile(latency, np.array([0, 1, 2])) == 50
    assert metrics.winner_percentile(latency, np.array([0, 2, 1])) == 100
    assert metrics.winner_percentile(np.array([INF]), np.array([0])) is None


def test_the_fastest_quarter_is_of_those_that_ran():
    latency = np.array([5.0, INF, 1.0, 3.0, 2.0, 9.0])
    assert metrics.fastest_quarter(latency).tolist() == [2, 4]
