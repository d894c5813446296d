"""Expressions of a lowered GPU kernel, as functions that give their values for all threads."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.tvm_compat.exprs import dtype_of
from pruner_ms.tvm_compat.paths import as_int
from pruner_ms.types import BoolArray, IntArray
from tests.support.kernel_memory import elements, lanes_of, spread
from tests.support.lanes import operator_name, root

AnyArray = npt.NDArray[Any]
Run = Callable[[], Any]


def _divided(a: Any, b: Any) -> Any:
    """C's division: towards zero for integers."""
    if np.asarray(a).dtype.kind == "f":
        return a / b
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _divided,
    "Mod": lambda a, b: a - _divided(a, b) * b,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Min": np.minimum,
    "Max": np.maximum,
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "And": np.logical_and,
    "Or": np.logical_or,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "shift_left": operator.lshift,
    "shift_right": operator.rshift,
}
_NODES = {
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "LShift": "shift_left",
    "RShift": "shift_right",
}
_CONSTANTS = ("IntImm", "FloatImm", "StringImm", "Bool")


@dataclass
class Pointer:
    """Memory, and the element of each thread in it, (N, 1)."""

    memory: Any
    place: IntArray


class Values:
    """Values of expressions for every thread of a grid.

    Attributes
    ----------
    threads
        N.
    active
        Threads that take part, bool (N,).
    values
        Of variables.
    memory, fragments
        By a buffer's variable.
    instructions
        What each instruction does, by the name of TVM's operator without its dialect.
    """

    threads: int
    active: BoolArray
    values: dict[Any, Any]
    memory: dict[Any, Any]
    fragments: dict[Any, Any]
    instructions: Mapping[str, Callable[..., Any]]

    @contextmanager
    def only(self, where: Any) -> Iterator[bool]:
        """Inside the block only threads for which a condition holds take part; whether any does."""
        before = self.active
        self.active = before & np.broadcast_to(
            np.asarray(where, np.bool_).reshape(-1), before.shape
        )
        try:
            yield bool(self.active.any())
        finally:
            self.active = before

    def value(self, expr: Any) -> Run:
        """The function that gives an expression's value: (N,), (N, L), or one for all threads."""
        kind = type(expr).__name__
        name = _NODES.get(kind, kind)
        if kind in _CONSTANTS:
            constant = expr.value
            return lambda: constant
        if name in _BINARY:
            do, a, b = _BINARY[name], self.value(expr.a), self.value(expr.b)
            return lambda: do(a(), b())
        if kind in ("Var", "SizeVar"):
            return lambda: self.values[expr]
        make = getattr(self, f"_{kind.lower()}", None)
        if make is None:
            raise TypeError(f"an expression of kind {kind}")
        return make(expr)

    def _not(self, expr: Any) -> Run:
        a = self.value(expr.a)
        return lambda: np.logical_not(a())

    def _cast(self, expr: Any) -> Run:
        value, dtype = self.value(expr.value), _element(expr)
        return lambda: np.asarray(value()).astype(dtype)

    def _ramp(self, expr: Any) -> Run:
        base, stride = self.value(expr.base), self.value(expr.stride)
        lanes = np.arange(as_int(expr.lanes))
        return lambda: np.asarray(base()).reshape(-1, 1) + np.asarray(stride()) * lanes

    def _broadcast(self, expr: Any) -> Run:
        value, lanes = self.value(expr.value), as_int(expr.lanes)
        return lambda: np.repeat(np.asarray(value()).reshape(-1, 1), lanes, axis=1)

    def _select(self, expr: Any) -> Run:
        parts = [self.value(e) for e in (expr.condition, expr.true_value, expr.false_value)]
        return lambda: _chosen(*(part() for part in parts))

    def _let(self, expr: Any) -> Run:
        var, value, body = expr.var, self.value(expr.value), self.value(expr.body)

        def run() -> Any:
            self.values[var] = value()
            return body()

        return run

    def _tensorload(self, expr: Any) -> Run:
        return self._load(expr.source, expr.indices)

    def _bufferload(self, expr: Any) -> Run:
        return self._load(expr.buffer, expr.indices)

    def _load(self, buffer: Any, indices: Sequence[Any]) -> Run:
        memory, dtype = self.memory[root(buffer.data)], str(buffer.dtype)
        place, scalar = self.value(indices[0]), lanes_of(dtype) == 1

        def run() -> Any:
            where = np.asarray(place())
            places = elements(spread(where, self.threads), dtype)
            values = memory.read(places, self.active)
            return values[:, 0] if scalar and where.ndim < 2 else values

        return run

    def _call(self, expr: Any) -> Run:
        name = operator_name(expr)
        if name == "if_then_else":
            return self._guarded(*expr.args)
        if name in _BINARY:
            do, (a, b) = _BINARY[name], [self.value(arg) for arg in expr.args]
            return lambda: do(a(), b())
        if name == "address_of":
            return self._address(expr.args[0])
        if name == "tvm_access_ptr":
            memory, offset = self.memory[root(expr.args[1])], self.value(expr.args[2])
            return lambda: Pointer(memory, spread(offset(), self.threads))
        if name not in self.instructions:
            raise TypeError(f"an instruction {expr.op.name}")
        do_it = self.instructions[name]
        args = [self._argument(arg) for arg in expr.args]
        return lambda: do_it(self, args)

    def _argument(self, arg: Any) -> Any:
        """A function that gives a value, or the variable behind a buffer's pointer."""
        if type(arg).__name__ == "Call" and operator_name(arg) == "buffer_data":
            variable = root(arg)
            return lambda: variable
        if type(arg).__name__ == "Var" and (arg in self.memory or arg in self.fragments):
            return lambda: arg
        return self.value(arg)

    def _address(self, load: Any) -> Run:
        buffer = load.source if hasattr(load, "source") else load.buffer
        memory, place = self.memory[root(buffer.data)], self.value(load.indices[0])
        return lambda: Pointer(memory, spread(place(), self.threads))

    def _guarded(self, condition: Any, then: Any, other: Any) -> Run:
        parts = [self.value(e) for e in (condition, then, other)]

        def run() -> Any:
            where = np.asarray(parts[0]())
            results = []
            for holds, part in ((where, parts[1]), (~where.astype(np.bool_), parts[2])):
                with self.only(holds):
                    results.append(part())
            return _chosen(where, *results)

        return run


def spread_values(value: Any, shape: tuple[int, ...]) -> AnyArray:
    """A value as (N, L)."""
    values = np.asarray(value)
    if values.ndim == 1:
        values = values[:, None]
    return np.broadcast_to(values, shape)


def _chosen(where: Any, then: Any, other: Any) -> AnyArray:
    """`then` where a condition holds, else `other`; conditions are of threads."""
    condition = np.asarray(where, np.bool_)
    if max(np.ndim(then), np.ndim(other)) == 2 and condition.ndim == 1:
        condition = condition[:, None]
    return np.where(condition, then, other)


def _element(expr: Any) -> str:
    """Dtype of an element of an expression."""
    return dtype_of(expr).partition("x")[0]
