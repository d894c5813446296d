"""Tasks of a network, and which records reach its executable."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from pruner_ms.errors import OptionError
from pruner_ms.integration import records
from pruner_ms.integration.onnx_model import load_model
from pruner_ms.integration.records import best_records, replayed
from pruner_ms.integration.relax import (
    build_task,
    compile_model,
    extract_tasks,
    leaves,
    lower,
    run_model,
    skip_reason,
)
from pruner_ms.integration.verify import random_inputs
from pruner_ms.tvm_compat import relax_paths, vector_math
from pruner_ms.tvm_compat.paths import Schedule, Target, ms, target_key, te

from .conftest import record_of


@pytest.fixture(scope="module")
def squeezenet(target):
    loaded = load_model("squeezenet")
    return loaded, lower(loaded.mod, target, rewrites=("layouts",))


def conv_task(net):
    return max(net.tasks, key=lambda task: task.flops)


def test_squeezenet_has_its_convolutions(squeezenet, target):
    loaded, lowered = squeezenet
    extraction = extract_tasks(lowered, target)
    convs = [task for task in extraction.tasks if "conv2d" in task.name]
    # 26 convolutions of 352 million multiply-adds (arXiv:1602.07360, v1.1, 224 x 224), two
    # operations each, and bias and ReLU on every output
    assert sum(task.weight for task in convs) == 26
    assert sum(task.flops * task.weight for task in convs) == pytest.approx(2 * 352e6, rel=0.02)
    assert [task.flops * task.weight for task in extraction.tasks] == sorted(
        (task.flops * task.weight for task in extraction.tasks), reverse=True
    )
    assert len({task.hash for task in extraction.tasks}) == len(extraction.tasks)
    assert all("reshape" not in task.name for task in extraction.tasks)
    assert {s.reason for s in extraction.skipped} == {
        "it only reshapes, which costs nothing at run time"
    }
    assert loaded.replaced_weights == 39


def test_ops_choose_and_a_wrong_one_lists_the_tasks(squeezenet, target):
    _, lowered = squeezenet
    extraction = extract_tasks(lowered, target, ["max_pool2d", "softmax"])
    assert all("pool" in task.name or "softmax" in task.name for task in extraction.tasks)
    assert any("conv2d" in skipped.name for skipped in extraction.skipped)
    with pytest.raises(OptionError, match=r"--ops names 'gemm'.*softmax"):
        extract_tasks(lowered, target, ["gemm"])


def test_lowering_twice_is_lowering_once(net, target):
    assert lower(net.lowered, target) is net.lowered


def test_open_and_scheduled_functions_are_not_tuned(net):
    n = te.var("n")
    data = te.placeholder((n, 4), name="A")
    double = te.compute((n, 4), lambda i, j: data[i, j] * 2)
    func = te.create_prim_func([data, double])
    module = type(net.lowered)({"main": func})
    assert "open" in str(skip_reason(module))
    task = conv_task(net)
    (scheduled,) = task.mod.functions.values()
    marked = type(net.lowered)({"main": scheduled.with_attr(relax_paths.SCHEDULED_ATTR, True)})
    assert "already" in str(skip_reason(marked))
    assert skip_reason(task.mod) is None


def test_the_best_valid_record_of_the_target_is_taken(net, target):
    task, database = conv_task(net), ms.database.MemoryDatabase()
    other = Target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})
    record_of(task, target, [3e-3, 3e-3], 2, database)
    record_of(task, target, [2e-3], 4, database)
    record_of(task, target, [0.0], 8, database)
    record_of(task, target, [math.nan], 8, database)
    record_of(task, target, [1e10], 8, database)
    record_of(task, other, [1e-6], 8, database)
    best = best_records(database, target)
    assert best.count == 1
    assert (best.other_target, best.invalid, best.unusable) == (1, 3, 0)
    assert float(best.records[task.hash].run_secs[0]) == 2e-3
    assert best_records(database, other).count == 1
    assert best_records(database, Target("nvidia/nvidia-a100")).count == 0


def test_what_multiplies_as_tf32_is_used_only_where_it_is_allowed(net, monkeypatch):
    cuda = Target("nvidia/nvidia-a100")
    task, database = conv_task(net), ms.database.MemoryDatabase()
    fast = record_of(task, cuda, [1e-3], 2, database)
    record_of(task, cuda, [2e-3], 4, database)
    monkeypatch.setattr(records, "uses_tf32", lambda one: one.trace.same_as(fast.trace))
    for allowed, seconds in ((False, 2e-3), (True, 1e-3)):
        best = best_records(database, cuda, allowed)
        assert float(best.records[task.hash].run_secs[0]) == seconds


def test_tensors_of_tuples_in_tuples_are_outputs_in_their_order():
    one, two, three = (SimpleNamespace(numpy=lambda n=n: n) for n in range(3))
    assert [leaf.numpy() for leaf in leaves((one, (two, [three])))] == [0, 1, 2]
    assert leaves(one) == [one]


def test_a_trace_that_cannot_be_replayed_is_passed_over(net, target):
    database = ms.database.MemoryDatabase()
    small, large = sorted(net.tasks, key=lambda task: task.flops)[:: len(net.tasks) - 1]
    foreign = record_of(large, target, [1e-3], 4, database)
    record_of(small, target, [2e-3], 2, database)
    workload = database.commit_workload(small.mod)
    database.commit_tuning_record(
        ms.database.TuningRecord(foreign.trace, workload, [1e-6], target, foreign.args_info)
    )
    best = best_records(database, target)
    assert best.unusable == 1
    assert float(best.records[small.hash].run_secs[0]) == 2e-3


def test_records_reach_the_executable_and_change_no_result(net, target):
    database = ms.database.MemoryDatabase()
    task = conv_task(net)
    record_of(task, target, [1e-3], 4, database)
    best = best_records(database, target)
    with target, best.database:
        applied = relax_paths.apply_database_pass()(net.lowered)
    tuned = [
        func
        for func in applied.functions.values()
        if isinstance(func, relax_paths.PrimFunc) and relax_paths.SCHEDULED_ATTR in func.attrs
    ]
    assert len(tuned) == 1
    assert "parallel" in str(replayed(best.records[task.hash]))
    inputs = random_inputs(net.loaded.inputs, np.random.default_rng(0))
    after = run_model(compile_model(net.lowered, target, best), target, inputs)
    np.testing.assert_allclose(after[0], run_model(net.plain, target, inputs)[0], rtol=1e-5)


@pytest.mark.skipif(not vector_math.available(), reason="this TVM has no such rules")
def test_only_what_has_schedules_has_vector_code_of_exp(net, target, tmp_path):
    marked, database = vector_math.vector_math(target), ms.database.MemoryDatabase()
    task = next(task for task in net.tasks if "softmax" in task.name)

    def calls(built):
        path = tmp_path / "found.so"
        built.export_library(str(path))
        return b"expf" in path.read_bytes()

    workload = database.commit_workload(task.mod)
    args = ms.arg_info.ArgInfo.from_entry_func(task.mod, remove_preproc=True)
    record = ms.database.TuningRecord(Schedule(task.mod).trace, workload, [1e-3], marked, args)
    database.commit_tuning_record(record)
    assert best_records(database, target).count == 0
    best = best_records(database, marked)
    assert not calls(build_task(task.mod, marked, record))
    assert not calls(compile_model(net.lowered, marked, best))
    assert calls(build_task(task.mod, marked))
    assert calls(compile_model(net.lowered, marked))


def test_what_names_the_device_is_compared_and_nothing_else():
    config = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
    plain = Target(config)
    hosted = Target({**config, "host": {"kind": "llvm", "mcpu": "x86-64-v4"}})
    assert target_key(plain) == target_key(hosted)
    assert target_key(plain) != target_key(Target({**config, "num-cores": 4}))
