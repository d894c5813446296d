"""Hot paths beside what stock MetaSchedule does for the same purpose, in the same run.

`make bench` prints the times and writes `results/hot_paths.json`: seconds per candidate of both,
and stock over ours. The ratio is what compares between machines. All of it is one 512x512x512 GEMM
on `llvm`, one thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.machine import fingerprint
from pruner_ms.config import SearchConfig
from pruner_ms.draft.explore.explorer import explore
from pruner_ms.draft.score import draft
from pruner_ms.features.pack import features_of
from pruner_ms.hardware import hardware_for
from pruner_ms.search.replay import Replayer
from pruner_ms.symbolic.space import DecisionSpace, decision_space
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import Target, TuneContext, ms, te, te_workload
from pruner_ms.tvm_compat.targets import attrs_of

RESULTS = Path(__file__).with_name("results") / "hot_paths.json"
TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
CANDIDATES = 64
ROWS = 4096


@dataclass(frozen=True)
class Task:
    """A task, its closed-form design spaces, and schedules of it that stock replay has made."""

    context: Any
    space: DecisionSpace
    candidates: list[Any]
    traces: list[Any]
    replayer: Replayer


def _context(strategy: str | None = None) -> Any:
    return TuneContext(
        te.create_prim_func(te_workload.matmul(512, 512, 512)),
        target=Target(TARGET),
        space_generator="post-order-apply",
        search_strategy=strategy,
        num_threads=1,
        rand_state=1,
    )


@pytest.fixture(scope="module")
def task() -> Task:
    """The task, made once."""
    import_intrinsics()
    context = _context()
    designs = list(context.generate_design_space())
    space = decision_space(designs, context.mod, context.target)
    replayer = Replayer(context.mod, context.space_generator.postprocs, threads=1)
    traces = [designs[i % len(designs)].trace for i in range(CANDIDATES)]
    results = replayer.replay([(_redrawn(trace), i + 1) for i, trace in enumerate(traces)])
    candidates = [
        ms.search_strategy.MeasureCandidate(r.schedule, []) for r in results if r is not None
    ]
    assert len(candidates) > CANDIDATES // 2
    return Task(context, space, candidates, traces, replayer)


def _redrawn(trace: Any) -> Any:
    """The trace without decisions: replaying it draws new ones, as stock sampling does."""
    return type(trace)(trace.insts, {})


@pytest.fixture(scope="module")
def ratios() -> Iterator[dict[str, dict[str, float]]]:
    """What is written at the end: seconds per candidate, ours and stock, and their ratio."""
    table: dict[str, dict[str, float]] = {}
    yield table
    if table:
        RESULTS.parent.mkdir(exist_ok=True)
        text = json.dumps({"machine": fingerprint(), "seconds_per_candidate": table}, indent=2)
        RESULTS.write_text(text + "\n", encoding="utf-8")


def _fastest(call: Callable[[], int], repeats: int = 3) -> float:
    """Seconds per candidate, the fastest of a few calls; `call` returns how many it handled."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        count = call()
        seconds.append((time.perf_counter() - start) / count)
    return min(seconds)


def _compare(
    benchmark: Any,
    ratios: dict[str, dict[str, float]],
    name: str,
    ours: Callable[[], int],
    stock: Callable[[], int],
) -> None:
    benchmark.pedantic(ours, rounds=3, warmup_rounds=1)
    row = {"ours": _fastest(ours), "stock": _fastest(stock)}
    row["stock_over_ours"] = row["stock"] / row["ours"]
    benchmark.extra_info.update(row)
    ratios[name] = row


def _stock_replay(task: Task) -> int:
    return len(task.replayer.replay([(_redrawn(t), i + 1) for i, t in enumerate(task.traces)]))


def _stock_features(task: Task) -> int:
    extractor = ms.feature_extractor.PerStoreFeature()
    return len(extractor.extract_from(task.context, task.candidates))


def test_scoring_a_draft(benchmark, task, ratios):
    """Interpret and score decision rows; stock replays a candidate and extracts its features."""
    hardware = hardware_for(attrs_of(task.context.target))
    rng = np.random.default_rng(0)
    rows = {s.index: s.sample(ROWS, rng) for s in task.space.sketches if s.closed}

    def ours() -> int:
        for sketch in task.space.sketches:
            if sketch.closed:
                draft(sketch.program(rows[sketch.index]), hardware)
        return ROWS * len(rows)

    def stock() -> int:
        _stock_features(task)
        return _stock_replay(task)

    _compare(benchmark, ratios, "score a draft", ours, stock)


def test_exploring(benchmark, task, ratios):
    """One draft search, all that it does; stock replays a candidate and extracts its features."""
    hardware = hardware_for(attrs_of(task.context.target))
    config = SearchConfig()

    def ours() -> int:
        rng = np.random.default_rng(0)
        return explore(task.space, lambda p: draft(p, hardware), config, (), rng).drafted

    def stock() -> int:
        _stock_features(task)
        return _stock_replay(task)

    _compare(benchmark, ratios, "explore", ours, stock)


def test_features(benchmark, task, ratios):
    """Statement features and tokens of drafts; stock's per-store features of replayed ones."""
    rng = np.random.default_rng(0)
    rows = {s.index: s.sample(ROWS, rng) for s in task.space.sketches if s.closed}

    def ours() -> int:
        for sketch in task.space.sketches:
            if sketch.closed:
                features_of(sketch.program(rows[sketch.index]))
        return ROWS * len(rows)

    _compare(benchmark, ratios, "features", ours, lambda: _stock_features(task))


def _trained(name: str, task: Task, **options: Any) -> Any:
    """A model of that name that has learned the candidates' faked latencies."""
    model = ms.CostModel.create(name, num_tuning_cores=1, tree_method="auto", **options)
    inputs = [ms.builder.BuilderInput(c.sch.mod, task.context.target) for c in task.candidates]
    built = FakeBuilder().build(inputs)
    futures = FakeRunner().run([ms.runner.RunnerInput(b.artifact_path, "llvm", []) for b in built])
    model.update(task.context, task.candidates, [f.result() for f in futures])
    return model


def test_predicting(benchmark, task, ratios):
    """Rank replayed candidates: PaCM against the stock model."""
    ours = _trained("pacm", task)
    stock = _trained("xgb", task, num_warmup_samples=0)  # answers with noise until 100 otherwise

    def predict(model: Any) -> int:
        return len(model.predict(task.context, task.candidates))

    _compare(benchmark, ratios, "predict", lambda: predict(ours), lambda: predict(stock))


def _first_round(strategy: str) -> int:
    context = _context(strategy)
    context.pre_tuning(
        max_trials=CANDIDATES,
        num_trials_per_iter=CANDIDATES,
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(),
    )
    candidates = context.generate_measure_candidates()
    context.post_tuning()
    return len(candidates)


def test_one_round_of_the_strategy(benchmark, task, ratios):
    """From design spaces to candidates ready to build, a constant-time model in both."""
    _compare(
        benchmark,
        ratios,
        "one round",
        lambda: _first_round("pruner"),
        lambda: _first_round("evolutionary"),
    )
