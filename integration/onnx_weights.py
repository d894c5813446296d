"""Finds the constant-filled parameters of an ONNX graph and draws them anew (`random_weights`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import ModelFileError
from pruner_ms.integration.onnx_fold import MOST
from pruner_ms.integration.onnx_values import array_of

# Random weights in place of constant-filled ones, scaled so that activations stay of order one.
#
# The models in the `onnx` wheel hold shapes instead of weights (`ConstantOfShape`): every output
# is the same for every input, and a kernel that skips half of its work still passes a comparison.
# Where more than half of a model's weight elements are constant-filled, the file is such a
# stripped one, and its parameters are drawn anew. A model with one constant filter (a blur, a
# mean) is left alone.
#
# Symbols
# -------
# a(t), m(t)  mean E[t] and second moment E[t^2] of a tensor over channels and places, followed
# through the graph in one pass; inputs have 0 and 1
# v(t)        m - a^2, its variance
# F           fan-in: terms summed into one output element
#
# A weight of F inputs with moment m is drawn from N(0, 1/(F m)), so that its output has mean 0
# and moment 1: He et al. 2015 (arXiv:1502.01852) give 2/F for inputs that are a ReLU of N(0, 1),
# m = 1/2. Following a and m matters where branches are summed: a ReLU halves the moment of N(0,
# 1) but leaves most of that of a sum with a positive mean, and an error made there is multiplied
# by every residual block after it. Where m is not known, it is guessed too large rather than too
# small: outputs shrink then, instead of driving the softmax to 0 and 1. Statistics of a batch
# normalisation belong to the weights that are gone: mean from N(0, 0.01 m), variance m U(1/2,
# 3/2).


WEIGHT, BIAS, SCALE, MEAN, VARIANCE = "weight", "bias", "scale", "mean", "variance"

ROLES: Mapping[tuple[str, int], str] = MappingProxyType(
    {
        ("Conv", 1): WEIGHT,
        ("Conv", 2): BIAS,
        ("ConvTranspose", 1): WEIGHT,
        ("ConvTranspose", 2): BIAS,
        ("Gemm", 0): WEIGHT,
        ("Gemm", 1): WEIGHT,
        ("Gemm", 2): BIAS,
        ("MatMul", 0): WEIGHT,
        ("MatMul", 1): WEIGHT,
        ("Add", 0): BIAS,
        ("Add", 1): BIAS,
        ("Mul", 0): SCALE,
        ("Mul", 1): SCALE,
        ("PRelu", 1): SCALE,
        ("InstanceNormalization", 1): SCALE,
        ("InstanceNormalization", 2): BIAS,
        ("LayerNormalization", 1): SCALE,
        ("LayerNormalization", 2): BIAS,
        ("BatchNormalization", 1): SCALE,
        ("BatchNormalization", 2): BIAS,
        ("BatchNormalization", 3): MEAN,
        ("BatchNormalization", 4): VARIANCE,
    }
)
"""What a constant input is for, by operator and position."""

_SPREAD: Mapping[str, float] = MappingProxyType({"GlobalAveragePool": 0.5, "ReduceMean": 0.5})
"""What averaging leaves of the variance; the mean stays."""

_MAX_POOL = 2.5
"""Factor on moment and mean for the largest of some nine rectified Gaussian numbers."""

_RECTIFIERS = ("Relu", "LeakyRelu", "PRelu", "Gelu", "Elu", "Clip", "HardSwish")


@dataclass(frozen=True)
class Level:
    """Mean `a` and second moment `m` of a tensor."""

    a: float
    m: float


UNKNOWN = Level(0.0, 1.0)
"""Of the graph's inputs, and of whatever nothing is known about."""

_BOUNDED: Mapping[str, Level] = MappingProxyType(
    {
        "Sigmoid": Level(0.5, 0.3),
        "HardSigmoid": Level(0.5, 0.3),
        "Softmax": Level(0.0, 0.01),
        "Tanh": Level(0.0, 0.4),
    }
)
"""Outputs whose size the input does not set, roughly."""


@dataclass(frozen=True)
class Parameter:
    """A constant tensor of a model and the value that fills it (None: its elements differ)."""

    shape: tuple[int, ...]
    dtype: Any
    fill: float | None
    level: Level

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def fan_in(op: str, position: int, shape: Sequence[int], trans: tuple[bool, bool]) -> int:
    """F of a weight.

    Parameters
    ----------
    op, position
        Operator and which of its inputs the weight is.
    shape
        Shape of the weight as the operator gets it.
    trans
        Whether a Gemm's A and B are transposed.
    """
    if op == "Conv":
        return max(1, math.prod(shape[1:]))
    if op == "ConvTranspose":
        return max(1, shape[0] * math.prod(shape[2:]))
    if len(shape) < 2:
        return max(1, shape[-1])
    sums_last = position == 0
    if op == "Gemm" and trans[position]:
        sums_last = not sums_last
    return max(1, shape[-1] if sums_last else shape[-2])


def draw(
    role: str, parameter: Parameter, fan: int, moment: float, rng: np.random.Generator
) -> npt.NDArray[Any]:
    """Random values for a parameter of a role; `moment` is m of the data it meets."""
    shape = parameter.shape
    if role == WEIGHT:
        scale = np.float32(1.0 / math.sqrt(fan * max(moment, 1e-6)))
        values = rng.standard_normal(shape, dtype=np.float32)
        values *= scale
        return values.astype(parameter.dtype, copy=False)
    if role == SCALE:
        return rng.uniform(0.5, 1.5, shape).astype(parameter.dtype)
    if role == VARIANCE:
        return (moment * rng.uniform(0.5, 1.5, shape)).astype(parameter.dtype)
    width = 0.1 * (math.sqrt(moment) if role == MEAN else 1.0)
    return (width * rng.standard_normal(shape)).astype(parameter.dtype)


def rectified(level: Level) -> Level:
    """Level of max(t, 0) for t from N(a, v), in closed form."""
    deviation = math.sqrt(max(level.m - level.a**2, 1e-12))
    z = level.a / deviation
    below = 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    mean = level.a * below + deviation * density
    return Level(mean, level.m * below + level.a * deviation * density)


def summed(levels: Sequence[Level]) -> Level:
    """Level of a sum of independent tensors: means and variances add."""
    mean = sum(level.a for level in levels)
    return Level(mean, mean**2 + sum(level.m - level.a**2 for level in levels))


def level_after(op: str, data: Sequence[Level], drawn: bool, scale: Level, shift: Level) -> Level:
    """Level of an operator's output.

    Parameters
    ----------
    op
        Operator.
    data
        Levels of its inputs, without weights.
    drawn
        Whether its weight was drawn for this input.
    scale, shift
        Levels of a normalisation's two parameters.
    """
    first = data[0] if data else UNKNOWN
    if drawn:
        return Level(0.0, 1.0)
    if op.endswith("Normalization"):
        return Level(shift.a, 1.1 * scale.m + shift.m)
    if op in ("Add", "Sum", "Sub"):
        return summed(data)
    if op == "Mul":
        return Level(math.prod(d.a for d in data), math.prod(d.m for d in data))
    if op == "Concat":
        return Level(float(np.mean([d.a for d in data])), float(np.mean([d.m for d in data])))
    if op in _RECTIFIERS:
        return rectified(first)
    if op == "MaxPool":
        return Level(first.a * math.sqrt(_MAX_POOL), first.m * _MAX_POOL)
    spread = _SPREAD.get(op, 1.0)
    return _BOUNDED.get(op, Level(first.a, first.a**2 + spread * (first.m - first.a**2)))


def level_of(values: npt.NDArray[Any]) -> Level:
    """Level of known values; of large tensors, of their first 65,536."""
    some = values.reshape(-1)[:65536].astype(np.float64)
    return Level(float(some.mean()), float(np.square(some).mean()))


MIN_ELEMENTS = 16
"""A tensor of fewer elements may well be meant as a constant (a scale, an axis, an epsilon)."""

_VIEWS = ("Identity", "Unsqueeze", "Squeeze", "Reshape", "Cast", "Transpose", "Flatten")


@dataclass(frozen=True)
class Replacement:
    """What was done: tensors and elements drawn anew, and what is left of constant ones."""

    tensors: int
    elements: int
    constant_tensors: int

    def note(self, seed: int) -> str | None:
        """A sentence for the user; None: there is nothing to say."""
        if self.tensors:
            return (
                f"the file holds constant-filled weights: {self.tensors} tensors "
                f"({self.elements:,} values) were replaced by random ones (seed {seed}), so that "
                "comparing outputs means something; the library computes with these, too"
            )
        if self.constant_tensors:
            return (
                f"{self.constant_tensors} weights of the model are constant-filled; they were kept"
            )
        return None


def replace_constant_weights(model: Any, rng: np.random.Generator) -> Replacement:
    """Draw the weights of a stripped model anew, in place; a model with weights is not touched.

    Parameters
    ----------
    model
        A ModelProto.
    rng
        Every tensor gets a child of it.
    """
    parameters = constants(model.graph)
    uses = _uses(model.graph, parameters)
    weights = {use.root for _, use in uses if use.role == WEIGHT}
    filled = [n for n in weights if _is_filled(parameters[n])]
    share = sum(parameters[n].size for n in filled) / max(
        1, sum(parameters[n].size for n in weights)
    )
    if not filled or share <= 0.5:
        return Replacement(0, 0, len(filled))
    asked = sum(parameters[n].size * parameters[n].dtype.itemsize for n in filled)
    if asked > MOST:
        raise ModelFileError(
            f"the model fills weights of {asked / 1e9:,.1f} GB with one number each, and "
            f"{MOST / 1e9:,.1f} GB can be drawn anew; export it with its own weights"
        )
    drawn = _draw_all(model.graph, parameters, uses, rng)
    _install(model.graph, drawn)
    return Replacement(len(drawn), sum(a.size for a in drawn.values()), 0)


def constants(graph: Any) -> dict[str, Parameter]:
    """Floating-point constants of a graph: initializers, constant nodes, constant fills."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    parameters: dict[str, Parameter] = {}
    for tensor in graph.initializer:
        arrays[tensor.name] = array_of(tensor)
    for node in graph.node:
        value = _attribute(node, "value")
        if node.op_type == "Constant" and value is not None:
            arrays[node.output[0]] = array_of(value.t)
        elif node.op_type == "ConstantOfShape" and node.input[0] in arrays:
            shape = tuple(int(d) for d in arrays[node.input[0]])
            one = np.zeros(1, np.float32) if value is None else array_of(value.t)
            if one.dtype.kind == "f" and min(shape, default=0) >= 0:
                fill = float(one.reshape(-1)[0])
                parameters[node.output[0]] = Parameter(
                    shape, one.dtype, fill, Level(fill, fill * fill)
                )
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.size:
            same = bool((array == array.reshape(-1)[0]).all())
            fill_value = float(array.reshape(-1)[0]) if same else None
            parameters[name] = Parameter(
                tuple(array.shape), array.dtype, fill_value, level_of(array)
            )
    return parameters


@dataclass(frozen=True)
class _Use:
    root: str
    role: str
    position: int
    fan: int


def _is_filled(parameter: Parameter) -> bool:
    return parameter.fill is not None and parameter.size >= MIN_ELEMENTS


def _attribute(node: Any, name: str) -> Any:
    return next((a for a in node.attribute if a.name == name), None)


def _flag(node: Any, name: str) -> bool:
    attribute = _attribute(node, name)
    return attribute is not None and bool(attribute.i)


def _uses(graph: Any, parameters: Mapping[str, Parameter]) -> list[tuple[Any, _Use]]:
    """Every use of a constant in a role, with the node; views of a constant count as it."""
    root = {name: (name, p.shape) for name, p in parameters.items()}
    uses: list[tuple[Any, _Use]] = []
    for node in graph.node:
        if node.op_type in _VIEWS and node.input[0] in root:
            origin, shape = root[node.input[0]]
            if node.op_type == "Transpose":
                perm = _attribute(node, "perm")
                order = list(perm.ints) if perm is not None else list(range(len(shape)))[::-1]
                shape = tuple(shape[i] for i in order)
            root[node.output[0]] = (origin, shape)
            continue
        for position, name in enumerate(node.input):
            role = ROLES.get((node.op_type, position))
            if role is None or name not in root:
                continue
            origin, shape = root[name]
            trans = (_flag(node, "transA"), _flag(node, "transB"))
            fan = fan_in(node.op_type, position, shape, trans) if role == WEIGHT else 1
            uses.append((node, _Use(origin, role, position, fan)))
    return uses


def _draw_all(
    graph: Any,
    parameters: Mapping[str, Parameter],
    uses: Sequence[tuple[Any, _Use]],
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[Any]]:
    """New values by name, in one pass that follows the moments."""
    by_output: dict[str, list[_Use]] = {}
    for node, use in uses:
        by_output.setdefault(node.output[0], []).append(use)
    levels = {name: p.level for name, p in parameters.items()}
    drawn: dict[str, npt.NDArray[Any]] = {}
    streams = _streams(rng)
    for node in graph.node:
        mine = by_output.get(node.output[0], [])
        places = {use.position for use in mine}
        data = [levels.get(n, UNKNOWN) for p, n in enumerate(node.input) if n and p not in places]
        for use in mine:
            old = parameters[use.root]
            if use.root not in drawn and (use.role in (MEAN, VARIANCE) or _is_filled(old)):
                moment = (data or [UNKNOWN])[0].m
                drawn[use.root] = draw(use.role, old, use.fan, moment, next(streams))
                levels[use.root] = level_of(drawn[use.root])
        result = _level_after(node.op_type, data, mine, levels, drawn)
        levels.update({name: result for name in node.output if name not in parameters})
    return drawn


def _level_after(
    op: str,
    data: Sequence[Level],
    mine: Sequence[_Use],
    levels: Mapping[str, Level],
    drawn: Mapping[str, Any],
) -> Level:
    got = {use.role: levels[use.root] for use in mine}
    fresh = any(use.role == WEIGHT and use.root in drawn for use in mine)
    given = [*data, *(levels[use.root] for use in mine if use.role != WEIGHT)]
    zero = Level(0.0, 0.0)
    return level_after(op, given, fresh, got.get(SCALE, UNKNOWN), got.get(BIAS, zero))


def _streams(rng: np.random.Generator) -> Iterator[np.random.Generator]:
    while True:
        yield rng.spawn(1)[0]


def _install(graph: Any, drawn: Mapping[str, npt.NDArray[Any]]) -> None:
    from onnx import numpy_helper

    nodes = [node for node in graph.node if not set(node.output) & set(drawn)]
    used = {name for node in nodes for name in node.input} | {o.name for o in graph.output}
    initializers = [t for t in graph.initializer if t.name not in drawn and t.name in used]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(initializers)
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in drawn.items())
