"""What is known of the values of an ONNX graph before it runs: shapes, types, numbers."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import ModelFileError

log = logging.getLogger(__name__)

_SMALL = 64
"""Elements up to which a tensor may tell a shape."""

_IR_VERSION = 8
"""One that every onnx and onnxruntime takes; graphs without weights of their own are the same."""


def all_nodes(graph: Any) -> Iterator[Any]:
    """Nodes of a graph and of the graphs inside its control flow."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs inside a node of control flow."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def reads(node: Any) -> set[str]:
    """Names that a node and the graphs inside it read."""
    inner = (name for graph in subgraphs(node) for name in used(graph))
    return {name for name in (*node.input, *inner) if name}


def used(graph: Any) -> set[str]:
    """Names that are read in a graph, as its outputs or by its nodes."""
    return {output.name for output in graph.output}.union(*map(reads, graph.node))


def array_of(tensor: Any) -> npt.NDArray[Any]:
    """The numbers of a TensorProto.

    Raises
    ------
    ModelFileError
        Its type is unknown, or its numbers are not as many as its shape says.
    """
    from onnx import checker, numpy_helper

    try:
        if min(tensor.dims, default=0) < 0:
            raise ValueError("a negative dimension, which numpy would work out")
        return np.asarray(numpy_helper.to_array(tensor))
    except (KeyError, ValueError, TypeError, MemoryError, checker.ValidationError) as error:
        raise ModelFileError(
            f"the model is damaged: the tensor {tensor.name!r} of type {tensor.data_type} does not "
            f"have the numbers for its shape {tuple(tensor.dims)}; export the model again"
        ) from error


def shape_of(kind: Any) -> tuple[int, ...] | None:
    """The shape of a TypeProto, None unless it is a tensor's and all dimensions are known."""
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or any(d.dim_value < 0 for d in tensor.shape.dim):
        return None
    sizes = tuple(int(d.dim_value) for d in tensor.shape.dim if d.HasField("dim_value"))
    return sizes if len(sizes) == len(tensor.shape.dim) else None


def bytes_of(kind: Any) -> int | None:
    """What a value of a TypeProto takes in memory, None where that is unknown."""
    from onnx import helper

    shape = shape_of(kind)
    try:
        item = np.dtype(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
    except (KeyError, TypeError):
        return None
    return None if shape is None or item.hasobject else math.prod(shape) * item.itemsize


def part_of(
    nodes: Iterable[Any], types: Mapping[str, Any], tensors: Iterable[Any], opsets: Iterable[Any]
) -> Any:
    """A ModelProto of nodes, without outputs and without the numbers of large tensors.

    Parameters
    ----------
    nodes
        NodeProtos in their order.
    types
        TypeProto of each input by name; tensors may be among them.
    tensors
        TensorProtos that they read; large ones become inputs.
    opsets
        What the model that they are of says of its operators.
    """
    from onnx import ModelProto, helper

    part = ModelProto(ir_version=_IR_VERSION, opset_import=opsets)
    part.graph.name = "part"
    part.graph.node.extend(nodes)
    types = dict(types)
    for tensor in tensors:
        if math.prod(tensor.dims) <= _SMALL:
            part.graph.initializer.append(tensor)
            types.pop(tensor.name, None)
        else:
            types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for name, kind in types.items():
        held = part.graph.input.add()
        held.name = name
        held.type.CopyFrom(kind)
    return part


def inferred(
    nodes: Iterable[Any], types: Mapping[str, Any], tensors: Iterable[Any], opsets: Iterable[Any]
) -> dict[str, Any]:
    """TypeProto of each result of nodes, as far as it follows; parameters as for `part_of`.

    The numbers of constants are not followed here (`data_prop`): ONNX writes out a Range of any
    size for it.
    """
    from onnx import shape_inference

    part = part_of(nodes, types, tensors, opsets)
    try:
        part = shape_inference.infer_shapes(part)
    except Exception:
        # its C++ raises whatever a malformed node makes it meet; such a node is judged by TVM
        log.info("shapes could not be inferred", exc_info=True)
    return {item.name: item.type for item in part.graph.value_info}
