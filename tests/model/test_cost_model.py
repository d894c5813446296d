"""The adapter inside MetaSchedule: stock strategies, bare wrappers, odd results."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from pruner_ms.errors import OptionError, WeightsError
from pruner_ms.model.cost_model import PaCMModel, live_model
from pruner_ms.model.kinds import kind_of
from pruner_ms.model.weights import Weights, load_weights, save_weights
from pruner_ms.symbolic.oracle.lowered import read
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
    measure_candidates = []
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
        measure_candidates.append(MeasureCandidate(schedule, args))
    return measure_candidates


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
    old, new = live_model(model).verifier, live_model(again).verifier
    for name, tensor in old.tensors().items():
        np.testing.assert_array_equal(tensor, new.tensors()[name], err_msg=name)
    assert new.trained.share_of("any task") == old.trained.share_of("another")
    # what the task itself taught about how far to believe the network stays behind
    ranks = [np.argsort(np.argsort(m.predict(context, candidates))) for m in (model, again)]
    assert np.corrcoef(*ranks)[0, 1] > 0.9
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


@pytest.mark.heavy
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


@pytest.fixture(scope="module")
def weights(context, candidates, tmp_path_factory):
    model = PaCMModel(seed=1)
    model.update(context, candidates, results_of(context, candidates))
    path = tmp_path_factory.mktemp("weights") / "llvm.safetensors"
    model.save(str(path))
    return path


def test_modes_by_name_and_by_weights(weights):
    create = ms.cost_model.CostModel.create
    with pytest.raises(OptionError, match=r"mode='moa'.*pruner-ms train"):
        create("moa-pacm", weights=None, num_tuning_cores=1)
    for mode in ("offline", "finetune", "moa"):
        with pytest.raises(OptionError, match=f"mode='{mode}'"):
            PaCMModel(mode=mode)
        assert live_model(PaCMModel(weights, mode=mode)).mode == mode
    moa = live_model(create("moa-pacm", weights=weights, moa="published"))
    assert moa.mode == "moa" and moa.verifier.momentum.every == 4 and moa.ready()
    assert live_model(PaCMModel(weights)).mode == "finetune"
    with pytest.raises(OptionError, match="published"):
        PaCMModel(weights, mode="moa", moa="none such")


def test_offline_stays_as_it_was(context, candidates, weights):
    model = PaCMModel(weights, mode="offline")
    before = model.predict(context, candidates)
    model.update(context, candidates, results_of(context, candidates))
    np.testing.assert_array_equal(before, model.predict(context, candidates))


@pytest.mark.heavy
def test_the_published_model_by_name(context, candidates, tmp_path):
    model = PaCMModel(arch="published", recipe="published")
    model.update(context, candidates, results_of(context, candidates))
    scores = model.predict(context, candidates)
    assert (scores > 0).all() and np.ptp(scores) > 0
    model.save(str(tmp_path / "w"))
    again = PaCMModel(tmp_path / "w")
    np.testing.assert_allclose(again.predict(context, candidates), scores, rtol=1e-6)
    assert not live_model(again).verifier.recipe.corrects


@pytest.mark.heavy
def test_weights_of_another_target_rank_by_the_draft_and_say_so_once(
    context, candidates, weights, caplog
):
    loaded = load_weights(weights)
    assert loaded.card["target_kinds"] == ["llvm"]
    others = {"cuda": {"target_kinds": ["cuda"]}, "do not name": {}, "damaged": {"target_kinds": 3}}
    expected = PaCMModel().predict(context, candidates)
    for name, said in others.items():
        card = {"believed": loaded.card["believed"], **said}
        save_weights(weights.with_name(name), Weights(loaded.arch, loaded.tensors, card))
        model = PaCMModel(weights.with_name(name))
        caplog.clear()
        for _ in range(2):
            np.testing.assert_allclose(model.predict(context, candidates), expected)
        model.update(context, candidates, results_of(context, candidates))
        key = task_key(context.mod, context.target)
        program = read(candidates[5].sch.mod, context.target)
        assert (live_model(model).uncertainty(key, program) == 0).all()
        live_model(model).observe(key, program, [1.0])
        np.testing.assert_allclose(model.predict(context, candidates), expected)
        assert len(caplog.records) == 1 and "llvm" in caplog.text
        assert len(live_model(model).verifier.records) == 0
    assert kind_of('x@{"kind":"cuda"}') == "cuda" and kind_of("t") == ""
    assert kind_of('x@{"kind":"cuda"}', fragments=True) == "cuda-tensorcore"


def test_weights_of_another_network_are_refused_with_their_name(weights):
    loaded = load_weights(weights)
    save_weights(weights.with_name("tlp"), Weights("tlp", loaded.tensors))
    with pytest.raises(WeightsError, match=r"'tlp'.*compact"):
        PaCMModel(weights.with_name("tlp"))
    with pytest.raises(WeightsError, match="arch='compact'"):
        PaCMModel(weights, arch="wide")


def test_uncertainty_is_there_for_the_picker(context, candidates, weights):
    model = live_model(PaCMModel(weights))
    key = task_key(context.mod, context.target)
    uncertainty = model.uncertainty(key, read(candidates[0].sch.mod, context.target))
    assert uncertainty.shape == (1,) and np.isfinite(uncertainty).all() and (uncertainty >= 0).all()
