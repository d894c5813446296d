"""Batch normalisations of known statistics: part of the convolution before, or `x factor + offset`.

TVM folds the constants of each by compiling and running small functions, 40 s of the lowering of
DenseNet-121, whose normalisations stand before a convolution and cannot become part of one. Where
one can, TVM would multiply every number of the convolution's result all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.integration.onnx_values import all_nodes, array_of, inferred, subgraphs

Affine = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Factor and offset per channel."""

_EPSILON = 1e-5
"""ONNX's default."""


def affine(
    scale: npt.NDArray[Any],
    shift: npt.NDArray[Any],
    mean: npt.NDArray[Any],
    variance: npt.NDArray[Any],
    epsilon: float,
) -> Affine:
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
    """Rewrite a model's batch normalisations in place; returns how many operators were rewritten.

    Those in training, with statistics that are not constants, or of data of unknown rank stay. A
    Mul or Add of a constant per channel after a convolution becomes part of it, too.
    """
    graph = model.graph
    initializers = {t.name: t for t in graph.initializer}
    types = {item.name: item.type for item in graph.input}
    if any(node.op_type == "BatchNormalization" for node in graph.node):
        types |= inferred(graph.node, types, graph.initializer, model.opset_import)
    uses = Counter(name for node in all_nodes(graph) for name in node.input)
    inner = (one for node in all_nodes(graph) for one in subgraphs(node))
    uses.update(output.name for one in (graph, *inner) for output in one.output)
    convolutions: dict[str, Any] = {}
    nodes: list[Any] = []
    count = 0
    for node in graph.node:
        before = next((convolutions[name] for name in node.input if name in convolutions), None)
        transform = None
        if _is_fixed(node, initializers, types):
            transform = _statistics(node, initializers)
        elif before is not None:
            transform = _per_channel(node, initializers, len(initializers[before.input[1]].dims))
        if transform is not None and before is not None:
            _merge(graph, before, node.output[0], initializers, *transform)
        elif transform is not None:
            shape = (-1,) + (1,) * (_rank(types[node.input[0]]) - 2)
            dtype = array_of(initializers[node.input[1]]).dtype
            _hold(
                graph, initializers, f"{node.output[0]}__factor", transform[0].reshape(shape), dtype
            )
            _hold(
                graph, initializers, f"{node.output[0]}__offset", transform[1].reshape(shape), dtype
            )
            nodes += _pair(node)
        else:
            nodes.append(node)
            before = node if _is_convolution(node, initializers) else None
        count += transform is not None
        if before is not None and uses[before.output[0]] == 1:
            convolutions[before.output[0]] = before
    del graph.node[:]
    graph.node.extend(nodes)
    return count


def _statistics(node: Any, initializers: Mapping[str, Any]) -> Affine:
    """Factor and offset of a batch normalisation."""
    epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), _EPSILON)
    scale, shift, mean, variance = (array_of(initializers[name]) for name in node.input[1:5])
    return affine(scale, shift, mean, variance, epsilon)


def _per_channel(node: Any, initializers: Mapping[str, Any], rank: int) -> Affine | None:
    """Factor and offset of what multiplies or adds a constant per channel of data of a rank."""
    constants = [name for name in node.input if name in initializers]
    if node.op_type not in ("Mul", "Add") or len(constants) != 1:
        return None
    dims = list(initializers[constants[0]].dims)
    channels = dims[-(rank - 1) :] if len(dims) >= rank - 1 else []
    alone = not any(d != 1 for d in dims[: -(rank - 1)]) and not any(d != 1 for d in channels[1:])
    if not channels or len(dims) > rank or not alone:
        return None
    values = array_of(initializers[constants[0]]).astype(np.float64).reshape(-1)
    if node.op_type == "Mul":
        return values, np.zeros_like(values)
    return np.ones_like(values), values


def _merge(
    graph: Any,
    node: Any,
    result: str,
    initializers: dict[str, Any],
    factor: npt.NDArray[np.float64],
    offset: npt.NDArray[np.float64],
) -> None:
    """Make a convolution give the scaled and shifted result; its weights may be others', too."""
    weight = array_of(initializers[node.input[1]])
    factor, offset = (np.broadcast_to(one, (weight.shape[0],)) for one in (factor, offset))
    wide = weight.astype(np.float64) * factor.reshape((-1,) + (1,) * (weight.ndim - 1))
    if len(node.input) > 2 and node.input[2]:
        offset = offset + factor * array_of(initializers[node.input[2]]).astype(np.float64)
    _hold(graph, initializers, f"{result}__weight", wide, weight.dtype)
    _hold(graph, initializers, f"{result}__bias", offset, weight.dtype)
    node.input[1:] = [f"{result}__weight", f"{result}__bias"]
    node.output[0] = result


def _hold(
    graph: Any, initializers: dict[str, Any], name: str, array: npt.NDArray[Any], dtype: Any
) -> None:
    """Make a constant of the graph."""
    from onnx import numpy_helper

    initializers[name] = numpy_helper.from_array(array.astype(dtype), name)
    graph.initializer.append(initializers[name])


def _pair(node: Any) -> Iterator[Any]:
    from onnx import helper

    result = node.output[0]
    yield helper.make_node("Mul", [node.input[0], f"{result}__factor"], [f"{result}__scaled"])
    yield helper.make_node("Add", [f"{result}__scaled", f"{result}__offset"], [result])


def _is_convolution(node: Any, initializers: Mapping[str, Any]) -> bool:
    """Whether a node is a convolution of constant weights."""
    return node.op_type == "Conv" and all(name in initializers for name in node.input[1:] if name)


def _rank(kind: Any) -> int:
    """Dimensions of a TypeProto's tensors; 0 where that is unknown."""
    return len(kind.tensor_type.shape.dim)


def _is_fixed(node: Any, initializers: Mapping[str, Any], types: Mapping[str, Any]) -> bool:
    return (
        node.op_type == "BatchNormalization"
        and len(node.output) == 1
        and all(
            name in initializers and len(initializers[name].dims) == 1 for name in node.input[1:5]
        )
        and node.input[0] in types
        and _rank(types[node.input[0]]) >= 2
        and not any(a.name == "training_mode" and a.i for a in node.attribute)
    )
