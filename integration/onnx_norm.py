"""Batch normalisations of known statistics become a multiplication and an addition.

TVM folds the constants of each by compiling and running small functions, 40 s of the lowering of
DenseNet-121, whose normalisations stand before a convolution, where no simplifier can merge them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_EPSILON = 1e-5
"""ONNX's default."""


def affine(
    scale: npt.NDArray[Any],
    shift: npt.NDArray[Any],
    mean: npt.NDArray[Any],
    variance: npt.NDArray[Any],
    epsilon: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Factor and offset per channel: `y = scale (x - mean) / sqrt(variance + epsilon) + shift`.

    Parameters
    ----------
    scale, shift, mean, variance
        One value per channel, any floating-point dtype.
    epsilon
        Added to the variance.
    """
    wide = [np.asarray(v, np.float64) for v in (scale, shift, mean, variance)]
    factor = wide[0] / np.sqrt(wide[3] + epsilon)
    return factor, wide[1] - factor * wide[2]


def unfold_batch_norms(model: Any) -> int:
    """Rewrite a model's batch normalisations in place; how many were.

    Those in training, with statistics that are not constants, or of data of unknown rank stay.
    """
    from onnx import numpy_helper, shape_inference

    if not any(node.op_type == "BatchNormalization" for node in model.graph.node):
        return 0
    known = {t.name: t for t in model.graph.initializer}
    ranks = _ranks(shape_inference.infer_shapes(_bare(model)).graph)
    nodes: list[Any] = []
    count = 0
    for node in model.graph.node:
        if not _is_fixed(node, known, ranks):
            nodes.append(node)
            continue
        count += 1
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), _EPSILON)
        values = [numpy_helper.to_array(known[name]) for name in list(node.input)[1:5]]
        factor, offset = affine(values[0], values[1], values[2], values[3], epsilon)
        shape = (-1,) + (1,) * (ranks[node.input[0]] - 2)
        for suffix, array in (("factor", factor), ("offset", offset)):
            held = numpy_helper.from_array(array.astype(values[0].dtype).reshape(shape))
            held.name = f"{node.output[0]}__{suffix}"
            model.graph.initializer.append(held)
        nodes += _pair(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return count


def _pair(node: Any) -> Iterator[Any]:
    from onnx import helper

    result = node.output[0]
    yield helper.make_node("Mul", [node.input[0], f"{result}__factor"], [f"{result}__scaled"])
    yield helper.make_node("Add", [f"{result}__scaled", f"{result}__offset"], [result])


def _is_fixed(node: Any, known: Mapping[str, Any], ranks: Mapping[str, int]) -> bool:
    return (
        node.op_type == "BatchNormalization"
        and len(node.output) == 1
        and all(name in known for name in list(node.input)[1:5])
        and ranks.get(node.input[0], 0) >= 2
        and not any(a.name == "training_mode" and a.i for a in node.attribute)
    )


def _bare(model: Any) -> Any:
    """The model's graph without the numbers of its large weights: shapes need only the small."""
    import onnx

    bare = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    bare.graph.name = "shapes"
    bare.graph.node.extend(model.graph.node)
    bare.graph.input.extend(model.graph.input)
    bare.graph.output.extend(model.graph.output)
    for tensor in model.graph.initializer:
        if int(np.prod(tensor.dims)) <= 64:
            bare.graph.initializer.append(tensor)
        else:
            info = onnx.helper.make_tensor_value_info(
                tensor.name, tensor.data_type, list(tensor.dims)
            )
            bare.graph.input.append(info)
    return bare


def _ranks(graph: Any) -> dict[str, int]:
    return {
        item.name: len(item.type.tensor_type.shape.dim)
        for item in [*graph.input, *graph.value_info, *graph.output]
        if item.type.tensor_type.HasField("shape")
    }
