"""The benefit of the doubt: what is unlike everything measured is tried before the tenth twin."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.draft.explore.novelty import MOST, NOISE, optimistic, unexplained
from pruner_ms.draft.score import Draft
from pruner_ms.search.task import optimistic_scores


def drafts(seconds, **terms):
    latency = np.asarray(seconds, np.float64)
    columns = {name: np.asarray(value, np.float64) for name, value in terms.items()}
    return Draft(latency, np.isfinite(latency), np.zeros(len(latency)), columns)


def families(counts, jitter=0.0):
    """Schedules of the same latency, made of compute in one family, of access in the next..."""
    rng = np.random.default_rng(0)
    family = np.repeat(np.arange(len(counts)), counts)
    names = ("compute", "access", "latency", "loop")[: len(counts)]
    terms = {n: np.where(family == i, 0.9, 0.1) for i, n in enumerate(names)}
    return family, drafts(1.0 + jitter * rng.random(len(family)), **terms)


def test_a_twin_of_what_was_measured_is_known_and_others_are_not():
    family, schedules = families([5, 5])
    variances = np.diag(unexplained(schedules.take(np.arange(3)), schedules))
    assert variances[family == 0] == pytest.approx(NOISE / (NOISE + 3), rel=1e-6)
    assert (variances[family == 1] > 0.9).all()


def test_with_nothing_measured_everything_is_unknown():
    _, schedules = families([3, 3])
    assert np.diag(unexplained(None, schedules)) == pytest.approx(1.0)


def test_what_the_draft_calls_invalid_is_like_nothing():
    latency = [1.0, 1.0, np.inf]
    covariance = unexplained(drafts([1.0, np.inf]), drafts(latency))
    assert np.isfinite(covariance).all()
    assert covariance[2, 2] == 1 and (covariance[2, :2] == 0).all()
    assert covariance[0, 0] < 0.2


def test_only_the_last_measured_ones_are_looked_at():
    family, schedules = families([MOST, 1])
    one = np.flatnonzero(family == 1)
    first = schedules.take(np.concatenate([one, np.flatnonzero(family == 0)]))
    assert np.diag(unexplained(first, schedules.take(one)))[0] > 0.5
    last = schedules.take(np.concatenate([np.flatnonzero(family == 0), one]))
    assert np.diag(unexplained(last, schedules.take(one)))[0] < 0.2


@pytest.mark.parametrize("shared", [("compute",), ("compute", "access")])
def test_terms_that_only_one_side_knows_are_left_out(shared):
    terms = {name: [0.5, 0.5] for name in shared}
    measured = drafts([1.0, 2.0], **terms, other=[0.1, 0.2])
    covariance = unexplained(measured, drafts([1.0, 4.0], **terms))
    assert np.diag(covariance)[0] < np.diag(covariance)[1]


def test_without_optimism_the_scores_decide():
    _, schedules = families([4, 4])
    scores = np.array([0.0, 0.3, 0.1, 0.2, -1.0, -0.5, -0.6, -0.7])
    order = optimistic(scores, unexplained(None, schedules), 0.0, 5)
    assert order.tolist() == [1, 3, 2, 0, 5]


def test_a_batch_goes_round_the_families_of_equal_promise():
    family, schedules = families([40, 2, 2, 2])
    scores = np.where(family == 0, 0.05, 0.0)
    order = optimistic(scores, unexplained(None, schedules), 0.2, 4)
    assert sorted(family[order]) == [0, 1, 2, 3]
    plain = optimistic(scores, unexplained(None, schedules), 0.0, 4)
    assert (family[plain] == 0).all()


def test_what_is_far_slower_is_not_tried_for_its_novelty():
    family, schedules = families([8, 2])
    scores = np.where(family == 0, 0.0, -1.0)
    order = optimistic(scores, unexplained(None, schedules), 0.2, 8)
    assert (family[order] == 0).all()


def test_what_the_draft_calls_invalid_is_never_picked():
    scores = np.array([-np.inf, 0.0, -np.inf, 1.0])
    assert optimistic(scores, np.eye(4), 0.3, 4).tolist() == [3, 1]
    assert optimistic(np.full(3, -np.inf), np.eye(3), 0.3, 3).tolist() == []
    assert optimistic_scores(np.exp(scores), np.eye(4), 0.3, 2).argsort()[::-1][:2].tolist() == [
        3,
        1,
    ]
    assert (optimistic_scores(np.zeros(3), np.eye(3), 0.3, 2) == 0).all()


def test_nothing_is_picked_twice_and_no_more_than_there_is():
    _, schedules = families([3, 3])
    order = optimistic(np.zeros(6), unexplained(None, schedules), 0.5, 10)
    assert sorted(order.tolist()) == list(range(6))


def test_the_figures_given_are_left_as_they_are():
    _, schedules = families([3, 3])
    covariance, scores = unexplained(None, schedules), np.zeros(6)
    before = covariance.copy()
    optimistic(scores, covariance, 0.5, 4)
    assert (covariance == before).all() and (scores == 0).all()
