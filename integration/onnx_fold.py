"""Everything that does not depend on a model's inputs is computed before TVM sees it.

Constants alone are computed, by onnxruntime, and no operator becomes another one: a simplifier that
fuses writes operators that the importer may not have, and that no user knows. onnxsim (0.8.1) turns
attention into an operator of onnxruntime's own; onnxruntime's offline optimisation (1.31) turns
float16 into float32 and writes its Softmax out. TVM fuses by itself.

The memory that a constant takes is known from its shape before it is computed: two hundred bytes of
a file can ask for terabytes.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from pruner_ms.errors import ModelFileError, first_line
from pruner_ms.integration.onnx_values import (
    array_of,
    bytes_of,
    inferred,
    part_of,
    reads,
    shape_of,
    subgraphs,
    used,
)

log = logging.getLogger(__name__)

Knows = Callable[[Any, Mapping[str, Any], Container[str]], bool]

MOST = 1 << 30
"""Bytes that a model's computed constants may take, on top of what `_GROWTH` allows."""

_GROWTH = 8
"""They may also take this many times the bytes of the model's weights, which may be int8."""

_RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""What gives other numbers each time is no constant."""

_NO_LARGER = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose result has an unknown shape before they run, but a known largest one."""

_NUMBERS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}
"""Attributes of Constant that hold plain numbers, and the type of the constant."""


def skip_dropout(model: Any) -> None:
    """Turn Dropout into Identity, in place: it does nothing in inference, and TVM 0.25 lacks it."""
    names = used(model.graph)
    for node in model.graph.node:
        trains = len(node.input) > 2 and node.input[2]
        if node.op_type == "Dropout" and not trains and not set(node.output[1:]) & names:
            del node.input[1:]
            del node.output[1:]
            node.ClearField("attribute")
            node.op_type = "Identity"


def inline_functions(model: Any) -> Any:
    """A model with the functions that it brings written out where they are called.

    Raises
    ------
    ModelFileError
        They cannot be.
    """
    if not model.functions:
        return model
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:
        # its C++ raises what a malformed function makes it meet, protobuf what is over 2 GB
        log.info("functions are not inlined", exc_info=True)
        raise ModelFileError(
            f"the functions in the model cannot be written out ({first_line(error)}); export it "
            "without functions"
        ) from error


def fold(model: Any, knows: Knows = lambda _node, _types, _constants: True) -> list[str]:
    """Compute the constants of a model with fixed input shapes, in place.

    What nothing depends on afterwards is removed. Operators that the importer does not know are
    written out in others where ONNX defines them so.

    Parameters
    ----------
    model
        A ModelProto.
    knows
        Whether the importer knows the operator of a node, the types of what it reads, and which
        values are constants, given.

    Returns
    -------
    list of str
        Notes: what was written out, and what could not be computed.

    Raises
    ------
    ModelFileError
        A constant would take too much memory, or a tensor of the file is damaged.
    """
    graph = model.graph
    walk = _Walk(model, knows)
    names = {output.name for output in graph.output}
    nodes = []
    for node in reversed(list(walk.rest())):
        if names & set(node.output):
            nodes.append(node)
            names |= reads(node)
    del graph.node[:], graph.initializer[:]
    graph.node.extend(reversed(nodes))
    graph.initializer.extend(t for name, t in walk.constants.items() if name in names)
    notes = []
    if walk.written:
        named = ", ".join(sorted(walk.written))
        notes.append(f"TVM's importer does not know {named}: written out in plain operators")
    if walk.failed and find_spec("onnxruntime") is None:
        notes.append(
            "the model was not simplified: onnxruntime is missing; pip install onnxruntime"
        )
    elif walk.failed:
        named = ", ".join(sorted(walk.failed))
        notes.append(f"onnxruntime does not compute constants of {named}: left as they are")
    return notes


class _Walk:
    """One pass over the nodes of a model's graph, in their order.

    Parameters
    ----------
    model, knows
        See `fold`.

    Attributes
    ----------
    constants
        Tensors that are known, by name: those of the file first.
    failed
        Operators of constants that were not computed.
    written
        Operators that were written out in others.
    """

    def __init__(self, model: Any, knows: Knows) -> None:
        self._model, self._knows = model, knows
        self._types = {item.name: item.type for item in model.graph.input}
        self.constants: dict[str, Any] = {}
        self._know(model.graph.initializer)
        self.failed: set[str] = set()
        self.written: set[str] = set()
        # what is stored in typed fields and not as bytes is little
        self._room = MOST + _GROWTH * sum(len(t.raw_data) for t in model.graph.initializer)

    def rest(self) -> Iterator[Any]:
        """The nodes that are no constants; of an If that is decided, those of its branch."""
        nodes = deque(self._model.graph.node)
        while nodes:
            node = nodes.popleft()
            if node.op_type == "If" and node.input[0] in self.constants:
                nodes.extendleft(reversed(self._branch(node)))
                continue
            names = sorted(reads(node))
            held = [self.constants[name] for name in names if name in self.constants]
            given = {n: self._types[n] for n in names if n in self._types}
            self._types |= inferred([node], given, held, self._model.opset_import)
            results = self._results(node, held)
            self._know(results)
            if results:
                continue
            others = []
            if not self._knows(node, self._types, self.constants):
                others = self._written_out(node, given)
            nodes.extendleft(reversed(others))
            if not others:
                yield node

    def _know(self, tensors: Iterable[Any]) -> None:
        from onnx import helper

        for tensor in tensors:
            self.constants[tensor.name] = tensor
            kind = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            self._types[tensor.name] = kind

    def _branch(self, node: Any) -> list[Any]:
        """The nodes of the branch that is taken, under names of their own."""
        from onnx import helper

        taken = array_of(self.constants[node.input[0]]).all()
        which = "then_branch" if taken else "else_branch"
        (branch,) = (attribute.g for attribute in node.attribute if attribute.name == which)
        _rename(branch, {name: f"{node.output[0]}/{name}" for name in _given(branch)})
        self._know(branch.initializer)
        ends = zip(branch.output, node.output, strict=True)
        return [*branch.node, *(helper.make_node("Identity", [o.name], [n]) for o, n in ends)]

    def _written_out(self, node: Any, given: Mapping[str, Any]) -> list[Any]:
        """The nodes by which ONNX defines a node's operator; nothing if it is no function."""
        from onnx import inliner

        # constants are given as inputs: onnx does not find the types of constants in the part
        part = part_of([node], given, [], self._model.opset_import)
        for name in filter(None, node.output):
            output = part.graph.output.add()
            output.name = name
            if name in self._types:
                output.type.CopyFrom(self._types[name])
        try:
            # onnx before 1.19 does not take the last argument
            names = [(node.domain, node.op_type)]
            part = inliner.inline_selected_functions(part, names, inline_schema_functions=True)
        except Exception:
            log.info("%s is not written out", node.op_type, exc_info=True)
            return []
        if any(inner.op_type == node.op_type for inner in part.graph.node):
            return []
        inside = {name for inner in part.graph.node for name in inner.output} - set(node.output)
        _rename(part.graph, {name: f"{node.output[0]}/{name}" for name in inside if name})
        self.written.add(node.op_type)
        return list(part.graph.node)

    def _results(self, node: Any, held: list[Any]) -> list[Any]:
        """What a node gives if it is a constant that can be computed; nothing otherwise."""
        if node.op_type == "Constant":
            return _held_by(node)
        if node.domain not in ("", "ai.onnx") or node.op_type in _RANDOM or any(subgraphs(node)):
            return []
        if node.op_type in ("Shape", "Size"):
            shape = shape_of(self._types[node.input[0]]) if node.input[0] in self._types else None
            return [] if shape is None else [_asked(node, shape)]
        outputs = [name for name in node.output if name]
        if not all(name in self.constants for name in node.input if name):
            return []
        sizes = [bytes_of(self._types[n]) if n in self._types else None for n in outputs]
        if None in sizes and node.op_type not in _NO_LARGER:
            return []
        self._take(node, sum(_bound(held) if size is None else size for size in sizes))
        try:
            return _run(node, held, outputs, self._model.opset_import)
        except Exception:
            # onnxruntime's errors have no common base class; TVM may know what it does not
            log.info("the constant %s is left to TVM", outputs, exc_info=True)
            self.failed.add(node.op_type)
            return []

    def _take(self, node: Any, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise ModelFileError(
                "the model computes constants that take too much memory: the operator "
                f"{node.op_type} gives {node.output[0]!r} of {size / 1e9:,.1f} GB; make it "
                "smaller, or an input of the model"
            )


def _held_by(node: Any) -> list[Any]:
    """The tensor that a Constant holds; nothing if it holds no plain numbers."""
    from onnx import TensorProto, helper, numpy_helper

    tensors = []
    for attribute in node.attribute:
        if attribute.name == "value":
            tensor = TensorProto()
            tensor.CopyFrom(attribute.t)
            tensor.name = node.output[0]
            tensors.append(tensor)
        elif attribute.name in _NUMBERS:
            array = np.array(helper.get_attribute_value(attribute), _NUMBERS[attribute.name])
            tensors.append(numpy_helper.from_array(array, node.output[0]))
    return tensors


def _asked(node: Any, shape: tuple[int, ...]) -> Any:
    """What Shape or Size gives."""
    from onnx import numpy_helper

    ends = {attribute.name: attribute.i for attribute in node.attribute}
    asked: Any = shape[ends.get("start") : ends.get("end")]
    if node.op_type == "Size":
        asked = math.prod(shape)
    return numpy_helper.from_array(np.array(asked, np.int64), node.output[0])


def _bound(tensors: Iterable[Any]) -> int:
    """Bytes of an index for each dimension of each element of tensors."""
    return sum(8 * max(1, len(t.dims)) * math.prod(t.dims) for t in tensors)


def _run(node: Any, held: list[Any], outputs: list[str], opsets: Iterable[Any]) -> list[Any]:
    """What onnxruntime makes of a node."""
    import onnxruntime
    from onnx import numpy_helper

    part = part_of([node], {}, [], opsets)
    part.graph.initializer.extend(held)
    for name in outputs:
        part.graph.output.add().name = name
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what fails is told by the exception
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.allow_released_opsets_only", "0")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        part.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    arrays = zip(outputs, session.run(outputs, {}), strict=True)
    return [numpy_helper.from_array(array, name) for name, array in arrays]


def _given(graph: Any) -> set[str]:
    """Names that a graph and those inside it give."""
    names = {item.name for item in (*graph.initializer, *graph.input)}
    for node in graph.node:
        names.update(filter(None, node.output), *map(_given, subgraphs(node)))
    return names


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Give values of a graph and those inside it other names, in place."""
    for item in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
        item.name = names.get(item.name, item.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for inner in subgraphs(node):
            _rename(inner, names)
