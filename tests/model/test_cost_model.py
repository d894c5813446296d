"""The adapter inside MetaSchedule: stock strategies, bare wrappers, odd results."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from pruner_ms.errors import OptionError, WeightsError
from pruner_ms.model.cost_model import PaCMModel, live_model
from pruner_ms.symbolic.lowered import read
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import (
    ArgInfo,
    MeasureCandidate,
    Schedule,
    Target,
    Trace,
    derived_object,
    ms,
    task_key,
    te,
    te_workload,
)

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}


@pytest.fixture(scope="module")
def context():
    import_intrinsics()
    mod = te.create_prim_func(te_workload.matmul(64, 64, 64))
    return ms.TuneContext(
        mod,
        target=Target(TARGET),
        space_generator="post-order-apply",
        search_strategy=None,
        rand_state=1,
    )


@pytest.fixture(scope="module")
def candidates(context):
    found = []
    postprocs = None
    spaces = [s.trace.simplified(True) for s in context.generate_design_space()]
    postprocs = list(context.space_generator.postprocs)
    for seed in range(1, 25):
        schedule = Schedule(context.mod, seed=seed)
        Trace(spaces[seed % len(spaces)].insts, {}).apply_to_schedule(
            schedule, remove_postproc=True
        )
        schedule.enter_postproc()
        assert all(p.apply(schedule) for p in postprocs)
        args = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        found.append(MeasureCandidate(schedule, args))
    return found


def results_of(context, candidates):
    model = PaCMModel()
    guess = model.predict(context, candidates)
    noise = np.random.default_rng(0).lognormal(0, 0.2, len(candidates))
    return [ms.runner.RunnerResult([float(s)] * 2, None) for s in noise / guess]


def test_untrained_it_ranks_by_the_draft(context, candidates):
    scores = PaCMModel().predict(context, candidates)
    assert scores.dtype == np.float64 and (scores > 0).all() and np.ptp(scores) > 0
    blind = PaCMModel(use_draft=False).predict(context, candidates)
    assert (blind == blind[0]).all()


def test_it_learns_from_results_and_scores_programs_alike(context, candidates):
    model = PaCMModel(seed=2)
    results = results_of(context, candidates)
    results[3] = ms.runner.RunnerResult(None, "failed to run")
    model.update(context, candidates, results)
    model.update(context, [], [])
    assert live_model(model).ready()
    scores = model.predict(context, candidates)
    assert np.isfinite(scores).all() and (scores > 0).all()
    key = task_key(context.mod, context.target)
    program = read(candidates[5].sch.mod, context.target)
    one = live_model(model).score(key, program, np.array([1.0]))
    np.testing.assert_allclose(one, scores[5:6], rtol=1e-3)
    assert "records=24" in str(live_model(model))


def test_observing_a_program_is_updating_with_its_candidates(context, candidates):
    results = results_of(context, candidates)
    seconds = [float(np.mean([float(x) for x in r.run_secs])) for r in results]
    key = task_key(context.mod, context.target)
    one, other = PaCMModel(), PaCMModel()
    one.update(context, candidates, results)
    for candidate, latency in zip(candidates, seconds, strict=True):
        other.observe(key, read(candidate.sch.mod, context.target), [latency])
    np.testing.assert_allclose(
        one.predict(context, candidates), other.predict(context, candidates), rtol=1e-9
    )


def test_weights_travel(context, candidates, tmp_path):
    model = PaCMModel(seed=1)
    model.update(context, candidates, results_of(context, candidates))
    path = str(tmp_path / "w.safetensors")
    model.save(path)
    again = PaCMModel(weights=path)
    assert live_model(again).ready()
    order = np.argsort(model.predict(context, candidates))
    np.testing.assert_array_equal(order, np.argsort(again.predict(context, candidates)))
    (tmp_path / "bad").write_bytes(b"\x80\x04]\x94.")
    with pytest.raises(WeightsError, match="bad"):
        PaCMModel(weights=tmp_path / "bad")
    with pytest.raises(OptionError, match="regression"):
        PaCMModel(loss="none such")


def test_a_bare_wrapper_finds_its_python_object_and_only_its_own(context):
    seen = []

    @derived_object
    class Looks(ms.search_strategy.PySearchStrategy):
        def _initialize_with_tune_context(self, context):
            pass

        def pre_tuning(self, max_trials, per_iter, spaces, database, cost_model):
            seen.append((hasattr(cost_model, "_inst"), live_model(cost_model)))

        def generate_measure_candidates(self):
            return None

        def notify_runner_results(self, candidates, results):
            pass

        def post_tuning(self):
            pass

        def clone(self):
            return Looks()

    models = [PaCMModel(), PaCMModel()]
    strategy = Looks()
    database = ms.database.MemoryDatabase()
    for model in (*models, ms.cost_model.RandomModel()):
        strategy.pre_tuning(1, 1, [], database, model)
    assert [m for _, m in seen] == [models[0]._inst, models[1]._inst, None]
    assert live_model(None) is None
    inner = models[0]._inst
    assert live_model(inner) is inner


@pytest.mark.timeout(120)
def test_stock_evolutionary_search_tunes_with_it(tmp_path, context):
    mod = te.create_prim_func(te_workload.matmul(64, 64, 64)).with_attr("global_symbol", "main")
    model = PaCMModel()
    database = ms.tune_tir(
        mod=mod,
        target=Target(TARGET),
        work_dir=str(tmp_path),
        max_trials_global=20,
        num_trials_per_iter=10,
        builder=FakeBuilder(),
        runner=FakeRunner(fail=0.1),
        cost_model=model,
        strategy=ms.search_strategy.EvolutionarySearch(
            population_size=24, init_min_unmeasured=8, genetic_num_iters=1
        ),
        seed=3,
    )
    assert len(database) == 20
    assert len(live_model(model).verifier.records) == 20 and live_model(model).ready()
