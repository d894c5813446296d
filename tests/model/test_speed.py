"""What an update and a prediction cost, in processor seconds; bounds are three times the target."""

from __future__ import annotations

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pruner_ms.features.pack import features_of  # noqa: E402
from pruner_ms.model.verifier import Verifier  # noqa: E402
from tests.support.programs import tiled_gemm  # noqa: E402

ROUND, CANDIDATES = 64, 4096


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    tiles = 2 ** rng.integers(0, 10, (CANDIDATES, 3))
    return features_of(tiled_gemm(tiles, size=1024)), rng.random(CANDIDATES) + 0.1


def filled(data, records):
    """A model that has learned so many records of ten tasks."""
    model = Verifier()
    rng = np.random.default_rng(records)
    for number in range(10):
        rows = rng.integers(0, CANDIDATES, records // 10)
        model.observe(f"t{number}", data[0].rows(rows), data[1][rows], data[1][rows])
    model.learn(least=1)
    return model


def seconds(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def rounds(model, data, count):
    """Seconds of update and prediction together, of the cheapest of some rounds."""
    rng = np.random.default_rng(1)
    times = []
    for _ in range(count):
        rows = rng.integers(0, CANDIDATES, ROUND)

        def one(rows=rows):
            model.observe("t0", data[0].rows(rows), data[1][rows], data[1][rows])
            model.learn(least=1)
            model.score("t0", data[0], data[1])

        times.append(seconds(one))
    return min(times)


@pytest.mark.heavy
def test_a_round_costs_the_same_with_twenty_times_the_records(data):
    few, many = filled(data, 500), filled(data, 10_000)
    # in turns: threads that wait for a busy machine cost processor time, too
    cost = np.min([[rounds(model, data, 1) for model in (few, many)] for _ in range(4)], axis=0)
    assert cost[1] < 1.6 * cost[0] + 0.05, cost


def test_an_update_and_a_prediction_are_quick(data):
    model = filled(data, 2000)
    rows = np.arange(ROUND)
    model.observe("t0", data[0].rows(rows), data[1][rows], data[1][rows])
    update = seconds(lambda: model.learn(least=1))
    prediction = min(seconds(lambda: model.score("t0", data[0], data[1])) for _ in range(3))
    assert update < 3.0 and prediction < 0.9, (update, prediction)
