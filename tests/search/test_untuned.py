"""The untuned function among the trials of a search by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.errors import OptionError
from pruner_ms.search import task, untuned
from pruner_ms.search.strategy import PrunerSearch
from pruner_ms.search.untuned import may_win
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner, hash_latency
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import (
    IRModule,
    Schedule,
    Target,
    Trace,
    derived_object,
    module_key,
    ms,
    plain,
    prim_func,
    te,
    te_workload,
)
from pruner_ms.tvm_compat.untuned import is_untuned
from tests.support.operators import TARGETS

LLVM, CUDA = (
    Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}),
    Target(dict(TARGETS["cuda"])),
)
QUICK: dict[str, Any] = {"population": 256, "steps": 2, "spec_size": 64}
MOD = IRModule({"main": te.create_prim_func(te_workload.matmul(64, 64, 64))})


@pytest.fixture(scope="module", autouse=True)
def _intrinsics() -> None:
    import_intrinsics()


class Batches:
    """Searches by name; of each batch, which candidates are the untuned function."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[list[bool]] = []

    def tune(self, trials: int, seconds: float = 1e-2, **more: Any) -> Any:
        batches: list[list[bool]] = []

        @derived_object
        class Counting(ms.builder.PyBuilder):  # type: ignore[misc]
            def build(self, build_inputs: Any) -> Any:
                batches.append([module_key(i.mod) == module_key(MOD) for i in build_inputs])
                return FakeBuilder().build(build_inputs)

        def latency(mod: Any) -> float:
            return seconds if module_key(mod) == module_key(MOD) else hash_latency(mod)

        knobs = more.pop("knobs", {})
        parts = {
            "strategy": PrunerSearch(**QUICK, first_trials=2, **knobs),
            "cost_model": "none",
            "builder": Counting(),
            "runner": FakeRunner(latency, seconds=0),
            "num_trials_per_iter": 8,
            "num_tuning_cores": 2,
        }
        database = ms.tune_tir(MOD, LLVM, str(self.path), trials, **(parts | more))
        self.seen = batches
        return database


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Batches:
    monkeypatch.setattr(task, "has_persistent_builder", lambda: True)
    return Batches(tmp_path)


@pytest.mark.parametrize(
    ("trials", "seen"),
    [
        (1, [[False]]),
        (2, [[False, True]]),
        (3, [[False, False], [True]]),
        (7, [[False, False], [False, False, False, True], [False]]),
    ],
)
def test_the_first_result_does_not_wait_for_it(
    batches: Batches, trials: int, seen: list[list[bool]]
) -> None:
    assert len(batches.tune(trials)) == trials
    assert batches.seen == seen


def test_it_is_measured_once_in_a_work_dir(batches: Batches) -> None:
    batches.tune(7)
    database = batches.tune(7)
    assert not any(any(batch) for batch in batches.seen)
    assert [is_untuned(r.trace) for r in database.get_all_tuning_records()].count(True) == 1


@pytest.mark.parametrize("seconds", [1e-6, 1.0])
def test_tvm_leaves_the_function_as_it_is_where_nothing_beats_it(
    batches: Batches, seconds: float
) -> None:
    batches.tune(7, seconds)
    stored = ms.database.JSONDatabase(work_dir=str(batches.path))
    best = ms.tir_integration.compile_tir(stored, prim_func(MOD), LLVM)
    assert (module_key(best.mod) == module_key(MOD)) == (seconds < 1e-3)
    var = relax_paths.relax.GlobalVar("main")
    with stored, LLVM:
        applied = relax_paths.apply_database_pass()(IRModule({var: prim_func(MOD)}))
    (func,) = applied.functions.values()
    same = module_key(IRModule({"main": func.without_attr(relax_paths.SCHEDULED_ATTR)}))
    assert (same == module_key(MOD)) == (seconds < 1e-3)


def test_who_does_not_want_it_has_none(batches: Batches) -> None:
    batches.tune(7, knobs={"untuned": False})
    batches.tune(7, module_equality="anchor-block")
    assert not any(any(batch) for batch in batches.seen)
    with pytest.raises(OptionError, match="untuned='no' cannot be used; give True or False"):
        PrunerSearch(untuned="no")


def test_models_of_ours_do_not_learn_from_it(batches: Batches) -> None:
    torch = pytest.importorskip("torch")
    import pruner_ms

    model = pruner_ms.PaCMModel()
    batches.tune(7, cost_model=model)
    assert torch and len(model.verifier.records) == 6


def test_what_cannot_be_the_best_is_not_run(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untuned, "_predicted", lambda *_: 2.0)
    assert len(batches.tune(7)) == 7
    assert not any(any(batch) for batch in batches.seen)


def test_only_what_is_long_and_far_from_the_best_is_left_out() -> None:
    assert may_win(0.9, 1e-6) and may_win(60.0, 3.1)
    assert not may_win(1.1, 1e-3) and not may_win(60.0, 2.9)
    assert may_win(None, 1e-3) and may_win(60.0, None)


@pytest.mark.parametrize(
    "tensors",
    [
        te_workload.matmul(64, 64, 64),
        te_workload.matmul(64, 64, 64, in_dtype="float16", out_dtype="float16"),
        te_workload.softmax_mn(32, 64),
        te_workload.conv2d_nhwc(1, 8, 8, 16, 16, 3, 1, 1),
        te_workload.depthwise_conv2d_nhwc(1, 8, 8, 16, 3, 1, 1),
    ],
    ids=["matmul", "halves", "softmax", "conv2d", "depthwise"],
)
def test_on_a_gpu_it_has_tvms_default_schedule_which_replays(tensors: Any) -> None:
    from pruner_ms.tvm_compat.untuned import untuned as untuned_of

    mod = IRModule({"main": te.create_prim_func(tensors)})
    schedule, before = untuned_of(mod, CUDA), module_key(mod)
    assert schedule is not None and is_untuned(schedule.trace)
    with CUDA:
        wanted = relax_paths.sequential(relax_paths.default_schedule(CUDA))(mod)
    assert module_key(mod) == before  # TVM's own pass writes into it
    func = prim_func(wanted).without_attr(relax_paths.SCHEDULED_ATTR)
    assert module_key(schedule.mod) == module_key(IRModule({"main": func}))
    again = Schedule(mod)
    Trace.apply_json_to_schedule(plain(schedule.trace.as_json()), again)
    assert module_key(again.mod) == module_key(schedule.mod)


def test_its_prediction_is_that_of_the_draft() -> None:
    from pruner_ms.hardware import hardware_for
    from pruner_ms.tvm_compat.targets import attrs_of

    hardware = hardware_for(attrs_of(LLVM))
    small = untuned._predicted(MOD, LLVM, hardware)
    func = te.create_prim_func(te_workload.matmul(128, 128, 128))
    large = untuned._predicted(IRModule({"main": func}), LLVM, hardware)
    assert small is not None and large is not None
    assert np.isclose(large / small, 8, rtol=0.5)
