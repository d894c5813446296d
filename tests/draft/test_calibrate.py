"""Calibration: the formula without data, better where the formula is wrong, never worse."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pruner_ms.draft.calibrate import (
    LEAST,
    MOST,
    Calibration,
    best_blend,
    chosen_rows,
    fit,
    rank_correlation,
)
from pruner_ms.draft.process import fit_process
from pruner_ms.draft.score import Draft
from pruner_ms.draft.shares import drafted_from, log_shares


def drafts(n, seed, weight=1.0, noise=0.1):
    """Drafts of a formula compute + memory where truth is compute + weight * memory."""
    rng = np.random.default_rng(seed)
    compute, memory, loop = np.exp(rng.normal(0, 1, (3, n))) * 1e-3
    terms = {"compute": compute, "memory": memory, "loop": loop}
    estimates = Draft(compute + memory, np.ones(n, np.bool_), np.ones(n), terms)
    truth = (compute + weight * memory) * np.exp(rng.normal(0, noise, n))
    return estimates, truth


def test_without_data_it_is_the_formula():
    sample, _ = drafts(50, 0)
    empty = fit(sample.take(np.zeros(0, np.int64)), np.zeros(0))
    for calibration in (Calibration(), empty):
        assert np.array_equal(calibration.latency(sample), sample.latency)


def test_with_little_data_it_is_the_formula_up_to_a_factor():
    sample, truth = drafts(LEAST - 1, 1)
    calibration = fit(sample, 7 * truth)
    ratio = calibration.latency(sample) / sample.latency
    assert ratio == pytest.approx(ratio[0]) and ratio[0] == pytest.approx(7, rel=0.3)


@pytest.mark.parametrize("seed", range(3))
def test_it_mends_a_formula_that_weighs_a_term_wrongly(seed):
    sample, truth = drafts(64, seed, weight=12.0)
    other, unseen = drafts(400, seed + 100, weight=12.0)
    better = rank_correlation(fit(sample, truth).latency(other), unseen)
    assert better > rank_correlation(other.latency, unseen) + 0.04


@pytest.mark.parametrize("rows", [12, 32, 64])
def test_it_leaves_a_right_formula_alone(rows):
    lost = []
    for seed in range(30):
        sample, truth = drafts(rows, seed, noise=0.5)
        other, unseen = drafts(300, seed + 1000, noise=0.5)
        formula = rank_correlation(other.latency, unseen)
        lost.append(formula - rank_correlation(fit(sample, truth).latency(other), unseen))
    assert np.mean(lost) < 0.005


def test_the_blend_is_0_on_noise_and_more_on_a_signal():
    noise = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z, y, formula = rng.normal(size=(40, 8)), rng.normal(size=40), rng.normal(size=40)
        noise.append(best_blend(fit_process(z, y - y.mean())[1], y - y.mean(), formula))
        signal = 2 * z[:, 0] + 0.1 * y
        signal -= signal.mean()
        assert best_blend(fit_process(z, signal)[1], signal, formula) > 0
    assert np.mean(np.array(noise) > 0) < 0.15


def test_of_many_records_the_fastest_and_some_of_all_others_are_fitted():
    seconds = np.random.default_rng(0).permutation(3000) + 1.0
    rows = chosen_rows(seconds)
    assert len(rows) == MOST == len(set(rows.tolist()))
    assert set(range(1, MOST // 2 + 1)) <= set(seconds[rows].tolist())
    assert seconds[rows].max() == 3000
    assert chosen_rows(seconds[:MOST]).tolist() == list(range(MOST))


def test_failed_trials_and_invalid_drafts_are_left_out():
    sample, truth = drafts(20, 3)
    spoilt = truth.copy()
    spoilt[[0, 1, 2]] = np.inf, np.nan, 0.0
    calibration = fit(sample, spoilt)
    assert calibration.rows == 17
    invalid = Draft(sample.latency, np.arange(20) > 4, sample.compile_seconds, sample.terms)
    assert np.isinf(calibration.latency(invalid)[:5]).all()
    assert np.isfinite(calibration.latency(invalid)[5:]).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 60), st.integers(0, 2**31), st.floats(0.1, 20))
def test_calibrated_latencies_are_positive_and_finite(rows, seed, weight):
    sample, truth = drafts(max(rows, 1), seed, weight)
    latency = fit(sample, truth).latency(sample)
    assert (latency > 0).all() and np.isfinite(latency).all()


def test_it_takes_milliseconds():
    sample, truth = drafts(2000, 5, weight=5.0)
    spent = []
    for _ in range(3):
        start = time.process_time()
        fit(sample, truth)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.25


def test_rank_correlation_by_hand():
    up, down = np.array([1.0, 2.0, 3.0]), np.array([9.0, 4.0, 1.0])
    assert rank_correlation(up, up**3) == pytest.approx(1.0)
    assert rank_correlation(up, down) == pytest.approx(-1.0)
    assert rank_correlation(up, np.ones(3)) == 0.0


def test_a_row_alone_is_corrected_as_among_others():
    """A term that only other rows have is 0 of it, not all of it."""
    sample, truth = drafts(64, 3, weight=12.0)
    sample.terms["memory"][::3] = 0.0
    calibration = fit(sample, truth)
    assert calibration.process is not None
    together = calibration.latency(sample)
    shares = log_shares(sample, tuple(sample.terms))
    for i in range(6):
        alone = drafted_from(shares[[i]], sample.latency[[i]], tuple(sample.terms))
        assert ("memory" in alone.terms) == (i % 3 != 0)
        # single precision inside: sums of one row and of many are ordered differently
        assert calibration.latency(alone) == pytest.approx(together[i], rel=1e-4)
