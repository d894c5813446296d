"""Constants in the layout that a schedule reads them in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pruner_ms.integration.graph.packing import packed, relaid
from pruner_ms.integration.records import best_records
from pruner_ms.integration.relax import (
    apply_database,
    build_scheduled,
    compile_model,
    extract_tasks,
    lower,
    run_model,
)
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import IRModule, Schedule, free_parameters, ms, plain, tir
from pruner_ms.tvm_compat.safe_traces import check_trace
from pruner_ms.tvm_compat.script import parsed

R = relax_paths.RELAX


@pytest.mark.parametrize(
    ("source", "result", "place"),
    [
        ((12, 10), (2, 10, 6), "v0 // 6, v1, v0 % 6"),
        ((1, 1, 8, 12), (3, 8, 4), "v3 // 4, v2, v3 % 4"),
        ((3, 3, 4, 6), (6, 3, 3, 4), "v3, v0, v1, v2"),
        ((5, 7), (2, 5, 4), "v1 // 4, v0, v1 % 4"),
    ],
)
def test_numpy_copies_as_the_function_does(source, result, place, target):
    axes = ", ".join(f"v{i}" for i in range(len(source)))
    loops = axes.replace("v", "i")
    func = parsed(f"""@T.prim_func
def main(B: T.Buffer({source}, "float32"), P: T.Buffer({result}, "float32")):
    for {loops} in T.grid({", ".join(map(str, source))}):
        with T.sblock("copy"):
            {axes} = T.axis.remap("{"S" * len(source)}", [{loops}])
            P[{place}] = B[{axes}]
""")
    array = np.random.default_rng(0).standard_normal(source).astype("float32")
    device = relax_paths.device_of(target)
    out = relax_paths.to_device(np.zeros(result, "float32"), device)
    built = build_scheduled(IRModule({"main": func}), target)
    built["main"](relax_paths.to_device(array, device), out)
    (ours,) = relaid(func, [array])
    np.testing.assert_array_equal(ours, out.numpy())


def products(shared: bool) -> Any:
    """exp(x @ w) @ another weight, or @ the same one again."""
    rng = np.random.default_rng(0)
    first = R.const(rng.standard_normal((16, 16)).astype("float32"))
    second = first if shared else R.const(rng.standard_normal((16, 16)).astype("float32"))
    x = R.Var("x", relax_paths.tensor_type((16, 16), "float32"))
    builder = R.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(R.op.exp(builder.emit(R.op.matmul(x, first))))
            b = builder.emit_output(R.op.matmul(a, second))
        builder.emit_func_output(b)
    return builder.get()


def pack(task: Any, target: Any, database: Any) -> None:
    """Commit a record of a product that reads its second factor in pieces of four columns."""
    schedule = Schedule(task.mod)
    get = getattr(schedule, "get_sblock", None) or schedule.get_block
    block = get("matmul")
    i, j, k = schedule.get_loops(block)
    outer, inner = schedule.split(j, [None, 4])
    schedule.reorder(outer, i, k, inner)
    schedule.enter_postproc()
    assert ms.postproc.RewriteLayout().apply(schedule)
    commit(schedule, task, target, database)


def commit(schedule: Any, task: Any, target: Any, database: Any) -> None:
    """Commit a schedule of a task as a record."""
    trace = json.dumps(plain(schedule.trace.as_json()))
    assert "Cast" in trace  # Relax counts in 64 bits
    check_trace(json.loads(trace))
    workload = database.commit_workload(task.mod)
    arguments = ms.arg_info.ArgInfo.from_entry_func(task.mod, remove_preproc=True)
    database.commit_tuning_record(
        ms.database.TuningRecord(schedule.trace, workload, [1e-6], target, arguments)
    )


@pytest.mark.parametrize("shared", [False, True])
def test_constants_are_packed_and_nothing_is_copied_at_run_time(shared, target):
    lowered = lower(products(shared), target)
    tasks = extract_tasks(lowered, target).tasks
    database = ms.database.MemoryDatabase()
    for task in tasks:
        assert free_parameters(task.mod["main"]) == [1]
        pack(task, target, database)
    best = best_records(database, target)
    with target, best.database:
        applied = packed(relax_paths.apply_database_pass()(lowered))
    calls = relax_paths.tir_calls(applied["main"])
    names = {str(var.name_hint) for var in applied.functions}
    assert len(calls) == 2
    assert not any(relax_paths.PREPACK in name for name in names)
    shapes = {relax_paths.constant_shape(relax_paths.tir_arguments(call)[1]) for call in calls}
    assert shapes == {(4, 16, 4)}
    inputs = [np.random.default_rng(1).standard_normal((16, 16)).astype("float32")]
    before = run_model(compile_model(lowered, target), target, inputs)
    after = run_model(compile_model(lowered, target, best), target, inputs)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-4)


@pytest.mark.skipif(not tir.__name__.endswith("tirx"), reason="TVM before 0.25 lacks an operator")
def test_kernels_of_a_network_ask_for_their_weights_ahead_of_time(target):
    random, builder = np.random.default_rng(0), R.BlockBuilder()
    x = R.Var("x", relax_paths.tensor_type((16, 128), "float32"))
    weight = R.const(random.standard_normal((128, 64)).astype("float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(R.op.matmul(x, weight))
        builder.emit_func_output(result)
    lowered = lower(builder.get(), target)
    (task,) = extract_tasks(lowered, target).tasks
    schedule = Schedule(task.mod)
    block = (getattr(schedule, "get_sblock", None) or schedule.get_block)("matmul")
    i, j, k = schedule.get_loops(block)
    outer, inner = schedule.split(j, [None, 16])
    schedule.reorder(outer, i, k, inner)
    schedule.decompose_reduction(block, i)
    schedule.enter_postproc()
    assert ms.postproc.RewriteLayout().apply(schedule)
    database = ms.database.MemoryDatabase()
    commit(schedule, task, target, database)
    best = best_records(database, target)
    applied = apply_database(lowered, best.database, target)
    asking = [f for f in applied.functions.values() if "add_byte_offset" in str(f)]
    assert len(asking) == 1
    inputs = [random.standard_normal((16, 128)).astype("float32")]
    before = run_model(compile_model(lowered, target), target, inputs)
    after = run_model(compile_model(lowered, target, best), target, inputs)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-4, atol=1e-4)


def test_a_function_that_packs_two_constants(target):
    random = np.random.default_rng(0)
    one, other = (R.const(random.standard_normal((8, 12)).astype("float32")) for _ in range(2))
    x = R.Var("x", relax_paths.tensor_type((8, 12), "float32"))
    builder = R.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(R.op.multiply(x, one))
            b = builder.emit_output(R.op.add(a, other))
        builder.emit_func_output(b)
    lowered = lower(builder.get(), target)
    (task,) = extract_tasks(lowered, target).tasks
    assert free_parameters(task.mod["main"]) == [1, 2]
    schedule = Schedule(task.mod)
    get = getattr(schedule, "get_sblock", None) or schedule.get_block
    schedule.compute_inline(get("T_multiply"))
    rows, columns = schedule.get_loops(get("T_add"))
    schedule.reorder(columns, rows)
    assert ms.postproc.RewriteLayout().apply(schedule)
    database = ms.database.MemoryDatabase()
    commit(schedule, task, target, database)
    best = best_records(database, target)
    with target, best.database:
        split = relax_paths.split_layout_rewrite()(relax_paths.apply_database_pass()(lowered))
        applied = packed(relax_paths.apply_database_pass()(lowered))
    (packing,) = [f for v, f in split.functions.items() if relax_paths.PREPACK in v.name_hint]
    assert len(relax_paths.buffers_of(packing)) == 4
    (call,) = relax_paths.tir_calls(applied["main"])
    shapes = list(map(relax_paths.shape_of, relax_paths.tir_arguments(call)))
    assert shapes == [(8, 12), (12, 8), (12, 8)]
    inputs = [random.standard_normal((8, 12)).astype("float32")]
    before = run_model(compile_model(lowered, target), target, inputs)
    after = run_model(compile_model(lowered, target, best), target, inputs)
    np.testing.assert_array_equal(after[0], before[0])


def test_what_is_a_constant_in_one_call_only_stays_as_it_is(target):
    weight = R.const(np.eye(16, dtype="float32"))
    x = R.Var("x", relax_paths.tensor_type((16, 16), "float32"))
    builder = R.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(R.op.matmul(x, weight))
            b = builder.emit_output(R.op.matmul(a, x))
        builder.emit_func_output(b)
    lowered = lower(builder.get(), target)
    (task,) = extract_tasks(lowered, target).tasks
    assert free_parameters(task.mod["main"]) == []


def test_filters_that_a_kernel_moves_first_stay_as_they_are(target):
    """Transposed convolutions: TVM takes the copy of their filters for a `cache_read`."""
    filters = np.random.default_rng(0).standard_normal((6, 1, 2, 2)).astype("float32")
    x = R.Var("x", relax_paths.tensor_type((1, 6, 8, 8), "float32"))
    builder = R.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = R.op.nn.conv2d_transpose(x, R.const(filters), strides=2, groups=6)
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    (task,) = extract_tasks(lower(builder.get(), target), target).tasks
    assert free_parameters(task.mod["main"]) == []


def test_vectors_have_one_layout(net):
    bias = [task for task in net.tasks if "add" in task.name]
    for task in bias:
        shapes = [
            relax_paths.buffer_shape(relax_paths.buffers_of(task.mod["main"])[i])
            for i in free_parameters(task.mod["main"])
        ]
        assert shapes
        assert all(sum(size > 1 for size in shape) > 1 for shape in shapes)
