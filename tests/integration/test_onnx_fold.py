"""Constants are computed before TVM sees a model, and nothing else becomes of its operators."""

from __future__ import annotations

import gc
import itertools
import resource
from inspect import signature

import numpy as np
import pytest
from onnx import TensorProto, helper, inliner, numpy_helper, save
from onnx.reference import ReferenceEvaluator

from pruner_ms.errors import ModelFileError, UnsupportedOperatorError
from pruner_ms.integration import onnx_model
from pruner_ms.integration.onnx_fold import fold, inline_functions
from pruner_ms.integration.onnx_model import load_model
from pruner_ms.integration.relax import compile_model, run_model

from .conftest import constant, model_of, tensor

make = helper.make_node
onnxruntime = pytest.importorskip("onnxruntime")

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def operators(model):
    return [node.op_type for node in model.graph.node]


def attention(dtype, kind):
    """Attention with a scale, as exporters write it; its number of heads is read off a shape."""
    nodes = [
        make("Shape", ["q"], ["s"]),
        make("Gather", ["s", "one"], ["heads"], axis=0),
        make("Cast", ["heads"], ["h"], to=kind),
        make("Sqrt", ["h"], ["root"]),
        make("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        make("MatMul", ["q", "kt"], ["qk"]),
        make("Div", ["qk", "root"], ["scaled"]),
        make("Softmax", ["scaled"], ["p"], axis=-1),
        make("MatMul", ["p", "v"], ["y"]),
    ]
    shape = [1, 4, 16, 8]
    inputs = [tensor(name, shape, kind) for name in "qkv"]
    return model_of(nodes, inputs, [tensor("y", shape, kind)], [constant("one", 1)], opset=17)


@pytest.mark.parametrize(("dtype", "kind"), [(np.float32, FLOAT), (np.float16, HALF)])
def test_operators_and_types_stay_those_of_the_model(dtype, kind):
    model = attention(dtype, kind)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((1, 4, 16, 8)).astype(dtype) for name in "qkv"}
    expected = ReferenceEvaluator(model).run(None, inputs)[0]
    before = list(model.opset_import)
    assert fold(model) == []
    assert operators(model) == ["Transpose", "MatMul", "Div", "Softmax", "MatMul"]
    assert {node.domain for node in model.graph.node} == {""}
    assert list(model.opset_import) == before
    (root,) = model.graph.initializer
    assert root.data_type == kind
    result = ReferenceEvaluator(model).run(None, inputs)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


def test_a_decided_if_is_its_branch():
    def branch(op):
        inner = [make("Constant", [], ["t"], value_float=2.0), make(op, ["x", "t"], ["u"])]
        return helper.make_graph(inner, op, [], [tensor("u", [4])])

    nodes = [
        make("Size", ["x"], ["n"]),
        make("Equal", ["n", "four"], ["c"]),
        make("If", ["c"], ["w"], then_branch=branch("Mul"), else_branch=branch("Sub")),
        make("If", ["c"], ["v"], then_branch=branch("Add"), else_branch=branch("Sub")),
        make("Add", ["w", "v"], ["y"]),
    ]
    held = [constant("four", 4)]
    model = model_of(nodes, [tensor("x", [4])], [tensor("y", [4])], held)
    assert fold(model) == []
    assert set(operators(model)) == {"Mul", "Add", "Identity"}
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(ReferenceEvaluator(model).run(None, {"x": x})[0], 3 * x + 2)


def doubled():
    names = ["a", *(f"a{i}" for i in range(40))]
    nodes = [make("Concat", [n, n], [m], axis=0) for n, m in itertools.pairwise(names)]
    return [*nodes, make("Identity", [names[-1]], ["r"])], [constant("a", [1])]


def hidden():
    """A range whose end is computed of floating-point numbers, so that its shape is no constant."""
    nodes = [
        make("Exp", ["e"], ["f"]),
        make("Cast", ["f"], ["b"], to=INT64),
        make("Range", ["zero", "b", "one"], ["r"]),
    ]
    return nodes, [constant("e", 28.0, np.float32), constant("zero", 0), constant("one", 1)]


ENDLESS = {
    "Range": (
        [make("Range", ["a", "b", "one"], ["r"])],
        [constant("a", 0), constant("b", 1 << 40), constant("one", 1)],
    ),
    "hidden": hidden(),
    "ConstantOfShape": (
        [make("ConstantOfShape", ["s"], ["r"], value=helper.make_tensor("v", INT64, [1], [1]))],
        [constant("s", [1 << 35])],
    ),
    "Expand": ([make("Expand", ["a", "s"], ["r"])], [constant("a", 1), constant("s", [1 << 40])]),
    "Tile": ([make("Tile", ["a", "s"], ["r"])], [constant("a", [1]), constant("s", [1 << 40])]),
    "Concat": doubled(),
    "many": (
        [
            *(make("Expand", ["a", "s"], [f"r{i}"]) for i in range(40)),
            make("Sum", [f"r{i}" for i in range(40)], ["r"]),
        ],
        [constant("a", 1.0, np.float32), constant("s", [1 << 26])],
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_constants_without_end_are_refused_before_they_are_computed(name):
    nodes, held = ENDLESS[name]
    kind = FLOAT if name == "many" else INT64
    ends = [make("Add", ["x", "r"], ["y"])]
    model = model_of([*nodes, *ends], [tensor("x", [1], kind)], [tensor("y", None, kind)], held)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFileError, match="constants that take too much memory: the operator"):
        fold(model)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3 << 20  # of kilobytes


def test_weights_without_end_are_not_drawn(tmp_path):
    value = numpy_helper.from_array(np.array([0.5], np.float32))
    nodes = [make("ConstantOfShape", ["s"], ["w"], value=value), make("MatMul", ["x", "w"], ["y"])]
    model = model_of(
        nodes, [tensor("x", [1, 1 << 18])], [tensor("y", None)], [constant("s", [1 << 18, 1 << 18])]
    )
    save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(ModelFileError, match=r"weights of 274\.9 GB"):
        load_model(str(tmp_path / "m.onnx"))


def test_functions_of_a_model_are_written_out():
    body = [make("Constant", [], ["two"], value_float=2.0), make("Mul", ["a", "two"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    twice = helper.make_function("mine", "Twice", ["a"], ["b"], body, opsets)
    nodes = [make("Twice", ["x"], ["h"], domain="mine"), make("Twice", ["h"], ["y"], domain="mine")]
    model = model_of(nodes, [tensor("x", [4])], [tensor("y", [4])], [], opset=17)
    model.functions.append(twice)
    model = inline_functions(model)
    assert fold(model) == []
    assert operators(model) == ["Mul", "Mul"]


def test_what_tvm_lacks_is_written_out_where_onnx_defines_it(tmp_path, target):
    node = make("Attention", ["q", "k", "v"], ["y"], scale=0.5)
    inputs = [tensor(name, [1, 2, 6, 4]) for name in "qkv"]
    model = model_of([node], inputs, [tensor("y", [1, 2, 6, 4])], [], opset=23)
    model.ir_version = 11
    save(model, str(tmp_path / "m.onnx"))
    try:
        loaded = load_model(str(tmp_path / "m.onnx"))
    except UnsupportedOperatorError as error:
        assert "Attention (1 times)" in str(error)
        pytest.skip("this onnx writes no function of its own out")
    assert "does not know Attention" in loaded.notes[0]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 2, 6, 4)).astype(np.float32) for _ in "qkv"]
    expected = ReferenceEvaluator(model).run(None, dict(zip("qkv", arrays, strict=True)))[0]
    result = run_model(compile_model(loaded.mod, target), target, arrays)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(
    "inline_schema_functions" not in signature(inliner.inline_selected_functions).parameters,
    reason="this onnx writes no function of its own out",
)
def test_a_function_of_a_constant_is_written_out_too():
    node, types = make("CastLike", ["x", "like"], ["y"]), (tensor("x", [4]), tensor("y", [4], HALF))
    like = constant("like", 1, np.float16)
    model = model_of([node], [types[0]], [types[1]], [like], opset=19)
    fold(model, lambda node, _types, _constants: node.op_type != "CastLike")
    (cast,) = model.graph.node
    assert cast.op_type == "Cast" and cast.attribute[0].i == HALF and not model.graph.initializer


def product():
    weight = constant("w", np.random.default_rng(0).standard_normal((4, 4)), np.float32)
    return model_of(
        [make("MatMul", ["x", "w"], ["y"])], [tensor("x", [2, 4])], [tensor("y", [2, 4])], [weight]
    )


@pytest.mark.parametrize(("refusals", "taken"), [(1, True), (2, False)])
def test_what_is_refused_simplified_is_imported_as_it_is(tmp_path, monkeypatch, refusals, taken):
    save(product(), str(tmp_path / "m.onnx"))
    stock, calls = onnx_model.relax_paths.from_onnx, []

    def refusing(model):
        calls.append(model)
        if len(calls) <= refusals:
            print("Error converting operator MatMul, with inputs: []")
            raise ValueError("not so")
        return stock(model)

    monkeypatch.setattr(onnx_model.relax_paths, "from_onnx", refusing)
    if taken:
        (note,) = load_model(str(tmp_path / "m.onnx")).notes
        assert "imported as it is, not simplified" in note
    else:
        with pytest.raises(UnsupportedOperatorError, match="cannot convert the operator MatMul"):
            load_model(str(tmp_path / "m.onnx"))
    assert len(calls) == 2


def test_a_refused_model_leaves_nothing_on_stderr(tmp_path, capfd):
    model = product()
    model.graph.node[0].op_type = "Reshape"  # to a shape that is no constant
    model.graph.node[0].input[:] = ["x", "x"]
    save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(UnsupportedOperatorError):
        load_model(str(tmp_path / "m.onnx"))
    gc.collect()
    assert capfd.readouterr().err == ""


DAMAGED = {
    "type": {"data_type": 99},
    "too few": {"dims": [4, 5]},
    "too many": {"dims": [2]},
    "negative": {"dims": [-4, 4]},
    "endless": {"dims": [1 << 62, 4]},
    "no type": {"data_type": 0},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_tensor_is_told_in_one_sentence(tmp_path, name):
    model = product()
    for field, value in DAMAGED[name].items():
        model.graph.initializer[0].ClearField(field)
        if field == "dims":
            model.graph.initializer[0].dims.extend(value)
        else:
            model.graph.initializer[0].data_type = value
    save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(ModelFileError, match=r"damaged|not valid|cannot"):
        load_model(str(tmp_path / "m.onnx"))


def sequence(name):
    return helper.make_tensor_sequence_value_info(name, FLOAT, [2])


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (sequence("x"), "'x' of the model is of type sequence_type"),
        (tensor("x", [2], TensorProto.STRING), "'x' of the model is of type object"),
        (tensor("x", [2], TensorProto.FLOAT8E5M2), "'x' of the model is of type float8_e5m2"),
        (tensor("x", [2], TensorProto.COMPLEX64), "'x' of the model is of type complex64"),
    ],
)
def test_inputs_that_tvm_does_not_compute_with_are_named(tmp_path, item, said):
    model = model_of([make("Identity", ["x"], ["y"])], [item], [item], [])
    model.graph.output[0].name = "y"
    save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(ModelFileError, match=said):
        load_model(str(tmp_path / "m.onnx"))
