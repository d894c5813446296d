"""What a second measurement is worth as a ranking, on made-up seconds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.remeasured import compared


def test_the_same_seconds_rank_perfectly() -> None:
    recorded = np.linspace(1.0, 2.0, 12)
    figures = compared(recorded, np.stack([recorded, recorded]))
    assert figures["recall_1"] == figures["mean_recall_5"] == figures["again"] == 1.0
    assert figures["measured"] == 12


def test_a_lucky_record_is_not_found_again() -> None:
    recorded = np.array([1.0, 1.25, 2.0, 2.0, 2.0, 2.0])
    seconds = np.array([[1.5, 1.25, 2.0, 2.0, 2.0, 2.0], [1.0, 1.25, 2.0, 2.0, 2.0, 2.0]])
    figures = compared(recorded, seconds)
    assert figures["recall_1"] == pytest.approx((1 / 1.25 + 1) / 2)
    assert figures["recall_5"] == 1.0
    assert figures["best_again"] == pytest.approx(1.5**0.5, abs=1e-4)
    assert figures["mean_recall_1"] == 1.0, "the geometric mean, 1.22, is the least"


def test_what_failed_is_last() -> None:
    recorded = np.array([1.0, 2.0, 4.0])
    seconds = np.array([[np.nan, 2.0, 4.0], [1.0, 2.0, 4.0]])
    assert compared(recorded, seconds)["mean_recall_1"] == 0.5
