from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pruner_ms
from pruner_ms.draft.explore.explorer import explore
from pruner_ms.errors import OptionError
from pruner_ms.search import drafting, funnels, task
from pruner_ms.search.core import TaskSearch
from pruner_ms.search.drafting import Drafting
from pruner_ms.search.replay import Replayer
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.search.warm_start import records_of_task
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import (
    IRModule,
    Target,
    Trace,
    derived_object,
    ms,
    te,
    te_workload,
)
from pruner_ms.types import valid_latency
from tests.support.operators import TARGETS, context_of, tuning_context
from tests.support.oracle import task_of

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
CUDA = dict(TARGETS["cuda"])
QUICK = {"population": 256, "steps": 2, "spec_size": 64}


@pytest.fixture(scope="module", autouse=True)
def _intrinsics() -> None:
    import_intrinsics()


def matmul(n: int = 64) -> Any:
    return IRModule({"main": te.create_prim_func(te_workload.matmul(n, n, n))})


def tune(work_dir: Path, trials: int = 16, **kwargs: Any) -> Any:
    options: dict[str, Any] = {
        "strategy": PrunerSearch(**QUICK),
        "cost_model": "random",
        "builder": FakeBuilder(),
        "runner": FakeRunner(seconds=0),
        "num_trials_per_iter": 8,
        "seed": 3,
        "num_tuning_cores": 2,
    }
    target = Target(kwargs.pop("target", LLVM))
    mod = kwargs.pop("mod", None) or matmul()
    return ms.tune_tir(mod, target, str(work_dir), trials, **(options | kwargs))


def traces(database: Any) -> list[str]:
    return [str(r.trace) for r in database.get_all_tuning_records()]


@pytest.mark.parametrize("cost_model", ["none", "random", "xgb", "pacm"])
def test_it_fills_its_trials_with_every_cost_model(tmp_path: Path, cost_model: str) -> None:
    database = tune(tmp_path, cost_model=cost_model)
    assert len(database) == 16
    assert len(set(traces(database))) == 16


def test_by_name_the_whole_funnel_is_counted(tmp_path: Path) -> None:
    funnels.reset()
    tune(tmp_path, strategy="pruner", cost_model="pacm")
    (funnel,) = funnels.snapshot().values()
    assert funnel.sketches_closed == 3
    assert funnel.sketches_oracle == 0
    assert funnel.measured == 16
    assert funnel.rounds == 2
    assert funnel.drafted > 1000
    # only what is measured is replayed
    assert funnel.replayed <= 1.5 * funnel.measured


@pytest.mark.parametrize(("stay", "sizes"), [(True, [2, 4, 5, 5]), (False, [3, 8, 5])])
def test_rounds_are_small_where_workers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stay: bool, sizes: list[int]
) -> None:
    batches: list[int] = []

    @derived_object
    class Counting(ms.builder.PyBuilder):  # type: ignore[misc]
        def build(self, build_inputs: Any) -> Any:
            batches.append(len(build_inputs))
            return FakeBuilder().build(build_inputs)

    monkeypatch.setattr(task, "has_persistent_builder", lambda: stay)
    search = PrunerSearch(**QUICK, first_trials=2, round_trials=5, opening_trials=3)
    assert len(tune(tmp_path, strategy=search, builder=Counting())) == 16
    assert batches == sizes


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_first_round_of_few_drafts_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    sizes: list[int] = []

    def explored(space: Any, score: Any, config: Any, *rest: Any) -> Any:
        sizes.append(config.population)
        return explore(space, score, config, *rest)

    monkeypatch.setattr(drafting, "explore", explored)
    monkeypatch.setattr(task, "has_persistent_builder", lambda: True)
    search = PrunerSearch(**QUICK, first_drafts=share, round_trials=4)
    assert len(tune(tmp_path, trials=10, strategy=search)) == 10
    population = QUICK["population"]
    # ten trials are fewer than drafts are kept for
    assert sizes == ([population] if share == 1 else [population // 4, population])


def test_the_funnel_is_in_the_log_of_the_task(tmp_path: Path) -> None:
    tune(tmp_path)
    for handler in list(logging.root.handlers):
        handler.flush()
    text = "".join(p.read_text() for p in (tmp_path / "logs").glob("*task_0_main.log"))
    assert "round 1: drafted" in text
    assert "measured" in text


def test_the_same_seed_gives_the_same_candidates_at_any_number_of_threads(tmp_path: Path) -> None:
    runs = {
        threads: traces(
            tune(tmp_path / str(threads), num_tuning_cores=threads, cost_model="pacm", trials=24)
        )
        for threads in (1, 2, 8)
    }
    assert runs[1] == runs[2] == runs[8]
    assert traces(tune(tmp_path / "other", seed=4, cost_model="pacm", trials=24)) != runs[1]


def test_a_second_call_measures_no_trace_again(tmp_path: Path) -> None:
    first = set(traces(tune(tmp_path, cost_model="pacm")))
    again = traces(tune(tmp_path, cost_model="pacm"))
    assert len(again) == 32
    assert len(set(again)) == 32
    assert first < set(again)


@pytest.mark.parametrize("target", [LLVM, CUDA], ids=["llvm", "cuda"])
def test_a_second_call_measures_no_module_again(tmp_path: Path, target: dict[str, Any]) -> None:
    """Elementwise operations have no sums to unroll: decisions on that make one and the same."""
    a = te.placeholder((512, 64), name="a")
    func = te.create_prim_func([a, te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="b")])
    mod, runner = IRModule({"main": func}), FakeRunner(seconds=0)
    for _ in range(2):  # the first call measures all that there is
        tune(tmp_path, mod=mod, runner=runner, trials=32, num_trials_per_iter=1, target=target)
        assert 1 <= len(runner.ran) == len(set(runner.ran)) < 32


def test_failures_of_an_earlier_call_are_not_new_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[list[float]] = []
    own = Drafting.learn
    tune(tmp_path, builder=FakeBuilder(fail=0.5), trials=16, cost_model="none")

    def learn(self: Drafting, program: Any, latencies: Any) -> None:
        noted.append([float(x) for x in latencies])
        own(self, program, latencies)

    monkeypatch.setattr(Drafting, "learn", learn)
    tune(tmp_path, trials=1, num_trials_per_iter=1, cost_model="pacm")
    recalled = [x for some in noted[:-1] for x in some]
    assert len(recalled) == 15 and 2 <= int(np.isnan(recalled).sum()) <= 14


@pytest.mark.parametrize("kind", ["vulkan", "metal", "opencl", "rocm"])
def test_gpus_of_other_makers_are_searched_by_replay(tmp_path: Path, kind: str) -> None:
    funnels.reset()
    limits = {"max_threads_per_block": 256, "thread_warp_size": 32}
    target = {"kind": kind, **limits, "max_shared_memory_per_block": 32768}
    database = tune(tmp_path, target=target, trials=4, num_trials_per_iter=4)
    (funnel,) = funnels.snapshot().values()
    assert len(database) == 4 and funnel.sketches_closed == 0 < funnel.sketches_oracle


def test_a_second_call_meets_no_repaired_location_again(tmp_path: Path) -> None:
    mod = IRModule({"main": te.create_prim_func(te_workload.conv2d_nhwc(1, 8, 8, 4, 4, 3, 1, 1))})
    for _ in range(3):
        texts = traces(tune(tmp_path, mod=mod, trials=32, num_trials_per_iter=16))
    assert len(texts) == 96
    assert len(set(texts)) == 96


def test_records_of_a_stock_search_are_reused(tmp_path: Path) -> None:
    stock = tune(tmp_path, strategy="replay-trace")
    records = records_of_task(stock, matmul(), Target(LLVM))
    assert len(records) == 16
    again = traces(tune(tmp_path))
    assert len(set(again)) == len(again) == 32


def test_records_of_another_target_are_not_reused(tmp_path: Path) -> None:
    database = tune(tmp_path)
    assert records_of_task(database, matmul(), Target({**LLVM, "num-cores": 1})) == []
    assert records_of_task(database, matmul(128), Target(LLVM)) == []


def test_a_run_that_failed_whole_keeps_nothing_from_being_tried_again(tmp_path: Path) -> None:
    first = traces(tune(tmp_path, cost_model="none", builder=FakeBuilder(fail=1.0)))
    again = traces(tune(tmp_path, cost_model="none"))
    assert len(again) == 32 and set(first) <= set(again)
    # the drafts that are best with nothing known are measured now
    assert len(set(again)) <= 24


def test_few_failures_are_gone_by_unless_nothing_ran_at_all(tmp_path: Path) -> None:
    broken: dict[str, Any] = {"builder": FakeBuilder(fail=1.0), "num_trials_per_iter": 4}
    database = tune(tmp_path, trials=4, **broken)
    assert [one.latency for one in records_of_task(database, matmul(), Target(LLVM))] == [None] * 4
    database = tune(tmp_path, trials=4, mod=matmul(32), **broken)
    assert records_of_task(database, matmul(), Target(LLVM)) == []
    database = tune(tmp_path, trials=4, mod=matmul(16))
    assert len(records_of_task(database, matmul(), Target(LLVM))) == 4


def test_failed_and_impossible_latencies_teach_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = iter([float("nan"), 0.0, float("inf"), -1.0] * 8)
    funnels.reset()
    told: list[float | None] = []
    own = TaskSearch.tell

    def tell(self: TaskSearch, sketch: int, row: Any, key: bytes, latency: float | None) -> None:
        told.append(latency)
        own(self, sketch, row, key, latency)

    monkeypatch.setattr(TaskSearch, "tell", tell)
    database = tune(tmp_path, runner=FakeRunner(latency=lambda _: next(bad), seconds=0))
    assert len(database) == 16 and told == [None] * 15  # and the untuned function
    (funnel,) = funnels.snapshot().values()
    assert funnel.failed == 16
    for value in ([float("nan")], [0.0], [], [1e10], [float("inf")], [-1.0], None):
        assert valid_latency(value) is None
    assert valid_latency([1.0, 3.0]) == 2.0


def test_builds_that_fail_do_not_stop_the_search(tmp_path: Path) -> None:
    funnels.reset()
    database = tune(tmp_path, builder=FakeBuilder(fail=0.5), trials=24, cost_model="pacm")
    (funnel,) = funnels.snapshot().values()
    assert funnel.measured == 24
    assert 4 <= funnel.failed <= 20
    assert len(database) == 24


def opened(space: Any) -> Any:
    """A decision space that has lost its closed forms."""
    for sketch in space:
        sketch.compiled, sketch.reason = None, "taken away by a test"
    return space


@pytest.mark.parametrize("cost_model", ["random", "pacm"])
def test_what_is_not_closed_form_falls_back_to_the_oracle(
    tmp_path: Path, cost_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.search import task

    read = task.decision_space
    monkeypatch.setattr(task, "decision_space", lambda *args: opened(read(*args)))
    funnels.reset()
    database = tune(
        tmp_path,
        trials=8,
        num_trials_per_iter=4,
        target=CUDA,
        mod=matmul(128),
        cost_model=cost_model,
    )
    (funnel,) = funnels.snapshot().values()
    assert len(set(traces(database))) == 8
    assert funnel.sketches_oracle == 3
    assert funnel.rejected > 0
    assert funnel.replayed > funnel.measured


def test_cuda_is_drafted_before_any_replay(tmp_path: Path) -> None:
    funnels.reset()
    database = tune(tmp_path, target=CUDA, mod=matmul(128), cost_model="pacm")
    (funnel,) = funnels.snapshot().values()
    assert len(set(traces(database))) == 16
    assert (funnel.sketches_closed, funnel.sketches_oracle) == (3, 0)
    assert funnel.drafted > 1000
    assert funnel.invalid > funnel.drafted / 2
    # of random candidates nine in ten are refused
    assert funnel.rejected <= 0.1 * funnel.replayed


def test_rows_without_a_closed_form_are_said(tmp_path: Path) -> None:
    funnels.reset()
    tune(tmp_path, mod=tuning_context("conv2d_transposed", "llvm")[0].mod)
    (funnel,) = funnels.snapshot().values()
    assert 0 < funnel.unsupported < funnel.drafted - funnel.invalid
    assert f"unsupported {funnel.unsupported:,}" in funnel.line()


def test_a_space_smaller_than_the_budget_ends_the_task(tmp_path: Path) -> None:
    database = tune(tmp_path, trials=64, mod=matmul(1))
    texts = traces(database)
    assert 0 < len(texts) < 64
    assert len(set(texts)) == len(texts)


def test_unknown_knobs_are_refused() -> None:
    with pytest.raises(OptionError, match=r"popualtion.*population"):
        PrunerSearch(popualtion=3)
    with pytest.raises(OptionError, match="call pre_tuning first"):
        PrunerSearch().generate_measure_candidates()


def test_the_public_name_is_the_strategy() -> None:
    assert pruner_ms.PrunerSearch is PrunerSearch
    assert isinstance(ms.search_strategy.SearchStrategy.create("pruner"), PrunerSearch)


def test_replayed_rows_come_back_as_the_same_rows() -> None:
    from pruner_ms.symbolic.space import decision_space

    mod, target = matmul(), Target(LLVM)
    context = ms.TuneContext(mod, target=target, space_generator="post-order-apply", num_threads=1)
    space = decision_space(context.generate_design_space(), mod, target)
    sketch = space[0]
    for row in sketch.sample(8, np.random.default_rng(0)):
        trace = sketch.trace_of(row)
        assert isinstance(trace, Trace)
        position = space.find(sketch.replay(row).trace)
        assert position is not None
        assert position[0] == 0
        np.testing.assert_array_equal(position[1], row)


def test_locations_that_only_a_replay_knows_are_drawn_as_tvm_draws_them() -> None:
    from pruner_ms.symbolic.primitives.trace import UNDECIDED
    from pruner_ms.symbolic.space import decision_space

    mod = IRModule({"main": te.create_prim_func(te_workload.softmax_mn(16, 64))})
    target = Target(LLVM)
    context = ms.TuneContext(mod, target=target, space_generator="post-order-apply", num_threads=1)
    space = opened(decision_space(context.generate_design_space(), mod, target))
    rng = np.random.default_rng(0)
    placed = [s for s in space if not s.closed and s.choices.places]
    assert placed
    for sketch in placed:
        (row,) = sketch.sample(1, rng)
        assert UNDECIDED in row
        repaired = sketch.row_of(sketch.replay(row).trace)
        assert repaired is not None
        assert UNDECIDED not in repaired


def test_what_the_closed_form_has_judged_is_not_lowered_for_a_verdict() -> None:
    """VerifyGPUCode is left out for rows that are known to keep the limits, and only for them."""
    context, designs = context_of(lambda: te_workload.matmul(128, 128, 128), "cuda")
    oracle_task = task_of(context, designs)
    sketch = oracle_task.space[0]
    rows = sketch.sample(512, np.random.default_rng(0))
    valid = sketch.program(rows).gpu.valid
    good, bad = ([(sketch.trace_of(r), 1) for r in rows[w][:6]] for w in (valid, ~valid))
    replayer = Replayer(context.mod, oracle_task.postprocs, threads=1)
    plain, judged = (list(replayer.stream(good, judged=j)) for j in (False, True))
    assert [one.key for one in plain] == [one.key for one in judged]
    assert not any(replayer.stream(bad))
    assert all(replayer.stream(bad, judged=True))
