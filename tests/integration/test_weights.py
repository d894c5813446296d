"""Constant-filled weights are replaced where, and only where, a model is stripped of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from pruner_ms.integration import onnx_weights as rw
from pruner_ms.integration.onnx_file import drop_initializer_inputs
from pruner_ms.integration.onnx_weights import constants, replace_constant_weights

from .conftest import constant, model_of, stripped_network, tensor


def weights_of(model):
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


@pytest.mark.parametrize(
    ("op", "position", "shape", "trans", "expected"),
    [
        ("Conv", 1, (64, 3, 7, 7), (False, False), 147),
        ("Conv", 1, (64, 1, 3, 3), (False, False), 9),
        ("ConvTranspose", 1, (32, 16, 2, 2), (False, False), 128),
        ("Gemm", 1, (1000, 512), (False, True), 512),
        ("Gemm", 1, (512, 1000), (False, False), 512),
        ("MatMul", 1, (4, 512, 10), (False, False), 512),
        ("MatMul", 0, (10, 512), (False, False), 512),
    ],
)
def test_fan_in(op, position, shape, trans, expected):
    assert rw.fan_in(op, position, shape, trans) == expected


@pytest.mark.parametrize(("mean", "moment"), [(0.0, 1.0), (1.0, 2.0), (-0.5, 0.5), (3.0, 9.5)])
def test_the_level_after_a_rectifier_is_that_of_samples(mean, moment):
    rng = np.random.default_rng(0)
    samples = rng.normal(mean, np.sqrt(moment - mean**2), 400_000)
    level = rw.rectified(rw.Level(mean, moment))
    rectified_samples = np.maximum(samples, 0)
    assert level.a == pytest.approx(rectified_samples.mean(), rel=0.02)
    assert level.m == pytest.approx(np.square(rectified_samples).mean(), rel=0.02)


def test_a_weight_is_drawn_for_the_moment_it_meets():
    rng = np.random.default_rng(0)
    parameter = rw.Parameter((256, 400), np.dtype(np.float32), 0.0, rw.Level(0.0, 0.0))
    weight = rw.draw(rw.WEIGHT, parameter, fan=400, moment=4.0, rng=rng)
    data = 2.0 * rng.standard_normal((400, 500))
    assert np.mean(np.square(weight @ data)) == pytest.approx(1.0, rel=0.05)


def test_a_stripped_model_gets_weights_and_a_note():
    model = stripped_network()
    drop_initializer_inputs(model)
    done = replace_constant_weights(model, np.random.default_rng(3))
    held = weights_of(model)
    assert done.tensors == 3
    assert done.elements == 16 * 27 + 16 + 24 * 144
    assert set(held) == {"w1", "b1", "w2"}
    assert all(np.ptp(values) > 0 for values in held.values())
    assert held["w1"].std() == pytest.approx(np.sqrt(1 / 27), rel=0.1)
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}
    assert "replaced by random ones (seed 3)" in str(done.note(3))


def test_the_seed_decides_the_weights():
    def drawn(seed):
        model = stripped_network()
        replace_constant_weights(model, np.random.default_rng(seed))
        return weights_of(model)["w2"]

    assert np.array_equal(drawn(1), drawn(1))
    assert not np.array_equal(drawn(1), drawn(2))


def test_a_model_with_weights_keeps_its_constant_filter():
    rng = np.random.default_rng(0)
    held = [
        constant("w", rng.standard_normal((8, 3, 3, 3)), np.float32),
        constant("mean", np.full((8, 8, 2, 2), 1 / 32), np.float32),
        constant("zero", np.zeros(8), np.float32),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "zero"], ["c"]),
        helper.make_node("Conv", ["c", "mean"], ["y"]),
    ]
    # 216 elements of the weights differ, 256 do not; the second model has more of the former
    large = [constant("w", rng.standard_normal((16, 3, 3, 3)), np.float32), *held[1:]]
    large[1] = constant("mean", np.full((8, 16, 1, 1), 1 / 16), np.float32)
    large[2] = constant("zero", np.zeros(16), np.float32)
    model = model_of(nodes, [tensor("x", [1, 3, 8, 8])], [tensor("y", [1, 8, 6, 6])], large)
    before = model.SerializeToString()
    done = replace_constant_weights(model, np.random.default_rng(0))
    assert done.tensors == 0
    assert model.SerializeToString() == before
    assert "were kept" in str(done.note(0))


def test_batch_norm_statistics_go_with_the_weights():
    held = [
        constant("w", np.full((16, 3, 3, 3), 0.1), np.float32),
        *(constant(n, np.linspace(1e-9, 40, 16), np.float32) for n in ("s", "b", "m", "v")),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]),
    ]
    model = model_of(nodes, [tensor("x", [1, 3, 8, 8])], [tensor("y", [1, 16, 6, 6])], held)
    replace_constant_weights(model, np.random.default_rng(0))
    constants_by_name = constants(model.graph)
    values = weights_of(model)
    assert 0.4 < values["v"].min() < values["v"].max() < 1.6
    assert np.abs(values["m"]).max() < 0.5
    assert values["s"][-1] == 40
    assert constants_by_name["s"].fill is None
