"""A design-space trace as plain tuples, without TVM objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import expr
from pruner_ms.tvm_compat.paths import GET_BLOCK, as_int


@dataclass(frozen=True)
class Slot:
    """A variable of the trace (a block, a loop or a number), by its index among all outputs."""

    index: int


@dataclass(frozen=True)
class Formula:
    """An expression over the trace's numbers; iteration variable k of it is slot k."""

    value: expr.Expr


@dataclass(frozen=True)
class Layout:
    """An index map.

    Attributes
    ----------
    inputs
        Number of indices that it takes.
    results
        Its expressions: iteration variable -1 - i is input i, k is slot k of the trace.
    """

    inputs: int
    results: tuple[expr.Expr, ...]


@dataclass(frozen=True)
class Opaque:
    """A value that is compared but never computed with."""

    kind: str


@dataclass(frozen=True)
class Inst:
    """One instruction.

    Attributes
    ----------
    kind
        TVM's name, `GetBlock` of older versions written as `GetSBlock`.
    inputs, attrs
        Plain values; variables as `Slot`.
    outputs
        Slots that it fills.
    decision
        Index among the sampling instructions, -1 for any other instruction.
    """

    kind: str
    inputs: tuple[Any, ...]
    attrs: tuple[Any, ...]
    outputs: tuple[int, ...]
    decision: int


def _plain(value: Any, slots: Mapping[Any, int]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = type(value).__name__
    if kind in ("IntImm", "FloatImm", "StringImm"):
        return value.value
    if kind.endswith(("RV", "Var")) and value in slots:
        return Slot(slots[value])
    if kind == "String":
        return str(value)
    if hasattr(value, "items"):
        return tuple(sorted((str(k), _plain(v, slots)) for k, v in value.items()))
    if kind in ("Array", "list", "tuple", "ShapeTuple", "List"):
        return tuple(_plain(v, slots) for v in value)
    try:
        if kind == "IndexMap":
            return _layout(value, slots)
        return Formula(expr.read(value, slots))
    except UnsupportedTrace:
        return Opaque(kind)


def _layout(index_map: Any, slots: Mapping[Any, int]) -> Layout:
    names = dict(slots)
    for i, var in enumerate(index_map.initial_indices):
        names[var] = -1 - i
    results = tuple(expr.read(index, names) for index in index_map.final_indices)
    return Layout(len(index_map.initial_indices), results)


def read_trace(trace: Any) -> tuple[Inst, ...]:
    """Read a TVM trace, which must end before the instructions of postprocessors."""
    slots: dict[Any, int] = {}
    insts: list[Inst] = []
    decisions = 0
    for inst in trace.insts:
        kind = str(inst.kind.name)
        inputs = tuple(_plain(v, slots) for v in inst.inputs)
        attrs = tuple(_plain(v, slots) for v in inst.attrs)
        outputs = tuple(range(len(slots), len(slots) + len(inst.outputs)))
        for out, slot in zip(inst.outputs, outputs, strict=True):
            slots[out] = slot
        sampled = kind.startswith("Sample")
        insts.append(
            Inst(
                "GetSBlock" if kind == GET_BLOCK else kind,
                inputs,
                attrs,
                outputs,
                decisions if sampled else -1,
            )
        )
        decisions += sampled
    return tuple(insts)


def slot_count(insts: tuple[Inst, ...]) -> int:
    """Number of slots that the instructions fill."""
    return sum(len(inst.outputs) for inst in insts)


def sampling(trace: Any) -> list[Any]:
    """The TVM instructions of a trace that carry decisions, in order."""
    return [inst for inst in trace.insts if str(inst.kind.name).startswith("Sample")]


UNDECIDED = -3
"""A compute location that TVM draws at replay."""


def decision_of(trace: Any, inst: Any) -> list[int]:
    """Decision of a sampling instruction as a list of ints (one for categoricals and locations).

    `[UNDECIDED]` if it is drawn at replay.
    """
    value = trace.get_decision(inst)
    if value is None:
        return [UNDECIDED]
    if hasattr(value, "__len__"):
        return [as_int(v) for v in value]
    return [as_int(value)]
