"""Graphs of ONNX: those of its backend tests, the same with constants, and odd ones made by hand.

A node's test gives everything as an input of the graph. Where TVM wants a constant (the number of
TopK, axes, sizes), the test also counts a second time, with its integers as initializers. Bodies of
functions (`_expanded`) are the same operators again and are left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Arrays = list[npt.NDArray[Any]]

FROZEN = "_with_constants"
_FREEZES = frozenset(
    """AffineGrid CenterCropPad ConstantOfShape CumSum Expand OneHot Pad Range ReduceL1 ReduceL2
    ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
    Reshape Resize Slice Split SplitToSequence Squeeze Tile TopK Trilu Unsqueeze Upsample Clip
    DequantizeLinear QuantizeLinear GatherElements Gather GatherND ScatterElements ScatterND
    Compress MaxUnpool NonMaxSuppression Unique Dropout""".split()  # noqa: SIM905  a list of them is a page
)
_KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")


@dataclass(frozen=True)
class Graph:
    """A file, and what is right.

    Attributes
    ----------
    path
        Of the model.
    inputs, outputs
        Of one call.
    """

    path: Path
    inputs: Arrays
    outputs: Arrays

    def open_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of this call for inputs that have none, or open dimensions."""
        model = onnx.load(str(self.path), load_external_data=False)
        shapes = {}
        for item, array in zip(_inputs(model), self.inputs, strict=False):
            kind = item.type.tensor_type
            fixed = kind.HasField("shape") and all(d.dim_value > 0 for d in kind.shape.dim)
            if item.type.HasField("tensor_type") and not fixed:
                shapes[str(item.name)] = tuple(map(int, array.shape))
        return shapes


def _inputs(model: Any) -> list[Any]:
    held = {tensor.name for tensor in model.graph.initializer}
    return [item for item in model.graph.input if item.name not in held]


def written(folder: Path, tests: bool = True) -> list[str]:
    """Write all graphs and their data into a folder, if they are not there; their names.

    Making those of ONNX's tests takes half a minute; without `tests` they are left out.
    """
    listed = folder / "names.txt"
    if not listed.exists():
        folder.mkdir(parents=True, exist_ok=True)
        names = [_write(folder, *one) for one in (*(_tests() if tests else ()), *_by_hand())]
        listed.write_text("\n".join(name for name in names if name) + "\n", encoding="utf-8")
    return listed.read_text(encoding="utf-8").splitlines()


def read(folder: Path, name: str) -> Graph:
    """One that was written."""
    data = onnx.load_from_string((folder / f"{name}.data").read_bytes()).graph.initializer
    inputs = [numpy_helper.to_array(t) for t in data if t.name.startswith("in ")]
    outputs = [numpy_helper.to_array(t) for t in data if t.name.startswith("out ")]
    return Graph(folder / f"{name}.onnx", inputs, outputs)


def _write(folder: Path, name: str, model: Any, inputs: list[Any], outputs: list[Any]) -> str:
    """The name, empty if its data are no tensors that numpy can hold."""
    if not all(_is_number(one) for one in (*inputs, *outputs)):
        return ""
    onnx.save(model, str(folder / f"{name}.onnx"))
    data = onnx.ModelProto()
    for place, arrays in (("in", inputs), ("out", outputs)):
        for i, array in enumerate(arrays):
            data.graph.initializer.append(
                numpy_helper.from_array(np.asarray(array), f"{place} {i}")
            )
    (folder / f"{name}.data").write_bytes(data.SerializeToString())
    return name


def _is_number(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "OUS"


Entry = tuple[str, Any, list[Any], list[Any]]


def _tests() -> Iterator[Entry]:
    from onnx.backend.test.loader import load_model_tests

    for kind in _KINDS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases = load_model_tests(kind=kind)
        for case in cases:
            if case.name.endswith("_expanded") or "_expanded_ver" in case.name:
                continue
            model = case.model or onnx.load(str(Path(case.model_dir) / "model.onnx"))
            data = case.data_sets or [_data(Path(case.model_dir))]
            inputs, outputs = ([_array(v) for v in part] for part in data[0])
            yield case.name, model, inputs, outputs
            if kind == "node" and model.graph.node[0].op_type in _FREEZES:
                yield from _frozen(case.name, model, inputs, outputs)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _data(folder: Path) -> tuple[list[Any], list[Any]]:
    """The first data set of a test that lies in files; values that are no tensors are None."""
    values: tuple[list[Any], list[Any]] = ([], [])
    for part, stem in zip(values, ("input", "output"), strict=True):
        place = folder / "test_data_set_0"
        for number in range(len(list(place.glob(f"{stem}_*.pb")))):
            tensor = TensorProto()
            tensor.ParseFromString((place / f"{stem}_{number}.pb").read_bytes())
            part.append(numpy_helper.to_array(tensor) if tensor.data_type else None)
    return values


def _frozen(name: str, model: Any, inputs: list[Any], outputs: list[Any]) -> Iterator[Entry]:
    """The test with all inputs but the first as initializers."""
    items = _inputs(model)
    if not 1 < len(items) == len(inputs) or not all(_is_number(v) for v in inputs):
        return
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    for item, value in list(zip(items, inputs, strict=True))[1:]:
        frozen.graph.initializer.append(numpy_helper.from_array(np.asarray(value), item.name))
        frozen.graph.input.remove(next(i for i in frozen.graph.input if i.name == item.name))
    yield name + FROZEN, frozen, inputs[:1], outputs


# by hand

Shape = tuple[int | str, ...]


def _value(text: str, dtype: str = "float32") -> Any:
    """`x:2x3:int64`; `x:` is a scalar, `x:nx3` has an open dimension, `x` no shape."""
    name, _, rest = text.partition(":")
    dims, _, type_name = rest.partition(":")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(type_name or dtype))
    if ":" not in text:
        return helper.make_tensor_value_info(name, kind, None)
    shape = [int(d) if d.isdigit() else d for d in dims.split("x") if d]
    return helper.make_tensor_value_info(name, kind, shape)


def _weight(name: str, *shape: int, dtype: str = "float32") -> Any:
    rng = np.random.default_rng(len(name) + sum(shape))
    return numpy_helper.from_array(np.asarray(rng.standard_normal(shape)).astype(dtype), name)


def _ints(name: str, *values: int, dtype: str = "int64") -> Any:
    return numpy_helper.from_array(np.array(values, dtype), name)


def _scalar(name: str, value: float, dtype: str = "float32") -> Any:
    return numpy_helper.from_array(np.array(value, dtype), name)


_node = helper.make_node


def _model(
    nodes: list[Any],
    inputs: str,
    outputs: str,
    weights: tuple[Any, ...] = (),
    opset: int = 17,
    **more: Any,
) -> Any:
    graph = helper.make_graph(
        nodes,
        "graph",
        [_value(text) for text in inputs.split()],
        [_value(text) for text in outputs.split()],
        list(weights),
    )
    version = {"ir_version": 9, **more}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **version)


def _named(name: str) -> Any:
    """A graph in which everything has this name, or begins with it."""
    h, w, y = (f"{name}{end}" for end in ("1", "2", "3"))
    shape = [4, 4]
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)  # noqa: E731
    graph = helper.make_graph(
        [_node("MatMul", [name, w], [h], name=h), _node("Softmax", [h], [y], name=name)],
        name or "graph",
        [value(name)],
        [value(y)],
        [_weight(w, 4, 4)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _if() -> Any:
    branches = {
        f"{side}_branch": helper.make_graph(
            [_node(op, ["x"], [f"{side}"])], side, [], [_value(f"{side}:3x4")]
        )
        for side, op in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        _node("ReduceSum", ["x"], ["s"], keepdims=0),
        _node("Greater", ["s", "zero"], ["c"]),
        _node("If", ["c"], ["y"], **branches),
    ]
    return _model(nodes, "x:3x4", "y:3x4", (_scalar("zero", 0.0),))


def _if_of_a_constant() -> Any:
    branches = {
        f"{side}_branch": helper.make_graph(
            [_node(op, ["x"], [f"{side}"])], side, [], [_value(f"{side}:3x4")]
        )
        for side, op in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [_node("If", ["c"], ["y"], **branches)]
    yes = numpy_helper.from_array(np.array(True), "c")
    return _model(nodes, "x:3x4", "y:3x4", (yes,))


def _loop() -> Any:
    body = helper.make_graph(
        [_node("Identity", ["go"], ["again"]), _node("Add", ["v", "x"], ["w"])],
        "body",
        [_value("i::int64"), _value("go::bool"), _value("v:3x4")],
        [_value("again::bool"), _value("w:3x4")],
    )
    nodes = [_node("Loop", ["n", "yes", "x"], ["y"], body=body)]
    yes = numpy_helper.from_array(np.array(True), "yes")
    return _model(nodes, "x:3x4", "y:3x4", (_scalar("n", 3, "int64"), yes))


def _function() -> Any:
    """A function of the model's own."""
    own = helper.make_function(
        "mine",
        "Twice",
        ["a"],
        ["b"],
        [_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    graph = helper.make_graph(
        [_node("Twice", ["x"], ["y"], domain="mine")], "graph", [_value("x:3x4")], [_value("y:3x4")]
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=domains, functions=[own], ir_version=9)


def _attention() -> Any:
    split = _ints("split", 1, 6, 2, 4)
    nodes, weights = [], [split, _ints("whole", 1, 6, 8), _scalar("scale", 0.5)]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        weights += [_weight(f"w{name}", 8, 8), _weight(f"b{name}", 8)]
        nodes += [
            _node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            _node("Add", [f"{name}0", f"b{name}"], [f"{name}1"]),
            _node("Reshape", [f"{name}1", "split"], [f"{name}2"]),
            _node("Transpose", [f"{name}2"], [name], perm=order),
        ]
    nodes += [
        _node("MatMul", ["q", "k"], ["s0"]),
        _node("Mul", ["s0", "scale"], ["s1"]),
        _node("Softmax", ["s1"], ["s"], axis=-1),
        _node("MatMul", ["s", "v"], ["o0"]),
        _node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        _node("Reshape", ["o1", "whole"], ["y"]),
    ]
    return _model(nodes, "x:1x6x8", "y:1x6x8", tuple(weights))


def _quantised() -> Any:
    """QDQ around a product."""
    nodes = [
        _node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        _node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        _node("DequantizeLinear", ["wq", "t", "u"], ["wd"]),
        _node("MatMul", ["xd", "wd"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = (
        _scalar("s", 0.05),
        _scalar("z", 3, "uint8"),
        numpy_helper.from_array(rng.integers(-127, 127, (8, 4)).astype("int8"), "wq"),
        _scalar("t", 0.02),
        _scalar("u", 0, "int8"),
    )
    return _model(nodes, "x:4x8", "y:4x4", weights)


def _shape_chain() -> Any:
    """What exporters write for x.view(x.size(0), -1)."""
    nodes = [
        _node("Shape", ["x"], ["s"]),
        _node("Gather", ["s", "first"], ["n"], axis=0),
        _node("Unsqueeze", ["n", "axes"], ["n1"]),
        _node("Concat", ["n1", "rest"], ["to"], axis=0),
        _node("Reshape", ["x", "to"], ["f"]),
        _node("MatMul", ["f", "w"], ["y"]),
    ]
    weights = (
        _scalar("first", 0, "int64"),
        _ints("axes", 0),
        _ints("rest", -1),
        _weight("w", 12, 5),
    )
    return _model(nodes, "x:nx3x4", "y:nx5", weights)


def _topk(of: str) -> Any:
    nodes = [_node("MatMul", ["x", "w"], ["h"])]
    nodes += {
        "topk": [_node("TopK", ["h", "k"], ["v", "i"], axis=1)],
        "cumsum": [_node("CumSum", ["h", "axis"], ["v"]), _node("ArgMax", ["v"], ["i"], axis=1)],
        "nonzero": [_node("NonZero", ["h"], ["i"]), _node("Relu", ["h"], ["v"])],
    }[of]
    weights = (_weight("w", 6, 8), _ints("k", 3), _scalar("axis", 1, "int64"))
    return _model(nodes, "x:4x6", "v i::int64", weights)


def _recurrent(op: str, gates: int) -> Any:
    nodes = [_node(op, ["x", "w", "r", "b"], ["", "y"], hidden_size=5)]
    weights = (
        _weight("w", 1, 5 * gates, 4),
        _weight("r", 1, 5 * gates, 5),
        _weight("b", 1, 10 * gates),
    )
    return _model(nodes, "x:3x1x4", "y:1x1x5", weights)


def _conv(op: str = "Conv", shape: tuple[int, ...] = (6, 4, 3, 3), **attributes: Any) -> Any:
    nodes = [_node(op, ["x", "w"], ["h"], **attributes), _node("Relu", ["h"], ["y"])]
    spatial = "x".join(["9"] * (len(shape) - 2))
    return _model(nodes, f"x:1x4x{spatial}", "y", (_weight("w", *shape),))


def _one(op: str, inputs: str, **more: Any) -> Any:
    names = [text.partition(":")[0] for text in inputs.split()]
    dtype = inputs.split()[0].partition(":")[2].partition(":")[2]
    graph = _model([_node(op, names, ["y"], **more)], inputs, "y")
    if dtype:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        graph.graph.output[0].type.tensor_type.elem_type = kind
    return graph


def _product(dtype: str, opset: int = 17) -> Any:
    nodes = [_node("MatMul", ["x", "w"], ["h"]), _node("Add", ["h", "b"], ["y"])]
    weights = (_weight("w", 8, 6, dtype=dtype), _weight("b", 6, dtype=dtype))
    return _model(nodes, f"x:5x8:{dtype}", f"y:5x6:{dtype}", weights, opset)


_ODD_NAMES = (
    "a b",
    "0",
    "ä",
    "a/b",
    'a"b',
    "a\\b",
    "λ.μ::π",
    "x" * 300,
    "main",
    "p[0]",
    "%1",
    "\x1b[31m",
)

BY_HAND: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        **{f"named_{i}": (lambda n=name: _named(n)) for i, name in enumerate(_ODD_NAMES)},
        **{
            f"product_{d}": (lambda d=d: _product(d))
            for d in ("float16", "float32", "float64", "int32")
        },
        **{f"product_opset_{n}": (lambda n=n: _product("float32", n)) for n in (7, 9, 11, 13, 21)},
        "topk": lambda: _topk("topk"),
        "cumsum": lambda: _topk("cumsum"),
        "nonzero": lambda: _topk("nonzero"),
        "attention": _attention,
        "quantised": _quantised,
        "shape_chain": _shape_chain,
        "if": _if,
        "if_of_a_constant": _if_of_a_constant,
        "loop": _loop,
        "own_function": _function,
        "lstm": lambda: _recurrent("LSTM", 4),
        "gru": lambda: _recurrent("GRU", 3),
        "rnn": lambda: _recurrent("RNN", 1),
        "conv": lambda: _conv(pads=[1, 1, 1, 1]),
        "conv_dilated": lambda: _conv(dilations=[2, 2]),
        "conv_grouped": lambda: _conv(shape=(6, 2, 3, 3), group=2),
        "conv_strided": lambda: _conv(strides=[2, 3]),
        "conv_same": lambda: _conv(auto_pad="SAME_UPPER"),
        "conv_1d": lambda: _conv(shape=(6, 4, 3)),
        "conv_3d": lambda: _conv(shape=(2, 4, 3, 3, 3)),
        "conv_transposed": lambda: _conv("ConvTranspose", (4, 6, 3, 3), strides=[2, 2]),
        "identity": lambda: _model([_node("Identity", ["x"], ["y"])], "x:3x4", "y:3x4"),
        "input_is_output": lambda: _model([_node("Relu", ["x"], ["h"])], "x:3x4", "x:3x4 h:3x4"),
        "constant_output": lambda: _model(
            [_node("Relu", ["x"], ["y"]), _node("Identity", ["w"], ["z"])],
            "x:3x4",
            "y:3x4 z:2x3",
            (_weight("w", 2, 3),),
        ),
        "only_constants": lambda: _model(
            [_node("Add", ["w", "w"], ["y"])], "", "y:2x3", (_weight("w", 2, 3),)
        ),
        "unused_input": lambda: _model([_node("Relu", ["x"], ["y"])], "x:3x4 z:5", "y:3x4"),
        "unused_weight": lambda: _model(
            [_node("Relu", ["x"], ["y"])], "x:3x4", "y:3x4", (_weight("w", 2, 3),)
        ),
        "weight_among_inputs": lambda: _model(
            [_node("MatMul", ["x", "w"], ["y"])], "x:3x4 w:4x5", "y:3x5", (_weight("w", 4, 5),)
        ),
        "same_factor_twice": lambda: _model([_node("MatMul", ["x", "x"], ["y"])], "x:4x4", "y:4x4"),
        "scalars": lambda: _one("Add", "a: b:"),
        "scalar_and_tensor": lambda: _one("Mul", "a: b:3x4"),
        "ones": lambda: _one("Add", "a:1x1x1 b:1"),
        "concat_with_nothing": lambda: _one("Concat", "a:0x4 b:3x4", axis=0),
        "open_batch": lambda: _one("Relu", "x:nx4"),
        "unknown_shape": lambda: _one("Relu", "x"),
        "bool_and": lambda: _one("And", "a:3x4:bool b:3x4:bool"),
        "int8_max": lambda: _one("Max", "a:3x4:int8 b:3x4:int8"),
        "uint8_add": lambda: _one("Add", "a:3x4:uint8 b:3x4:uint8"),
        "int64_mul": lambda: _one("Mul", "a:3x4:int64 b:3x4:int64"),
        "chain": lambda: _model(
            [_node("Relu", [f"h{i}"], [f"h{i + 1}"]) for i in range(20)], "h0:3x4", "h20:3x4"
        ),
        "several_outputs": lambda: _model(
            [_node("Split", ["x"], ["a", "b", "c"], axis=1)], "x:4x9", "a:4x3 b:4x3 c:4x3"
        ),
        "wide_concat": lambda: _model(
            [_node("Concat", ["x"] * 12, ["y"], axis=0)], "x:2x3", "y:24x3"
        ),
        "reduce_everything": lambda: _model(
            [_node("ReduceMean", ["x"], ["y"], keepdims=0)], "x:3x4x5", "y:"
        ),
        "old_versions": lambda: _model(
            [_node("Relu", ["x"], ["y"])], "x:3x4", "y:3x4", opset=7, ir_version=3
        ),
        "gelu_of_erf": lambda: _model(
            [
                _node("Mul", ["x", "r"], ["a"]),
                _node("Erf", ["a"], ["b"]),
                _node("Add", ["b", "one"], ["c"]),
                _node("Mul", ["x", "c"], ["d"]),
                _node("Mul", ["d", "half"], ["y"]),
            ],
            "x:4x8",
            "y:4x8",
            (_scalar("r", 0.5**0.5), _scalar("one", 1.0), _scalar("half", 0.5)),
        ),
        "batch_norm": lambda: _model(
            [
                _node("Conv", ["x", "w"], ["h"]),
                _node("BatchNormalization", ["h", "g", "b", "m", "v"], ["y"]),
            ],
            "x:1x3x6x6",
            "y:1x4x4x4",
            (
                _weight("w", 4, 3, 3, 3),
                *(_weight(n, 4) for n in "gbm"),
                numpy_helper.from_array(np.linspace(0.5, 2, 4).astype("float32"), "v"),
            ),
        ),
    }
)
"""Graph by name; `written` asks onnxruntime for their results."""


def _by_hand() -> Iterator[Entry]:
    import onnxruntime

    from benchmarks.zoo.program import drawn

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for number, (name, make) in enumerate(BY_HAND.items()):
        rng = np.random.default_rng(number)
        model = make()
        inputs = [_drawn_for(item, rng, drawn) for item in _inputs(model)]
        feed = {item.name: array for item, array in zip(_inputs(model), inputs, strict=True)}
        proto = model.SerializeToString()
        session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
        names = [item.name for item in session.get_inputs()]
        outputs = session.run(None, {name: feed[name] for name in names})
        yield f"hand_{name}", model, inputs, [np.asarray(out) for out in outputs]


def _drawn_for(item: Any, rng: np.random.Generator, drawn: Callable[..., Any]) -> Any:
    kind = item.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else 2 for d in kind.shape.dim]
    if not kind.HasField("shape"):
        dims = [2, 3]
    return drawn(dims, str(helper.tensor_dtype_to_np_dtype(kind.elem_type)), rng)
