"""What a round costs the cost model, by the number of records that it knows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

RECORDS = (500, 2000, 10_000)
TASKS, ROUND, CANDIDATES, REPEATS = 10, 64, 4096, 5


def speed(records: tuple[int, ...] = RECORDS, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """Seconds of an update with 64 new records and of a prediction of 4,096 candidates.

    Records of ten tasks are drawn from the schedules of a tiled matrix product with made-up times;
    models take turns, medians over the repeats.

    Returns
    -------
    Rows with records, update_s, predict_s.
    """
    from pruner_ms.draft import draft
    from pruner_ms.features.pack import features_of
    from pruner_ms.hardware import hardware_named
    from pruner_ms.model.verifier import Verifier
    from tests.support.programs import tiled_gemm

    rng = np.random.default_rng(0)
    program = tiled_gemm(2 ** rng.integers(0, 10, (CANDIDATES, 3)), size=1024)
    drafted = draft(program, hardware_named("cpu-avx2").with_units(4))
    batch, prior = features_of(program, drafted), drafted.latency
    # near enough to the draft that its calibration is used, and its cost counts
    seconds = prior * np.exp(np.log(prior) * 0.2 + batch.shares[:, 0] - rng.random(CANDIDATES))
    models = []
    for count in records:
        model = Verifier()
        for task in range(TASKS):
            rows = rng.integers(0, CANDIDATES, count // TASKS)
            model.observe(f"t{task}", batch.rows(rows), seconds[rows], prior[rows])
        model.learn(least=1)
        models.append(model)
    timings: list[list[tuple[float, float]]] = [[] for _ in models]
    for _ in range(repeats):
        rows = rng.integers(0, CANDIDATES, ROUND)
        for model, times in zip(models, timings, strict=True):
            start = time.perf_counter()
            model.observe("t0", batch.rows(rows), seconds[rows], prior[rows])
            model.learn(least=1)
            middle = time.perf_counter()
            model.score("t0", batch, prior)
            times.append((middle - start, time.perf_counter() - middle))
    medians = [np.median(times, axis=0) for times in timings]
    return [
        {"records": count, "update_s": round(float(m[0]), 4), "predict_s": round(float(m[1]), 4)}
        for count, m in zip(records, medians, strict=True)
    ]
