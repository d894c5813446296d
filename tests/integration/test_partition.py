"""Copies of parts with a loop for each part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pruner_ms.integration.graph.partition import partitioned
from pruner_ms.integration.relax import compile_model, extract_tasks, lower, run_model
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import IRModule, as_tensor, build, te, topi
from tests.support.seeds import SEED

R = relax_paths.RELAX


def module(*tensors: Any) -> Any:
    return IRModule({"main": te.create_prim_func(list(tensors), "int64")})


def has_schedule(mod: Any) -> bool:
    return relax_paths.SCHEDULED_ATTR in (partitioned(mod)["main"].attrs or ())


def computed(mod: Any, target: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """What a module's inputs were, and its result."""
    random = np.random.default_rng(SEED)
    shapes = [relax_paths.buffer_shape(buffer) for buffer in relax_paths.buffers_of(mod["main"])]
    arrays = [random.standard_normal(shape).astype("float32") for shape in shapes]
    tensors = [as_tensor(array) for array in arrays]
    named = IRModule({"main": mod["main"].with_attr("global_symbol", "main")})
    build(named, target=target)["main"](*tensors)
    return arrays[:-1], tensors[-1].numpy()


@pytest.mark.parametrize(("shape", "axis"), [((1, 9, 7, 5), 3), ((1, 90, 70, 8), 2), ((4, 3), 0)])
def test_each_part_has_a_loop(shape, axis, target):
    sizes = [shape[axis], 1, 6]
    parts = [te.placeholder((*shape[:axis], n, *shape[axis + 1 :]), "float32") for n in sizes]
    scales = te.placeholder((1,) * len(shape), "float32")
    both = topi.nn.relu(topi.multiply(topi.concatenate(parts, axis), scales))
    mod = partitioned(module(*parts, scales, both))
    text = str(mod)
    assert relax_paths.SCHEDULED_ATTR in mod["main"].attrs
    assert text.count('_partition")') == len(sizes) and "T_concat" not in text
    assert ("T.parallel" in text) == (np.prod(shape) > 1 << 15)
    (*arrays, scale), result = computed(mod, target)
    np.testing.assert_array_equal(result, np.maximum(np.concatenate(arrays, axis) * scale, 0))


CONDITIONS: dict[str, Any] = {
    "<": lambda i: i < 5,
    "<=": lambda i: i <= 4,
    ">": lambda i: i > 4,
    ">=": lambda i: i >= 5,
    "the number first": lambda i: te.const(4, "int64") < i,
    "at the number first": lambda i: te.const(5, "int64") <= i,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_the_index_at_which_a_condition_changes(name, target):
    x = te.placeholder((8, 12), "float32")
    condition = CONDITIONS[name]
    y = te.compute((8, 12), lambda i, j: te.if_then_else(condition(j), x[i, j], -x[i, j]))
    mod = partitioned(module(x, y))
    assert "range(T.int64(5), T.int64(12))" in str(mod)
    (array,), result = computed(mod, target)
    signs = np.where([bool(condition(j)) for j in range(12)], 1, -1)
    np.testing.assert_array_equal(result, array * signs)


def left() -> dict[str, Any]:
    x, y = (te.placeholder((300, 200), "float32") for _ in range(2))
    both = topi.concatenate([x, y], 1)
    halves = te.compute(
        x.shape,
        lambda i, j: te.if_then_else(i < 5, x[i, j], te.if_then_else(j < 5, y[i, j], 0.0)),
    )
    always = te.compute(x.shape, lambda i, j: te.if_then_else(j < 200, x[i, j], 0.0))
    return {
        "sums": module(x, y, topi.sum(both, 1)),
        "two results": module(x, y, both, topi.nn.relu(both)),
        "two axes": module(x, y, halves),
        "cores have nothing to share": module(x, y, topi.concatenate([x, y], 0)),
        "no condition": module(x, topi.nn.relu(x)),
        "a condition that always holds": module(x, always),
    }


@pytest.mark.parametrize("name", left())
def test_what_is_left_for_the_search(name):
    assert not has_schedule(left()[name])


def test_an_open_shape_is_left():
    rows = te.var("rows", "int64")
    x, y = (te.placeholder((rows, 4), "float32") for _ in range(2))
    mod = module(x, y, topi.concatenate([x, y], 1))
    assert partitioned(mod).same_as(mod)


def test_a_network_of_open_shape_is_lowered(target):
    builder = R.BlockBuilder()
    rows = te.var("rows", "int64")
    x = R.Var("x", relax_paths.tensor_type((rows, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(R.op.concat([x, builder.emit(R.op.exp(x))], 1))
        builder.emit_func_output(result)
    assert "rows" in str(lower(builder.get(), target))


def test_what_has_a_schedule_keeps_it():
    x = te.placeholder((8, 12), "float32")
    mod = module(x, x, topi.concatenate([x, x], 1))
    mod["main"] = mod["main"].with_attr(relax_paths.SCHEDULED_ATTR, 1)
    assert partitioned(mod).same_as(mod)


def test_a_dense_block_is_right_and_its_copies_are_no_tasks(target):
    """DenseNet's: each layer reads all parts before it, multiplied, added to and cut at zero."""
    random = np.random.default_rng(SEED)
    builder = R.BlockBuilder()
    shape = (1, 6, 9, 8)
    x = R.Var("x", relax_paths.tensor_type(shape, "float32"))

    def constant(*sizes: int) -> Any:
        return R.const(random.standard_normal(sizes).astype("float32"))

    with builder.function("main", [x]):
        with builder.dataflow():
            parts = [x]
            for layer in range(3):
                channels = 6 + 5 * layer
                both = builder.emit(R.op.concat(parts, 1)) if layer else x
                scaled = builder.emit(R.op.multiply(both, constant(channels, 1, 1)))
                cut = builder.emit(R.op.nn.relu(scaled))
                filters = constant(5, channels, 3, 3)
                parts.append(builder.emit(R.op.nn.conv2d(cut, filters, padding=[1] * 4)))
            result = builder.emit_output(R.op.nn.relu(builder.emit(R.op.concat(parts, 1))))
        builder.emit_func_output(result)
    mod = builder.get()
    lowered = lower(mod, target)
    extracted = extract_tasks(lowered, target)
    reasons = [one.reason for one in extracted.skipped if "concat" in one.name]
    assert reasons == ["it already has a schedule"] * 3
    assert not any("concat" in task.name for task in extracted.tasks)
    image = random.standard_normal(shape).astype("float32")
    plain = compile_model(lower(mod, target, rewrites=()), target)
    one, other = (
        run_model(each, target, [image])[0] for each in (compile_model(lowered, target), plain)
    )
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())
