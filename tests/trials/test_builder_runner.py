from __future__ import annotations

import math
import pathlib

import numpy as np
import psutil
import pytest

pytest.importorskip("tvm")

from pruner_ms.errors import EnvironmentFault, OptionError
from pruner_ms.trials.builder import PersistentBuilder
from pruner_ms.trials.failures import parse_failure
from pruner_ms.trials.runner import PersistentRunner
from pruner_ms.tvm_compat.paths import (
    ArgInfo,
    IRModule,
    Schedule,
    Target,
    ms,
    runtime,
    te,
    te_workload,
)
from pruner_ms.types import FailureKind

CONFIG = ms.runner.EvaluatorConfig(number=1, repeat=2, min_repeat_ms=0)


@pytest.fixture(scope="module")
def target():
    return Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})


@pytest.fixture(scope="module")
def mod():
    return IRModule({"main": te.create_prim_func(te_workload.matmul(48, 32, 64))})


@pytest.fixture(scope="module")
def builder():
    built = PersistentBuilder(max_workers=2)
    built.warm_up()
    yield built
    built.close()


@pytest.fixture(scope="module")
def runner():
    persistent_runner = PersistentRunner(timeout_sec=20.0, evaluator_config=CONFIG)
    persistent_runner.warm_up()
    yield persistent_runner
    persistent_runner.close()


@pytest.fixture(scope="module")
def artifact(builder, mod, target):
    (result,) = builder.build([ms.builder.BuilderInput(mod, target)])
    return str(result.artifact_path)


def inputs(mod, target, *ways):
    return [ms.builder.BuilderInput(mod.with_attr("way", way), target) for way in ways]


def run_inputs(artifact, mod, count=1):
    info = ArgInfo.from_entry_func(mod, True)
    return [ms.runner.RunnerInput(artifact, "cpu", info) for _ in range(count)]


def kind_of(result):
    return None if result.error_msg is None else parse_failure(str(result.error_msg)).kind


def make_moody_build(then):
    """A build that does what the module says; a closure, so it travels by value."""

    def build(mod, target, params):
        import os
        import sys
        import time

        ways = {
            "abort": os.abort,
            "loop": lambda: [None for _ in iter(int, 1)],
            "eat": lambda: bytearray(50 << 30),
            "raise": lambda: 1 // 0,
            "print": lambda: (print("\x00\xff" * 10_000), sys.stderr.write("{}\n" * 10_000)),
            "sleep": lambda: time.sleep(0.1),
        }
        ways.get(str(mod.attrs["way"]), lambda: None)()
        return then(mod.without_attr("way"), target, params)

    return build


def test_a_matmul_builds_loads_and_is_right(artifact):
    lib = runtime.load_module(artifact)
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(48, 64)), rng.normal(size=(64, 32))
    make = getattr(runtime, "tensor", None) or runtime.ndarray.array
    args = [make(x.astype("float32")) for x in (left, right, np.zeros((48, 32)))]
    lib["main"](*args)
    np.testing.assert_allclose(args[2].numpy(), left @ right, rtol=1e-4, atol=1e-5)


def test_a_batch_runs_and_workers_stay(builder, runner, mod, target):
    for _ in range(2):
        results = builder.build([ms.builder.BuilderInput(mod, target)] * 4)
        assert [kind_of(r) for r in results] == [None] * 4
        paths = [pathlib.Path(str(r.artifact_path)) for r in results]
        assert len({p.parent for p in paths}) == 4  # MetaSchedule removes an artifact's folder
        for path in paths:
            (future,) = runner.run(run_inputs(str(path), mod))
            assert future.done()
            run_secs = [float(sec) for sec in future.result().run_secs]
            assert len(run_secs) == 2
            assert all(0 < sec < 1 for sec in run_secs)
        pids = builder.pool.pids(), runner.pool.pids()
        assert len(pids[1]) == 1
    assert (builder.pool.pids(), runner.pool.pids()) == pids


@pytest.mark.heavy
def test_bad_builds_cost_themselves_only(mod, target):
    from pruner_ms.trials.build_job import default_build

    builder = PersistentBuilder(
        max_workers=2,
        timeout_sec=3.0,
        f_build=make_moody_build(default_build),
        memory_limit_bytes=4 << 30,
    )
    wanted = {
        "good": None,
        "abort": FailureKind.CRASH,
        "loop": FailureKind.BUILD_TIMEOUT,
        "eat": FailureKind.MEMORY,
        "raise": FailureKind.BUILD,
        "print": None,
        "sleep": None,
    }
    results = builder.build(inputs(mod, target, *wanted))
    assert dict(zip(wanted, map(kind_of, results), strict=True)) == wanted
    home, pids = builder.pool.home, builder.pool.pids()
    left = [p.name for p in home.glob("artifact-*")]
    assert len(left) == 3  # failures leave no folder
    del builder, results
    assert not home.exists()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_a_module_that_cannot_be_built_is_a_build_failure(builder, mod, target):
    sch = Schedule(mod)
    block = getattr(sch, "get_sblock", None) or sch.get_block
    sch.bind(sch.get_loops(block("C"))[0], "threadIdx.x")  # a CPU has no such thread
    (result,) = builder.build([ms.builder.BuilderInput(sch.mod, target)])
    assert kind_of(result) is FailureKind.BUILD
    assert "InternalError" in str(result.error_msg)


@pytest.mark.heavy
def test_named_functions_and_initializer(mod, target):
    def initializer():
        from pruner_ms.trials.build_job import default_build
        from pruner_ms.tvm_compat.paths import register_global_func

        register_global_func("trials.test.build", default_build)

    def export(built):
        import os
        import tempfile

        path = os.path.join(tempfile.mkdtemp(), "own.tar")
        built.export_library(path)
        return path

    builder = PersistentBuilder(
        max_workers=1, f_build="trials.test.build", f_export=export, initializer=initializer
    )
    (result,) = builder.build([ms.builder.BuilderInput(mod, target)])
    path = pathlib.Path(str(result.artifact_path))
    assert path.name == "own.tar"
    assert builder.pool.home in path.parents
    builder.close()


@pytest.mark.heavy
def test_an_unknown_name_is_one_clear_error(mod, target):
    builder = PersistentBuilder(max_workers=1, f_build="no.such.function")
    with pytest.raises(EnvironmentFault, match="cannot be set up"):
        builder._inst.build([ms.builder.BuilderInput(mod, target)])
    builder.close()


@pytest.mark.heavy
def test_pass_config_and_target_are_in_force(mod, target):
    def build(mod, target, params):
        import tvm

        config = tvm.transform.PassContext.current().config
        raise LookupError(f"{dict(config)} {tvm.target.Target.current().kind.name}")

    key = next(k for k in ("tirx.disable_vectorize", "tir.disable_vectorize") if _known(k))
    builder = PersistentBuilder(max_workers=1, f_build=build, pass_config={key: True})
    (result,) = builder.build([ms.builder.BuilderInput(mod, target)])
    assert key in str(result.error_msg)
    assert "llvm" in str(result.error_msg)
    builder.close()


def _known(key):
    from pruner_ms.tvm_compat.paths import PassContext

    try:
        PassContext(config={key: True})
    except Exception:
        return False
    return True


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("nan", FailureKind.NONFINITE),
        ("inf", FailureKind.NONFINITE),
        ("zero", FailureKind.NONFINITE),
        ("negative", FailureKind.NONFINITE),
        ("empty", FailureKind.NONFINITE),
        ("one bad of three", FailureKind.NONFINITE),
        ("longer than the limit", FailureKind.NONFINITE),
        ("text", FailureKind.RUN),
        ("raise", FailureKind.RUN),
        ("abort", FailureKind.CRASH),
        ("loop", FailureKind.RUN_TIMEOUT),
        ("good", None),
    ],
)
def test_bad_runs_are_failures_with_a_kind(moody_runner, artifact, mod, way, kind):
    moody, order = moody_runner
    order.write_text(way)
    (future,) = moody.run(run_inputs(artifact, mod))
    result = future.result()
    assert kind_of(result) is kind
    assert (result.run_secs is None) is (kind is not None)


@pytest.fixture(scope="module")
def moody_runner(tmp_path_factory):
    order = tmp_path_factory.mktemp("order") / "way"
    place = str(order)

    def evaluate(built, device, config, arguments):
        import os

        with open(place) as file:
            way = file.read()
        ways = {
            "nan": lambda: [math.nan],
            "inf": lambda: [math.inf],
            "zero": lambda: [0.0],
            "negative": lambda: [-1e-3],
            "empty": lambda: [],
            "one bad of three": lambda: [1e-3, math.nan, 1e-3],
            "longer than the limit": lambda: [3.0],
            "text": lambda: ["fast"],
            "raise": lambda: 1 // 0,
            "abort": os.abort,
            "loop": lambda: [None for _ in iter(int, 1)],
            "good": lambda: [1e-3, 2e-3],
        }
        return ways[way]()

    runner = PersistentRunner(timeout_sec=2.0, f_run_evaluator=evaluate, max_workers=8)
    yield runner, order
    runner.close()


@pytest.mark.heavy
def test_alloc_repeat_and_user_functions(artifact, mod):
    def allocate(device, args_info, alloc_repeat):
        assert args_info[0] == ["TENSOR", "float32", [48, 64]]
        return [[i] for i in range(alloc_repeat)]

    def evaluate(built, device, config, arguments):
        assert config.number == 1
        assert config.min_repeat_ms == 0
        return [1.0 + args[0] for args in arguments]

    def clean_up():
        import sys

        sys._cleaned = getattr(sys, "_cleaned", 0) + 1

    runner = PersistentRunner(
        evaluator_config=CONFIG,
        alloc_repeat=3,
        f_alloc_argument=allocate,
        f_run_evaluator=evaluate,
        f_cleanup=clean_up,
        cooldown_sec=0.01,
    )
    (future,) = runner.run(run_inputs(artifact, mod))
    assert [float(sec) for sec in future.result().run_secs] == [1.0, 2.0, 3.0]
    runner.close()


def test_a_missing_artifact_is_a_run_failure(runner, mod):
    futures = runner.run(run_inputs("/no/such/candidate.tar", mod))
    assert kind_of(futures[0].result()) is FailureKind.RUN


@pytest.mark.parametrize("changes", [{"cooldown_sec": -1.0}, {"alloc_repeat": 0}])
def test_bad_runner_options_are_refused(changes):
    ((name, value),) = changes.items()
    with pytest.raises(OptionError, match=f"{name}={value!r}"):
        PersistentRunner._cls(**changes)


def test_stock_tuning_runs_with_them(builder, runner, mod, target, tmp_path):
    from pruner_ms.tvm_compat.intrinsics import import_intrinsics

    import_intrinsics()
    database = ms.tune_tir(
        mod,
        target,
        work_dir=str(tmp_path),
        max_trials_global=4,
        num_trials_per_iter=2,
        builder=builder,
        runner=runner,
        cost_model="random",
        strategy="replay-trace",
        num_tuning_cores=1,
        seed=1,
    )
    records = list(database.get_all_tuning_records())
    assert len(records) == 4
    for record in records:
        assert all(0 < float(sec) < 1 for sec in record.run_secs)
