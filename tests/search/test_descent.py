"""The neighbours of the best schedule are measured until none is faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.config import SearchConfig
from pruner_ms.search import funnels
from pruner_ms.search.descent import Descent, Point, is_faster, p_value
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.symbolic.space import decision_space
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import IRModule, Target, TuneContext, ms, te, te_workload
from pruner_ms.types import valid_latency

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
QUICK = {"population": 256, "steps": 2, "spec_size": 64}


def test_probabilities_are_those_of_all_ways_to_share_out() -> None:
    assert p_value([4, 5, 6], [1, 2, 3]) == 1 / 20
    assert p_value([1, 2, 3], [4, 5, 6]) == 1.0
    assert p_value([2, 2], [2, 2]) == 1.0
    # of the six ways two have a difference of 2 or more
    assert p_value([5, 2], [1, 4]) == 2 / 6


def test_of_many_repeats_the_deviate_is_near_the_permutations() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(1.0, 0.1, 400), rng.normal(0.99, 0.1, 400)
    means = []
    both = np.concatenate([a, b])
    for _ in range(4000):
        mixed = rng.permutation(both)
        means.append(mixed[:400].mean() - mixed[400:].mean())
    share = float(np.mean(np.array(means) >= a.mean() - b.mean()))
    assert abs(p_value(a.tolist(), b.tolist()) - share) < 0.02


@pytest.mark.parametrize(
    ("one", "incumbent", "faster"),
    [
        ([0.98], [1.0], True),
        ([0.995], [1.0], False),  # a hundredth at least, where nothing can be tested
        ([0.97, 0.98, 0.99], [1.0, 1.01, 1.02], True),
        ([0.97, 0.98, 1.03], [1.0, 1.01, 1.02], False),
        ([1.1], [1.0], False),
    ],
)
def test_a_neighbour_is_faster_beyond_chance(
    one: list[float], incumbent: list[float], faster: bool
) -> None:
    assert is_faster(one, incumbent, 0.05) == faster


def place(*row: int) -> Point:
    return Point(0, np.array(row))


def test_the_descent_is_due_after_trials_without_a_gain_and_within_its_share() -> None:
    config = SearchConfig(descent_share=0.5, descent_after=8)
    descent = Descent()
    assert not descent.due(config, None, 20, 20)
    assert not descent.due(config, place(1), 20, 7)
    assert descent.due(config, place(1), 20, 8)
    assert not descent.due(SearchConfig(), place(1), 20, 8)
    descent.start(place(1))
    assert descent.due(config, place(1), 20, 0), "it goes on while there is an incumbent"
    descent.measured = 11
    assert not descent.due(config, place(1), 20, 8)
    descent.measured = 0
    descent.end()
    assert not descent.due(config, place(1), 20, 8)
    assert descent.due(config, place(2), 20, 8)


def test_the_fastest_neighbour_takes_the_incumbent_s_place() -> None:
    descent = Descent()
    descent.start(place(1))
    batch = [(place(2), [0.9]), (place(3), [0.8]), (place(4), []), (place(1), [1.0])]
    assert descent.settle(batch, 0.05)
    assert descent.incumbent is not None
    assert descent.incumbent.same(place(3))
    # the incumbent's own seconds of this batch count, not those of another
    assert not descent.settle([(place(5), [0.9]), (place(3), [0.85])], 0.05)
    assert not descent.settle([(place(5), [0.1])], 0.05)


def matmul(n: int) -> Any:
    return IRModule({"main": te.create_prim_func(te_workload.matmul(n, n, n))})


def tune(work_dir: Path, trials: int, runner: Any = None, **knobs: Any) -> Any:
    import_intrinsics()
    return ms.tune_tir(
        matmul(16),
        Target(LLVM),
        str(work_dir),
        trials,
        num_trials_per_iter=16,
        strategy=PrunerSearch(**QUICK, **knobs),
        cost_model=ms.cost_model.RandomModel(seed=0),  # by name it has no seed
        builder=FakeBuilder(),
        runner=runner or FakeRunner(seconds=0),
        seed=3,
        num_tuning_cores=2,
    )


def test_it_ends_where_no_neighbour_is_faster(tmp_path: Path) -> None:
    funnels.reset()
    begun = tune(tmp_path, 8, untuned=False)
    before = len(begun.get_all_tuning_records())
    begun_with = min(float(record.run_secs[0]) for record in begun.get_all_tuning_records())
    database = tune(tmp_path, 600, untuned=False, descent_share=1.0, descent_after=0)
    records = database.get_all_tuning_records()
    assert before < len(records) < 600 + before
    target = Target(LLVM)
    context = TuneContext(
        matmul(16),
        target=target,
        space_generator="post-order-apply",
        search_strategy="evolutionary",
    )
    space = decision_space(context.generate_design_space(), matmul(16), target)
    best = min(records, key=lambda record: valid_latency(record.run_secs) or np.inf)
    sketch, row = space.find(best.trace)
    measured = {space[i].key(r[None])[0] for i, r in (space.find(one.trace) for one in records)}
    near = space[sketch].key(space[sketch].neighbours(row))
    assert len(near) > 4
    # the others make a module that was measured already
    assert np.mean([key in measured for key in near]) > 0.8
    (funnel,) = funnels.snapshot().values()
    gained = float(best.run_secs[0]) < begun_with
    assert funnel.origin == ("descent" if gained else "")


def test_it_has_its_share_and_the_search_goes_on(tmp_path: Path) -> None:
    runner = FakeRunner(seconds=0)
    database = tune(tmp_path, 64, runner, untuned=False, descent_share=0.25, descent_after=4)
    repeated = len(runner.ran) - len(set(runner.ran))
    assert len(database.get_all_tuning_records()) == 64
    assert 1 <= repeated <= 4, "the incumbent, once a batch"


def test_repeats_that_fail_end_nothing(tmp_path: Path) -> None:
    runner = FakeRunner(seconds=0, fail=0.5)
    tune(tmp_path, 64, runner, untuned=False, descent_share=0.5, descent_after=4)
    assert len(runner.ran) == 64
