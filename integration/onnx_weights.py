"""Finds the constant-filled parameters of an ONNX graph and draws them anew (`random_weights`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import ModelFileError
from pruner_ms.integration.onnx_fold import MOST
from pruner_ms.integration.onnx_values import array_of
from pruner_ms.integration.random_weights import (
    BIAS,
    MEAN,
    ROLES,
    SCALE,
    UNKNOWN,
    VARIANCE,
    WEIGHT,
    Level,
    Parameter,
    draw,
    fan_in,
    level_after,
    level_of,
)

MIN_ELEMENTS = 16
"""A tensor of fewer elements may well be meant as a constant (a scale, an axis, an epsilon)."""

_VIEWS = ("Identity", "Unsqueeze", "Squeeze", "Reshape", "Cast", "Transpose", "Flatten")


@dataclass(frozen=True)
class Replacement:
    """What was done: tensors and elements drawn anew, and what is left of constant ones."""

    tensors: int
    elements: int
    kept: int

    def note(self, seed: int) -> str | None:
        """A sentence for the user; None: there is nothing to say."""
        if self.tensors:
            return (
                f"the file holds constant-filled weights: {self.tensors} tensors "
                f"({self.elements:,} values) were replaced by random ones (seed {seed}), so that "
                "comparing outputs means something; the library computes with these, too"
            )
        if self.kept:
            return f"{self.kept} weights of the model are constant-filled; they were kept"
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
    found = constants(model.graph)
    uses = _uses(model.graph, found)
    weights = {use.root for _, use in uses if use.role == WEIGHT}
    filled = [n for n in weights if _is_filled(found[n])]
    share = sum(found[n].size for n in filled) / max(1, sum(found[n].size for n in weights))
    if not filled or share <= 0.5:
        return Replacement(0, 0, len(filled))
    asked = sum(found[n].size * found[n].dtype.itemsize for n in filled)
    if asked > MOST:
        raise ModelFileError(
            f"the model fills weights of {asked / 1e9:,.1f} GB with one number each, and "
            f"{MOST / 1e9:,.1f} GB can be drawn anew; export it with its own weights"
        )
    drawn = _draw_all(model.graph, found, uses, rng)
    _install(model.graph, drawn)
    return Replacement(len(drawn), sum(a.size for a in drawn.values()), 0)


def constants(graph: Any) -> dict[str, Parameter]:
    """Floating-point constants of a graph: initializers, constant nodes, constant fills."""
    known: dict[str, npt.NDArray[Any]] = {}
    found: dict[str, Parameter] = {}
    for tensor in graph.initializer:
        known[tensor.name] = array_of(tensor)
    for node in graph.node:
        value = _attribute(node, "value")
        if node.op_type == "Constant" and value is not None:
            known[node.output[0]] = array_of(value.t)
        elif node.op_type == "ConstantOfShape" and node.input[0] in known:
            shape = tuple(int(d) for d in known[node.input[0]])
            one = np.zeros(1, np.float32) if value is None else array_of(value.t)
            if one.dtype.kind == "f" and min(shape, default=0) >= 0:
                fill = float(one.reshape(-1)[0])
                found[node.output[0]] = Parameter(shape, one.dtype, fill, Level(fill, fill * fill))
    for name, array in known.items():
        if array.dtype.kind == "f" and array.size:
            same = bool((array == array.reshape(-1)[0]).all())
            fill_value = float(array.reshape(-1)[0]) if same else None
            found[name] = Parameter(tuple(array.shape), array.dtype, fill_value, level_of(array))
    return found


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


def _uses(graph: Any, found: Mapping[str, Parameter]) -> list[tuple[Any, _Use]]:
    """Every use of a constant in a role, with the node; views of a constant count as it."""
    root = {name: (name, p.shape) for name, p in found.items()}
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
    found: Mapping[str, Parameter],
    uses: Sequence[tuple[Any, _Use]],
    rng: np.random.Generator,
) -> dict[str, npt.NDArray[Any]]:
    """New values by name, in one pass that follows the moments."""
    by_output: dict[str, list[_Use]] = {}
    for node, use in uses:
        by_output.setdefault(node.output[0], []).append(use)
    levels = {name: p.level for name, p in found.items()}
    drawn: dict[str, npt.NDArray[Any]] = {}
    streams = _streams(rng)
    for node in graph.node:
        mine = by_output.get(node.output[0], [])
        places = {use.position for use in mine}
        data = [levels.get(n, UNKNOWN) for p, n in enumerate(node.input) if n and p not in places]
        for use in mine:
            old = found[use.root]
            if use.root not in drawn and (use.role in (MEAN, VARIANCE) or _is_filled(old)):
                moment = (data or [UNKNOWN])[0].m
                drawn[use.root] = draw(use.role, old, use.fan, moment, next(streams))
                levels[use.root] = level_of(drawn[use.root])
        result = _level_after(node.op_type, data, mine, levels, drawn)
        levels.update({name: result for name in node.output if name not in found})
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
    kept = [t for t in graph.initializer if t.name not in drawn and t.name in used]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.initializer[:]
    graph.initializer.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in drawn.items())
