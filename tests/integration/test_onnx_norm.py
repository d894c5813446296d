"""Batch normalisations are written out with the numbers they had."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from pruner_ms.integration.onnx_norm import unfold_batch_norms

from .conftest import constant, model_of, tensor


def normalised(shape, epsilon=1e-3, **attributes):
    rng = np.random.default_rng(0)
    channels = shape[1]
    held = [constant(n, rng.uniform(0.5, 2, channels), np.float32) for n in "sbmv"]
    node = helper.make_node(
        "BatchNormalization", ["r", *"sbmv"], ["y"], epsilon=epsilon, **attributes
    )
    nodes = [helper.make_node("Relu", ["x"], ["r"]), node]
    return model_of(nodes, [tensor("x", shape)], [tensor("y", shape)], held, opset=15)


@pytest.mark.parametrize("shape", [[2, 5], [1, 80, 4, 3], [1, 3, 2, 2, 2]])
def test_the_result_is_the_same(shape):
    model = normalised(shape)
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expected = ReferenceEvaluator(model).run(None, {"x": data})[0]
    assert unfold_batch_norms(model) == 1
    assert [node.op_type for node in model.graph.node] == ["Relu", "Mul", "Add"]
    result = ReferenceEvaluator(model).run(None, {"x": data})[0]
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=2e-6)


def test_statistics_that_are_inputs_stay():
    model = normalised([1, 80, 4, 3])
    (mean,) = [t for t in model.graph.initializer if t.name == "m"]
    model.graph.initializer.remove(mean)
    model.graph.input.append(tensor("m", [80]))
    before = model.SerializeToString()
    assert unfold_batch_norms(model) == 0
    assert model.SerializeToString() == before


def test_training_stays():
    model = normalised([1, 80, 4, 3], training_mode=1)
    assert unfold_batch_norms(model) == 0


def convolved(nodes, held, bias=True):
    rng = np.random.default_rng(2)
    weight = constant("w", rng.standard_normal((6, 3, 3, 3)), np.float32)
    inputs = ["x", "w", "c"] if bias else ["x", "w"]
    held = [weight, constant("c", rng.standard_normal(6), np.float32), *held]
    conv = helper.make_node("Conv", inputs, ["r"], pads=[1, 1, 1, 1])
    shapes = ([1, 3, 8, 8], [1, 6, 8, 8])
    return model_of(
        [conv, *nodes], [tensor("x", shapes[0])], [tensor("y", shapes[1])], held, opset=15
    )


def per_channel(name, shape=(6, 1, 1)):
    values = np.random.default_rng(len(name)).uniform(0.5, 2, shape)
    return constant(name, values, np.float32)


@pytest.mark.parametrize("bias", [True, False])
def test_after_a_convolution_it_becomes_part_of_its_weights(bias):
    rng = np.random.default_rng(0)
    held = [constant(n, rng.uniform(0.5, 2, 6), np.float32) for n in "sbmv"]
    norm = helper.make_node("BatchNormalization", ["r", *"sbmv"], ["n"])
    scale = helper.make_node("Mul", ["k", "n"], ["p"])
    shift = helper.make_node("Add", ["p", "kk"], ["y"])
    held += [per_channel("k"), per_channel("kk", (1, 6, 1, 1))]
    model = convolved([norm, scale, shift], held, bias)
    data = rng.standard_normal((1, 3, 8, 8)).astype(np.float32)
    expected = ReferenceEvaluator(model).run(None, {"x": data})[0]
    assert unfold_batch_norms(model) == 3
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    result = ReferenceEvaluator(model).run(None, {"x": data})[0]
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(8,), (6, 8, 1), (2, 6, 1, 1), (1, 1, 6, 1, 1)])
def test_what_is_no_constant_per_channel_stays(shape):
    model = convolved([helper.make_node("Mul", ["r", "k"], ["y"])], [per_channel("k", shape)])
    assert unfold_batch_norms(model) == 0


def test_a_convolution_that_others_read_keeps_its_weights():
    nodes = [helper.make_node("Mul", ["r", "k"], ["q"]), helper.make_node("Add", ["q", "r"], ["y"])]
    model = convolved(nodes, [per_channel("k")])
    assert unfold_batch_norms(model) == 0
