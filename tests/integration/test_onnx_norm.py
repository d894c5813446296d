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
    found = ReferenceEvaluator(model).run(None, {"x": data})[0]
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


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
