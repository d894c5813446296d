"""Pools for a GPU are ranked on a machine without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.draft.score import draft
from pruner_ms.hardware import hardware_for
from pruner_ms.pools import evaluate
from pruner_ms.pools.describe import describe
from pruner_ms.pools.load import load
from pruner_ms.pools.spaces import Spaces, make_spaces
from pruner_ms.pools.validity import facts
from pruner_ms.pools.workloads import TENSORCORE, parse_workload
from pruner_ms.records.database import commit
from pruner_ms.records.pools import grouped, read_half
from pruner_ms.search.replay import Replayer
from pruner_ms.tvm_compat.paths import Target, ms, plain
from pruner_ms.tvm_compat.targets import attrs_of
from pruner_ms.types import Ok

CUDA = {
    "kind": "cuda",
    "arch": "sm_90",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}
RECORDS = 10


def _drawn(spaces: Spaces) -> list[tuple[Any, float]]:
    """Schedules that pass the postprocessors, and what the draft says of them."""
    context = spaces.context
    hardware = hardware_for(attrs_of(context.target), use_host=False)
    rng = np.random.default_rng(0)
    replayer = Replayer(context.mod, tuple(context.space_generator.postprocs), threads=1)
    candidates: list[tuple[Any, float]] = []
    for sketch in spaces.space:
        rows = sketch.sample(512, rng)
        scored = draft(sketch.program(rows), hardware)
        for i in np.flatnonzero(scored.valid)[: RECORDS // len(spaces.space) + 1]:
            (replayed,) = replayer.replay([(sketch.trace_of(rows[i]), 1)])
            if replayed is not None:
                candidates.append((replayed.schedule, float(scored.latency[i])))
    return candidates


@pytest.fixture(scope="module", params=["matmul:128,128,128", "matmul:128,128,128:float16"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Path:
    """A half without measurements: latencies that the draft made up, its order turned round."""
    space = TENSORCORE if "float16" in request.param else "cuda"
    spaces = make_spaces(parse_workload(request.param).func(), Target(CUDA), space)
    folder: Path = tmp_path_factory.mktemp("cuda")
    database = ms.database.JSONDatabase(work_dir=str(folder))
    drawn = _drawn(spaces)
    assert len(drawn) >= 6
    for schedule, seconds in drawn:
        outcome = Ok((1e-9 / seconds,))
        commit(database, spaces.context.mod, schedule, outcome, spaces.context.target)
    refused = [
        plain(sketch.replay(row).trace.as_json())
        for sketch in spaces.space
        for row in sketch.sample(4, np.random.default_rng(1))
    ]
    lines = [json.dumps(x) for x in [{"accepted": 0, "rejected": len(refused)}, *refused]]
    (folder / "rejected.jsonl").write_text("\n".join(lines))
    (folder / "meta.json").write_text('{"gpu": "NVIDIA H200, 550.54", "half": "random"}')
    return folder


@pytest.mark.heavy
def test_a_cuda_pool_needs_no_gpu(recorded: Path) -> None:
    (one,) = grouped([read_half(recorded)])
    pool = describe(load(one))
    assert pool.notes == ()
    assert pool.oracle_rows == 0
    assert pool.hardware.name == "h200"
    models = evaluate.default_models(print)
    rows = {r["model"]: r for r in evaluate.evaluate(pool, models, [0], 1)}
    assert set(rows) == set(models)
    # the other row of the same architecture keeps the order, nearly
    assert rows["draft"]["spearman"] < -0.8
    validity = facts(pool)["validity"]
    assert validity["measured"]["accepted"] == len(pool)
    assert sum(validity["refused"].values()) > 0
