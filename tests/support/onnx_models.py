"""Networks as ONNX files have them, with random weights: for front ends that read nothing else.

What an exporter writes in evaluation mode: batch norms folded into convolutions, layer norms and
GELU as elementwise operators (opset 14, which importers of 2021 know, too).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, checker, helper, numpy_helper

OPSET, IR_VERSION = 14, 8

RESNET18_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and stride of each stage of two blocks (He et al., 2015, table 1)."""


class _Graph:
    """A graph that grows by operators; each returns the name of its one output."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, values: npt.NDArray[Any]) -> str:
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, "float32"))

    def weight(self, *shape: int, fan_in: int, gain: float = 1.0) -> str:
        """Normal values whose sums over `fan_in` of them have variance `gain`."""
        values = self._rng.standard_normal(shape) * (gain / fan_in) ** 0.5
        return self.constant(values.astype("float32"))

    def linear(self, x: str, inner: int, outer: int) -> str:
        product = self.op("MatMul", x, self.weight(inner, outer, fan_in=inner))
        return self.op("Add", product, self.weight(outer, fan_in=100))

    def conv(self, x: str, inner: int, outer: int, size: int, stride: int) -> str:
        kernel = self.weight(outer, inner, size, size, fan_in=inner * size * size)
        bias = self.weight(outer, fan_in=100)
        options = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
        return self.op("Conv", x, kernel, bias, **options)

    def layer_norm(self, x: str, width: int) -> str:
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        squared = self.op("Pow", centred, self.number(2.0))
        variance = self.op("ReduceMean", squared, axes=[-1])
        spread = self.op("Sqrt", self.op("Add", variance, self.number(1e-5)))
        normed = self.op("Div", centred, spread)
        scaled = self.op("Mul", normed, self.constant(np.ones(width, "float32")))
        return self.op("Add", scaled, self.constant(np.zeros(width, "float32")))

    def gelu(self, x: str) -> str:
        erf = self.op("Erf", self.op("Div", x, self.number(2.0**0.5)))
        return self.op(
            "Mul", self.op("Mul", x, self.op("Add", erf, self.number(1.0))), self.number(0.5)
        )

    def model(self, name: str, shape: Sequence[int], end: str, result: Sequence[int]) -> Any:
        input_info = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
        output_info = helper.make_tensor_value_info(end, TensorProto.FLOAT, list(result))
        graph = helper.make_graph(self._nodes, name, [input_info], [output_info], self._weights)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)
        checker.check_model(model)
        return model


def resnet18(seed: int = 0, size: int = 224, classes: int = 1000) -> Any:
    """ResNet-18 as a ModelProto; `x` of shape (1, 3, size, size) to (1, classes)."""
    graph = _Graph(np.random.default_rng(seed))
    x = graph.op("Relu", graph.conv("x", 3, 64, 7, 2))
    x = graph.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 64
    for channels, first in RESNET18_STAGES:
        for stride in (first, 1):
            inner = graph.op("Relu", graph.conv(x, width, channels, 3, stride))
            inner = graph.conv(inner, channels, channels, 3, 1)
            if stride > 1:
                x = graph.conv(x, width, channels, 1, stride)
            x, width = graph.op("Relu", graph.op("Add", inner, x)), channels
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x))
    weight = graph.weight(classes, width, fan_in=width)
    x = graph.op("Gemm", x, weight, graph.weight(classes, fan_in=100), transB=1)
    return graph.model("resnet18", (1, 3, size, size), x, (1, classes))


def bert_block(seed: int = 0, tokens: int = 128, hidden: int = 768, heads: int = 12) -> Any:
    """One encoder block of BERT as a ModelProto; `x` and its result are (1, tokens, hidden)."""
    graph = _Graph(np.random.default_rng(seed))
    split = graph.constant(np.array([1, tokens, heads, hidden // heads]))
    full_shape = graph.constant(np.array([1, tokens, hidden]))

    def of_heads(order: Sequence[int]) -> str:
        one = graph.op("Reshape", graph.linear("x", hidden, hidden), split)
        return graph.op("Transpose", one, perm=list(order))

    query, key, value = (of_heads(order) for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
    scores = graph.op("MatMul", query, key)
    scores = graph.op("Div", scores, graph.number((hidden // heads) ** 0.5))
    seen = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    seen = graph.op("Reshape", graph.op("Transpose", seen, perm=[0, 2, 1, 3]), full_shape)
    x = graph.layer_norm(graph.op("Add", "x", graph.linear(seen, hidden, hidden)), hidden)
    wide = graph.gelu(graph.linear(x, hidden, 4 * hidden))
    x = graph.layer_norm(graph.op("Add", x, graph.linear(wide, 4 * hidden, hidden)), hidden)
    return graph.model("bert_block", (1, tokens, hidden), x, (1, tokens, hidden))
