"""Everything that does not depend on a model's inputs is computed before TVM sees it.

The simplifier is onnxsim (0.8.1), chosen against onnxslim (0.1.98) by trying both on sixteen small
exports that compute shapes inside the graph (Shape > Gather/Slice > Concat > Reshape, Resize,
Expand, Range, If, Pad, Tile), each with fixed input shapes, imported by TVM 0.27 and compared with
onnxruntime. Unfolded, TVM refused six. With onnxsim every one that TVM has operators for imported
and gave the right numbers. onnxslim silently folded one wrongly: `Resize` scales computed as
32/8 and 32/10 became [4, 3], the cast to float lost. onnxsim is the faster one on the bundled
ResNet-50 (1.5 s against 2.1 s) and DenseNet-121 (0.3 s against 2.4 s), the slower one on VGG-19's
575 MB (9 s against 5 s), and needs nothing but onnx. It wants initializers that are no inputs (IR
version 4), which they are made, and a rank for every output: one without is hidden behind a NonZero
that can be neither folded nor merged. Version 0.7.3, the last for Python 3.10, folds the sixteen
the same.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

_MAX_PROTO = 2_000_000_000
"""Bytes that a protobuf message can have; larger models are not simplified."""

_HIDDEN = "__hidden"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, its class if it has none."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


def all_nodes(graph: Any) -> Iterator[Any]:
    """Nodes of a graph and of the graphs inside its control flow."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from all_nodes(inner)


def skip_dropout(model: Any) -> None:
    """Turn Dropout into Identity, in place: it does nothing in inference, and TVM 0.25 lacks it."""
    used = {name for node in all_nodes(model.graph) for name in node.input}
    used |= {item.name for item in model.graph.output}
    for node in model.graph.node:
        trains = len(node.input) > 2 and node.input[2]
        if node.op_type == "Dropout" and not trains and not set(node.output[1:]) & used:
            del node.input[1:]
            del node.output[1:]
            node.ClearField("attribute")
            node.op_type = "Identity"


def fold(model: Any) -> tuple[Any, str | None]:
    """Simplify a model with fixed input shapes.

    Returns
    -------
    tuple
        The model (the one given may have been changed), and a note if it could not be simplified.
    """
    if find_spec("onnxsim") is None:
        text = "the model was not simplified: onnxsim is missing; pip install 'pruner-ms[onnx]'"
        return model, text
    if oversized(model):
        return model, "the model was not simplified: it is larger than 2 GB"
    import onnxsim

    _hide_unranked(model)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            simple, _ = onnxsim.simplify(model)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        # onnxsim's C++ and the checker inside it give these for graphs they cannot take
        _unhide(model)
        return model, f"the model was not simplified: {first_line(error)}"
    _unhide(simple)
    return simple, None


def oversized(model: Any) -> bool:
    """Whether a model is too large for one protobuf message, which cannot even tell its size."""
    from google.protobuf.message import EncodeError

    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > _MAX_PROTO:
        return True
    try:
        return int(model.ByteSize()) > _MAX_PROTO
    except EncodeError:
        return True


def _hide_unranked(model: Any) -> None:
    from onnx import TensorProto, helper

    for output in model.graph.output:
        if not output.type.tensor_type.HasField("shape"):
            name = output.name + _HIDDEN
            model.graph.node.append(helper.make_node("NonZero", [output.name], [name]))
            rows = helper.make_tensor_value_info(name, TensorProto.INT64, ["rank", name])
            output.CopyFrom(rows)


def _unhide(model: Any) -> None:
    """Give hidden outputs back, under the names of what computes them."""
    hiding = {n.output[0]: n for n in model.graph.node if n.output[0].endswith(_HIDDEN)}
    for output in model.graph.output:
        if output.name in hiding:
            node = hiding[output.name]
            output.Clear()
            output.name = node.input[0]
            model.graph.node.remove(node)
