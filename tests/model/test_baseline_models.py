"""The baselines as MetaSchedule cost models: by name, with every strategy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from pruner_ms.errors import EnvironmentFault, OptionError
from pruner_ms.model import backend
from pruner_ms.model.baselines import ranker
from pruner_ms.model.baselines.cost_model import MTLTLPModel, TenSetMLPModel, TLPModel
from pruner_ms.model.baselines.stock import StockMLP, Task
from pruner_ms.model.cost_model import live_model
from pruner_ms.model.trust import concordance
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import (
    ArgInfo,
    MeasureCandidate,
    Schedule,
    Target,
    Trace,
    ms,
    te,
    te_workload,
)

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
CLASSES = {"tensetmlp": TenSetMLPModel, "tlp": TLPModel, "mtl-tlp": MTLTLPModel}


@pytest.fixture(scope="module")
def task():
    import_intrinsics()
    context = ms.TuneContext(
        te.create_prim_func(te_workload.matmul(64, 64, 64)),
        target=Target(TARGET),
        space_generator="post-order-apply",
        search_strategy=None,
        num_threads=1,
        rand_state=1,
    )
    design = context.generate_design_space()[-1].trace.simplified(True)
    postprocs = list(context.space_generator.postprocs)
    candidates = []
    for seed in range(1, 21):
        schedule = Schedule(context.mod, seed=seed)
        Trace(design.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        assert all(p.apply(schedule) for p in postprocs)
        args = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        candidates.append(MeasureCandidate(schedule, args))
    return context, candidates


def results(count):
    seconds = np.random.default_rng(0).lognormal(0, 1, count)
    runner_results = [ms.runner.RunnerResult([float(s)] * 2, None) for s in seconds]
    runner_results[2] = ms.runner.RunnerResult(None, "failed to run")
    return runner_results, np.where(np.arange(count) == 2, np.inf, seconds)


@pytest.mark.heavy
@pytest.mark.parametrize("name", tuple(CLASSES))
def test_it_learns_by_name_what_is_measured(name, task, tmp_path):
    context, candidates = task
    model = ms.CostModel.create(name, num_tuning_cores=1, tree_method="auto", seed=2)
    assert (model.predict(context, candidates) == 1).all()
    said, seconds = results(len(candidates))
    model.update(context, candidates, said)
    model.update(context, [], [])
    scores = model.predict(context, candidates)
    assert scores.dtype == np.float64 and (scores > 0).all()
    assert concordance(scores, seconds) > 0.8
    np.testing.assert_allclose(model.predict(context, candidates[4:5]), scores[4:5], rtol=1e-4)
    assert len(model._inst.predict(context, [])) == 0
    assert live_model(model) is None  # a strategy of ours replays what it ranks
    path = str(tmp_path / "w.safetensors")
    model.save(path)
    frozen = CLASSES[name](weights=path, mode="offline")
    frozen.update(context, candidates, said[::-1])
    np.testing.assert_array_equal(frozen.predict(context, candidates), scores)
    # with weights, "online" goes on from them: the same as "finetune"
    both = [CLASSES[name](weights=path, mode=mode) for mode in ("online", "finetune", None)]
    for one in both:
        np.testing.assert_array_equal(one.predict(context, candidates), scores)
        one.update(context, candidates, said[::-1])
    after = [one.predict(context, candidates) for one in both]
    assert (after[0] != scores).any()
    np.testing.assert_array_equal(after, [after[0]] * 3)


def test_options_are_checked(monkeypatch):
    with pytest.raises(OptionError, match="mode='offline' starts from pretrained weights"):
        TLPModel(mode="offline")
    with pytest.raises(OptionError, match="no mode 'momentum'"):
        TenSetMLPModel(mode="momentum")
    model = MTLTLPModel(heads=["a", "b"], target="b")
    assert model._inst.baseline.heads == ["a", "b"] and model._inst.baseline.target == "b"
    monkeypatch.setattr(backend, "find_spec", lambda _: None)
    for name in CLASSES:
        with pytest.raises(EnvironmentFault, match=f"cost_model='{name}' needs torch"):
            ms.CostModel.create(name)


@pytest.mark.parametrize("strategy", ["evolutionary", "pruner"])
def test_strategies_tune_with_it(strategy, tmp_path, monkeypatch):
    design = ranker.DESIGNS["tlp"]
    short = replace(design, steps=replace(design.steps, steps=12, more_steps=6))
    monkeypatch.setattr(ranker, "DESIGNS", {"tlp": short})
    small = {"population_size": 24, "init_min_unmeasured": 8, "genetic_num_iters": 1}
    stock = ms.search_strategy.EvolutionarySearch(**small)
    model = TLPModel()
    database = ms.tune_tir(
        mod=te.create_prim_func(te_workload.matmul(64, 64, 64)).with_attr("global_symbol", "main"),
        target=Target(TARGET),
        work_dir=str(tmp_path),
        max_trials_global=20,
        num_trials_per_iter=10,
        builder=FakeBuilder(),
        runner=FakeRunner(fail=0.1),
        cost_model=model,
        strategy=stock if strategy == "evolutionary" else strategy,
        seed=3,
    )
    assert len(database) == 20
    assert len(model._inst.baseline.records) == 20 and model._inst.baseline.ready()


def test_the_stock_torch_model_is_driven_on_one_task():
    rng = np.random.default_rng(0)
    rows = [np.zeros((3, 172), np.float32) for _ in range(129)]
    for one in rows:
        one[:, :6] = rng.random((3, 6))
    seconds = np.exp([4 * one[:, 3].sum() for one in rows])
    seconds[5] = np.inf
    train_rows = rows[:65]
    models = [StockMLP(seed) for seed in (1, 1, 2)]
    for model in models:
        model.fit([Task("t", train_rows, seconds[:65])])
    scores = [model.score(rows[65:]) for model in models]
    assert concordance(scores[0], seconds[65:]) > 0.6
    np.testing.assert_array_equal(scores[0], scores[1])
    assert (scores[0] != scores[2]).any()
    assert models[0].score(rows[:1]).shape == (1,)
    assert models[0].score(rows).shape == (129,)
