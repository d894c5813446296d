"""Which operators and types of ONNX TVM's importer knows, and which it takes for something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
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
"""Operators of onnxruntime's own that TVM's importer has, as onnxruntime defines them. The importer
goes by the name alone: other operators of that domain may mean something else."""


@dataclass(frozen=True)
class Use:
    """An operator where it is used.

    Attributes
    ----------
    node
        The NodeProto.
    types
        TypeProto of each value that is known, by name.
    constants
        Names of the values that are constants.
    """

    node: Any
    types: Mapping[str, Any]
    constants: Container[str]

    def number(self, name: str, default: int) -> int:
        """An attribute that is an integer."""
        return next((int(a.i) for a in self.node.attribute if a.name == name), default)

    def text(self, name: str) -> str:
        """An attribute that is text; empty where there is none."""
        return next((a.s.decode() for a in self.node.attribute if a.name == name), "")

    def dtype(self) -> str:
        """Type of the first input as numpy names it; empty where it is unknown."""
        kind = self.types.get(self.node.input[0]) if self.node.input else None
        return dtype_of(self.node.input[0], kind) if kind is not None else ""

    def outputs(self) -> int:
        """Results that are named."""
        return sum(bool(name) for name in self.node.output)


TAKEN_FOR_ANOTHER: Mapping[str, Callable[[Use], bool]] = MappingProxyType(
    {
        # the importer takes it for onnxruntime's operator of the same name
        "Attention": lambda use: use.node.domain != "com.microsoft",
        # the statistics that training updates are left as they were
        "BatchNormalization": lambda use: use.number("training_mode", 0) != 0,
        # a shift by more than the bits there are, or by less than none, is what the processor does
        "BitShift": lambda use: use.dtype().startswith("int"),
        # those that `skip_dropout` leaves: nothing is dropped, and the mask is not of bool
        "Dropout": lambda use: True,
        # the result has the shape asked for, even where the input's is the larger one
        "Expand": lambda use: use.node.input[1] not in use.constants,
        # both infinities are looked for
        "IsInf": lambda use: (
            not (use.number("detect_negative", 1) and use.number("detect_positive", 1))
        ),
        # mean and deviation are empty numbers
        "LayerNormalization": lambda use: use.outputs() > 1,
        # a remainder by infinity is no number
        "Mod": lambda use: not use.number("fmod", 0) and "float" in use.dtype(),
        # the largest of the samples is not what it takes
        "RoiAlign": lambda use: use.text("mode") == "max",
        # the order of the channels is not looked at
        "SpaceToDepth": lambda use: use.text("mode") == "CRD",
    }
)
"""Operators that TVM's importer (0.27) takes for something else, and in which uses, by ONNX's
backend node tests; random inputs need not show it."""


def knows(node: Any, types: Mapping[str, Any], constants: Container[str]) -> bool:
    """Whether TVM's importer knows the operator of a node, and takes it for what it is.

    Parameters
    ----------
    node, types, constants
        See `Use`.
    """
    if node.domain == "com.microsoft":
        return node.op_type in ONNXRUNTIMES
    if node.domain not in ("", "ai.onnx") or node.op_type not in relax_paths.onnx_converters():
        return False
    another = TAKEN_FOR_ANOTHER.get(node.op_type)
    return another is None or not another(Use(node, types, constants))


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
    constants = {tensor.name for tensor in graph.initializer}
    types = {item.name: item.type for item in graph.input}
    types |= inferred(graph.node, types, graph.initializer, model.opset_import)
    for tensor in graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    unknown = Counter(
        _full_name(node) for node in all_nodes(graph) if not knows(node, types, constants)
    )
    if unknown:
        named = ", ".join(f"{name} ({count} times)" for name, count in sorted(unknown.items()))
        raise UnsupportedOperatorError(
            f"TVM's ONNX importer does not know these operators of the model as they are used "
            f"there: {named}; "
            f"{'; '.join((*notes, 'export the model without them, or with another opset'))}"
        )
    if graph.sparse_initializer:
        raise UnsupportedOperatorError(
            "TVM's ONNX importer does not know sparse tensors, such as "
            f"{graph.sparse_initializer[0].values.name!r}; make them dense"
        )
    for name, kind in types.items():
        if kind.tensor_type.elem_type:
            dtype_of(name, kind)


def _full_name(node: Any) -> str:
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
