"""The Gaussian process: against a refit, on a line, on a curve."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.draft.process import CHUNK, fit_process, nearness


def curve(z):
    return np.sin(2 * z[:, 0]) + 0.5 * z[:, 1]


def samples(n, seed, noise=0.05):
    rng = np.random.default_rng(seed)
    z = rng.uniform(-2, 2, (n, 3))
    y = curve(z) + rng.normal(0, noise, n)
    return z, y - y.mean()


def test_leaving_one_out_in_closed_form_equals_refitting():
    z, y = samples(30, 0)
    process, left_out = fit_process(z, y)
    covariance = z @ z.T / 3 + process.bend * nearness(z, z, process.length)
    for i in (0, 7, 29):
        keep = np.arange(30) != i
        noisy = covariance[np.ix_(keep, keep)] + process.noise * np.eye(29)
        assert left_out[i] == pytest.approx(covariance[i, keep] @ np.linalg.solve(noisy, y[keep]))


def test_it_follows_a_curve_that_a_line_cannot():
    process, _ = fit_process(*samples(100, 1))
    z, y = samples(200, 2, noise=0.0)
    assert process.bend > 0
    assert np.corrcoef(process.predict(z), y)[0, 1] > 0.98
    line = np.linalg.lstsq(z, y, rcond=None)[0]
    assert np.corrcoef(z @ line, y)[0, 1] < 0.9


def test_a_prediction_does_not_depend_on_the_rows_beside_it():
    process, _ = fit_process(*samples(50, 3))
    z = np.random.default_rng(4).uniform(-2, 2, (CHUNK + 5, 3))
    together = process.predict(z)
    assert together[-3:] == pytest.approx(process.predict(z[-3:]), abs=1e-5)
    assert together.shape == (CHUNK + 5,)


def test_without_a_signal_it_says_little():
    rng = np.random.default_rng(5)
    z, y = rng.normal(size=(60, 4)), rng.normal(size=60)
    process, left_out = fit_process(z, y - y.mean())
    assert np.std(process.predict(rng.normal(size=(500, 4)))) < 0.5
    assert np.isfinite(left_out).all()


def test_nearness_by_hand():
    a, b = np.array([[0.0, 0.0]]), np.array([[0.0, 0.0], [2.0, 0.0]])
    assert nearness(a, b, 1.0)[0] == pytest.approx([1.0, np.exp(-1.0)])
