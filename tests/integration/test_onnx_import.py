"""Exports that compute shapes inside the graph are folded, imported, and compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from pruner_ms.errors import UnsupportedOperatorError
from pruner_ms.integration.onnx_model import load_model
from pruner_ms.integration.relax import compile_model, extract_tasks, run_model
from pruner_ms.integration.verify import (
    network_length,
    onnxruntime_outputs,
    random_inputs,
    verify_network,
)

from .conftest import constant, model_of, tensor

make = helper.make_node
onnxruntime = pytest.importorskip("onnxruntime")


def with_conv(nodes, held, rank=4):
    weight = np.random.default_rng(0).standard_normal((8, 3, 3, 3))
    conv = make("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    ends = [tensor("z", [f"d{i}" for i in range(rank)] if rank else None)]
    held = [constant("w", weight, np.float32), *held]
    return model_of([conv, *nodes], [tensor("x", ["N", 3, "H", "W"])], ends, held)


def paddle_flatten(rank=2):
    """Shape - Gather - Concat - Reshape, as Paddle's exporter writes a flatten."""
    nodes = [
        make("Shape", ["y"], ["s"]),
        make("Gather", ["s", "zero"], ["b"], axis=0),
        make("Unsqueeze", ["b", "axis"], ["b1"]),
        make("Concat", ["b1", "rest"], ["to"], axis=0),
        make("Reshape", ["y", "to"], ["z"]),
    ]
    held = [constant("zero", 0), constant("axis", [0]), constant("rest", [-1])]
    return with_conv(nodes, held, rank)


def slices_and_casts():
    nodes = [
        make("Shape", ["y"], ["s"]),
        make("Cast", ["s"], ["si"], to=TensorProto.INT32),
        make("Slice", ["si", "i0", "i1", "i0"], ["b"]),
        make("Slice", ["si", "i2", "i4", "i0"], ["hw"]),
        make("ReduceProd", ["hw"], ["p"], keepdims=1, axes=[0]),
        make("Concat", ["b", "channels", "p"], ["to"], axis=0),
        make("Cast", ["to"], ["long"], to=TensorProto.INT64),
        make("Reshape", ["y", "long"], ["r"]),
        make("Transpose", ["r"], ["z"], perm=[0, 2, 1]),
    ]
    held = [constant(f"i{i}", [i]) for i in (0, 1, 2, 4)]
    return with_conv(nodes, [*held, constant("channels", [8], np.int32)], 3)


def resize_by_computed_scales():
    nodes = [
        make("Shape", ["y"], ["s"]),
        make("Cast", ["s"], ["sf"], to=TensorProto.FLOAT),
        make("Slice", ["sf", "i2", "i4", "i0"], ["hw"]),
        make("Div", ["goal", "hw"], ["ratio"]),
        make("Concat", ["ones", "ratio"], ["scales"], axis=0),
        make(
            "Resize",
            ["y", "", "scales"],
            ["z"],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
    ]
    held = [constant(f"i{i}", [i]) for i in (0, 2, 4)]
    goal = constant("goal", [32, 32], np.float32)
    return with_conv(nodes, [*held, goal, constant("ones", [1, 1], np.float32)])


@pytest.mark.parametrize(
    "build",
    [paddle_flatten, lambda: paddle_flatten(0), slices_and_casts, resize_by_computed_scales],
    ids=["flatten", "flatten-no-rank", "slices", "resize"],
)
def test_computed_shapes_are_folded_and_the_numbers_are_onnxruntimes(build, tmp_path, target):
    path = tmp_path / "m.onnx"
    save(build(), str(path))
    loaded = load_model(str(path), {"x": (1, 3, 8, 10)})
    assert loaded.notes == ()
    inputs = random_inputs(loaded.inputs, np.random.default_rng(0))
    outputs = run_model(compile_model(loaded.mod, target), target, inputs)
    expected, why = onnxruntime_outputs(loaded, inputs)
    assert expected is not None, why
    assert [o.shape for o in outputs] == [spec.shape for spec in loaded.outputs]
    length = network_length(extract_tasks(loaded.mod, target).tasks)
    assert verify_network(expected, outputs, length, "onnxruntime").ok


def test_every_unknown_operator_is_named(tmp_path):
    nodes = [
        make("Foo", ["y"], ["a"], domain="com.acme"),
        make("Foo", ["a"], ["b"], domain="com.acme"),
        make("LpNormalization", ["b"], ["c"]),
        make("Relu", ["c"], ["z"]),
    ]
    save(with_conv(nodes, []), str(tmp_path / "m.onnx"))
    with pytest.raises(UnsupportedOperatorError) as caught:
        load_model(str(tmp_path / "m.onnx"), {"x": (1, 3, 8, 10)})
    assert "com.acme.Foo (2 times)" in str(caught.value)
    assert "LpNormalization (1 times)" in str(caught.value)
    assert "Relu" not in str(caught.value)


def test_onnxruntimes_own_operators_that_tvm_knows_are_imported(tmp_path, target):
    bias = constant("b", np.linspace(-1, 1, 8), np.float32)
    nodes = [
        make("FastGelu", ["x", "b"], ["g"], domain="com.microsoft"),
        make("Gelu", ["g"], ["y"], domain="com.microsoft"),
    ]
    model = model_of(nodes, [tensor("x", [4, 8])], [tensor("y", [4, 8])], [bias])
    model.opset_import.append(helper.make_operatorsetid("com.microsoft", 1))
    save(model, str(tmp_path / "m.onnx"))
    loaded = load_model(str(tmp_path / "m.onnx"))
    inputs = random_inputs(loaded.inputs, np.random.default_rng(0))
    expected, why = onnxruntime_outputs(loaded, inputs)
    assert expected is not None, why
    outputs = run_model(compile_model(loaded.mod, target), target, inputs)
    np.testing.assert_allclose(outputs[0], expected[0], rtol=2e-3, atol=2e-3)
    model.graph.node[1].op_type = "BiasDropout"
    save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(UnsupportedOperatorError, match=r"com\.microsoft\.BiasDropout"):
        load_model(str(tmp_path / "m.onnx"))


def test_an_operator_that_is_known_but_not_so_used_is_named(tmp_path):
    weight = constant("w", np.random.default_rng(0).standard_normal((2, 2, 1, 1, 1, 1)), np.float32)
    node = make("Conv", ["x", "w"], ["y"])
    shape = [1, 2, 3, 3, 3, 3]
    model = model_of([node], [tensor("x", shape)], [tensor("y", shape)], [weight])
    save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(UnsupportedOperatorError, match="cannot convert the operator Conv of"):
        load_model(str(tmp_path / "m.onnx"))


def test_the_hash_follows_the_file_the_shapes_and_the_seed(tmp_path, stripped_file):
    save(paddle_flatten(), str(tmp_path / "m.onnx"))
    path = str(tmp_path / "m.onnx")
    small = load_model(path, {"x": (1, 3, 8, 10)}).model_hash
    assert load_model(path, {"x": (1, 3, 8, 10)}, seed=5).model_hash == small
    assert load_model(path, {"x": (1, 3, 8, 11)}).model_hash != small
    first, second = (load_model(str(stripped_file), seed=s).model_hash for s in (0, 1))
    assert first != second
