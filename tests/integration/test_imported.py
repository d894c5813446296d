"""What TVM's importer makes another network of is refused before anything is tuned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from pruner_ms.errors import ModelFileError, UnsupportedOperatorError
from pruner_ms.integration import program as programs
from pruner_ms.integration import rounding
from pruner_ms.integration.imported import require_right
from pruner_ms.integration.inputs import random_array
from pruner_ms.integration.onnx_model import load_model
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.pipeline import tune
from pruner_ms.integration.release import release

from .conftest import constant, model_of, tensor

make = helper.make_node
pytest.importorskip("onnxruntime")

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL


def product(path, factor=1.0):
    weight = constant("w", factor * np.random.default_rng(0).standard_normal((4, 4)), np.float32)
    nodes = [make("MatMul", ["x", "w"], ["h"]), make("Tanh", ["h"], ["y"])]
    save(model_of(nodes, [tensor("x", [2, 4])], [tensor("y", [2, 4])], [weight]), str(path))
    return path


def test_a_network_that_is_right_is_compiled_once(tmp_path, target):
    program = programs.load(str(product(tmp_path / "m.onnx")), target, TuneOptions(), None)
    require_right(program, target, 0)
    assert program.untuned(target) is program.untuned(target)


def test_probabilities_next_to_zero_are_those_of_onnxruntime(tmp_path, target):
    """onnxruntime makes sigmoids of 0.5 and a quotient, which leaves 0 of exp(-16.2)."""
    nodes = [make("MatMul", ["x", "w"], ["h"]), make("Sub", ["h", "far"], ["s"])]
    nodes += [make("Sigmoid", ["s"], ["p"]), make("Transpose", ["p"], ["y"], perm=[1, 0])]
    weights = [
        constant("w", 1e-2 * np.random.default_rng(0).standard_normal((4, 400)), np.float32),
        constant("far", np.linspace(15, 25, 400), np.float32),
    ]
    path = tmp_path / "m.onnx"
    save(model_of(nodes, [tensor("x", [2, 4])], [tensor("y", [400, 2])], weights), str(path))
    program = programs.load(str(path), target, TuneOptions(), None)
    require_right(program, target, 0)
    assert rounding.sigmoid_outputs(program.network.mod) == [True]


def test_another_network_is_refused_and_leaves_no_work_dir(tmp_path, target, monkeypatch):
    path = product(tmp_path / "m.onnx")
    other = load_model(str(product(tmp_path / "other.onnx", factor=1.5))).mod
    stock = programs.load_model

    def mistaken(*arguments, **options):
        loaded = stock(*arguments, **options)
        object.__setattr__(loaded, "mod", other)
        return loaded

    monkeypatch.setattr(programs, "load_model", mistaken)
    with pytest.raises(UnsupportedOperatorError, match=r"another network of m.*onnxruntime"):
        tune(str(path), target, trials=2, work_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("what", "said"), [("compile_model", "cannot build it"), ("run_model", "cannot run it")]
)
def test_what_cannot_be_built_or_run_is_refused(tmp_path, target, monkeypatch, what, said):
    program = programs.load(str(product(tmp_path / "m.onnx")), target, TuneOptions(), None)

    def failing(*_arguments, **_options):
        raise RuntimeError("not computed")

    monkeypatch.setattr(programs, what, failing)
    with pytest.raises(UnsupportedOperatorError, match=rf"{said}.*not computed"):
        require_right(program, target, 0)


def test_what_has_no_tolerance_is_not_refused(tmp_path, target):
    indices = tensor("i", [1, 5], TensorProto.INT64)
    node = make("ScatterElements", ["x", "i", "u"], ["y"], axis=1)
    inputs = [tensor("x", [1, 5]), indices, tensor("u", [1, 5])]
    save(model_of([node], inputs, [tensor("y", [1, 5])], [], 18), str(tmp_path / "m.onnx"))
    require_right(programs.load(str(tmp_path / "m.onnx"), target, TuneOptions(), None), target, 0)


@pytest.mark.parametrize(("off", "right"), [(3e-5, True), (1e-3, False)])
def test_another_engine_may_round_otherwise(tmp_path, target, off, right):
    program = programs.load(str(product(tmp_path / "m.onnx")), target, TuneOptions(), None)
    stock = program.reference.outputs

    def outputs(arrays):
        ((y,), why) = stock(arrays)
        return [(y * (1 + off)).astype("float32")], why

    program = replace(program, reference=replace(program.reference, outputs=outputs))
    if right:
        require_right(program, target, 0)
    else:
        with pytest.raises(UnsupportedOperatorError, match="another network"):
            require_right(program, target, 0)


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_a_division_by_zero_ends_no_process(tmp_path, target, operator):
    numbers = [helper.make_tensor_value_info(n, TensorProto.INT32, [8, 8]) for n in "xyz"]
    factor = constant("factor", np.full((8, 8), 2), np.int32)
    nodes = [make("Mul", ["y", "factor"], ["h"]), make(operator, ["x", "h"], ["z"])]
    save(model_of(nodes, numbers[:2], numbers[2:], [factor]), str(tmp_path / "m.onnx"))
    result = tune(str(tmp_path / "m.onnx"), target, trials=2, work_dir=tmp_path / "run")
    assert any("not run, verified or timed" in note for note in result.notes)
    assert all(check.ok for check in result.checks) and len(result.checks) == 1
    told = release(tmp_path / "run", tmp_path / "out.so").checked
    assert told.startswith("not run (it divides integers")


def test_a_division_by_a_constant_is_run(tmp_path, target):
    numbers = [helper.make_tensor_value_info(n, TensorProto.INT32, [8, 8]) for n in "xz"]
    three = constant("three", np.full((), 3), np.int32)
    save(
        model_of([make("Div", ["x", "three"], ["z"])], numbers[:1], numbers[1:], [three]),
        str(tmp_path / "m.onnx"),
    )
    program = programs.load(str(tmp_path / "m.onnx"), target, TuneOptions(), None)
    assert not program.unsafe


def test_positive_inputs_hide_nothing():
    assert random_array((64,), "bool", np.random.default_rng(0), positive=True).all()
    assert not random_array((64,), "bool", np.random.default_rng(0)).all()


def test_a_tensor_larger_than_the_memory_is_refused(tmp_path, target):
    shape = constant("s", [1 << 44])
    model = model_of(
        [make("Expand", ["x", "s"], ["y"])], [tensor("x", [1])], [tensor("y", None)], [shape]
    )
    save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(ModelFileError, match=r"70,369 GB, and this machine has"):
        programs.load(str(tmp_path / "m.onnx"), target, TuneOptions(), None)


def one(node, inputs, outputs, opset=17):
    return model_of([node], inputs, outputs, [], opset)


X, HALVES = tensor("x", [4]), tensor("y", [4])
MISTAKEN = {
    "IsInf": one(make("IsInf", ["x"], ["y"], detect_negative=0), [X], [tensor("y", [4], BOOL)]),
    "Dropout": one(
        make("Dropout", ["x"], ["y", "m"]), [X], [HALVES, tensor("m", [4], BOOL)], opset=13
    ),
    "Expand": one(
        make("Expand", ["x", "s"], ["y"]), [X, tensor("s", [1], TensorProto.INT64)], [HALVES]
    ),
    "RoiAlign": one(
        make("RoiAlign", ["x", "r", "i"], ["y"], mode="max", output_height=2, output_width=2),
        [tensor("x", [1, 1, 6, 6]), tensor("r", [1, 4]), tensor("i", [1], TensorProto.INT64)],
        [tensor("y", [1, 1, 2, 2])],
    ),
    "SpaceToDepth": one(
        make("SpaceToDepth", ["x"], ["y"], blocksize=2, mode="CRD"),
        [tensor("x", [1, 2, 4, 4])],
        [tensor("y", [1, 8, 2, 2])],
        opset=13,
    ),
    "BatchNormalization": one(
        make("BatchNormalization", ["z", *"abcd"], ["y", "e", "f"], training_mode=1),
        [tensor("z", [2, 3, 4, 4]), *(tensor(name, [3]) for name in "abcd")],
        [tensor("y", [2, 3, 4, 4]), tensor("e", [3]), tensor("f", [3])],
    ),
}


@pytest.mark.parametrize("name", MISTAKEN)
def test_an_operator_that_is_taken_for_another_is_named(tmp_path, name):
    save(MISTAKEN[name], str(tmp_path / "m.onnx"))
    with pytest.raises(UnsupportedOperatorError, match=f"as they are used there: {name} "):
        load_model(str(tmp_path / "m.onnx"))
