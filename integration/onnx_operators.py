"""Which operators and types of ONNX TVM's importer knows, and which it takes for something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pruner_ms.errors import UnsupportedOperatorError
from pruner_ms.integration.onnx_file import dtype_of
from pruner_ms.integration.onnx_values import all_nodes, inferred
from pruner_ms.tvm_compat import relax_paths

ONNXRUNTIMES = frozenset(
    {
        "Attention",
        "BiasGelu",
        "EmbedLayerNormalization",
        "FastGelu",
        "Gelu",
        "SkipLayerNormalization",
    }
)
"""Operators of onnxruntime's own that TVM's importer has, as onnxruntime defines them. It goes by
the name alone: others of that domain may mean something else."""


def knows(node: Any) -> bool:
    """Whether TVM's importer knows the operator of a node, and takes it for what it is."""
    if node.domain == "com.microsoft":
        return node.op_type in ONNXRUNTIMES
    known = node.domain in ("", "ai.onnx") and node.op_type in relax_paths.onnx_converters()
    return known and node.op_type != "Attention"


def refuse_unsupported(model: Any, notes: Sequence[str] = ()) -> None:
    """Raise unless TVM's importer knows every operator and type of a model.

    Parameters
    ----------
    model
        A ModelProto.
    notes
        What was made of it before, for the message.

    Raises
    ------
    UnsupportedOperatorError
        Naming every operator that it does not know.
    ModelFileError
        Naming a value whose type it does not know.
    """
    from onnx import helper

    graph = model.graph
    unknown = Counter(_full_name(node) for node in all_nodes(graph) if not knows(node))
    if unknown:
        named = ", ".join(f"{name} ({count} times)" for name, count in sorted(unknown.items()))
        raise UnsupportedOperatorError(
            f"TVM's ONNX importer does not know these operators of the model: {named}; "
            f"{'; '.join((*notes, 'export the model without them, or with another opset'))}"
        )
    if graph.sparse_initializer:
        raise UnsupportedOperatorError(
            "TVM's ONNX importer does not know sparse tensors, such as "
            f"{graph.sparse_initializer[0].values.name!r}; make them dense"
        )
    types = {item.name: item.type for item in graph.input}
    types = inferred(graph.node, types, graph.initializer, model.opset_import)
    for tensor in graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for name, kind in types.items():
        if kind.tensor_type.elem_type:
            dtype_of(name, kind)


def _full_name(node: Any) -> str:
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
