"""Run a tensor intrinsic's description or implementation on arrays: all lanes of a warp at once.

A variable bound to `threadIdx.x` is the array of all lanes; an expression over it is an array, a
store scatters. What an instruction of the warp does is looked up by its name (`testing.warp`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.tensorcore.intrinsics import WARP
from pruner_ms.tvm_compat.exprs import dtype_of
from pruner_ms.tvm_compat.paths import as_int, iter_type_name

AnyArray = npt.NDArray[Any]
Handler = Callable[["Lanes", Sequence[Any]], Any]

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "EQ": operator.eq,
    "LT": operator.lt,
}
LANES = np.arange(WARP)
_BLOCKS = ("SBlockRealize", "BlockRealize")


def root(data: Any) -> Any:
    """The variable behind a buffer's `data`, which is a call on the buffer from 0.26 on."""
    return data.args[0] if type(data).__name__ == "Call" else data


def _spatial(loop: Any) -> list[Any]:
    """The loops of a nest around one block that carry no reduction; [] where that is not clear."""
    nest = [loop]
    while type(nest[-1].body).__name__ == "For":
        nest.append(nest[-1].body)
    realize = nest[-1].body
    if type(realize).__name__ not in _BLOCKS or any(
        each.thread_binding is not None for each in nest
    ):
        return []
    types = [iter_type_name(v) for v in realize.block.iter_vars]
    return [
        each
        for each in nest
        if any(
            t == "S" and each.loop_var.same_as(value)
            for t, value in zip(types, realize.iter_values, strict=True)
        )
    ]


class Lanes:
    """A function of TIR over memory.

    Parameters
    ----------
    memory
        Array behind each buffer variable of the function; flat where elements are named.
    values
        Of its free variables: strides, offsets.
    handlers
        What each instruction does, by the name of the operator without its dialect.
    owners
        Lane in whose registers an element is, by buffer variable; others may not name it.
    """

    def __init__(
        self,
        memory: Mapping[Any, AnyArray],
        values: Mapping[Any, int],
        handlers: Mapping[str, Handler],
        owners: Mapping[Any, AnyArray] | None = None,
    ) -> None:
        self.memory, self.handlers, self.owners = dict(memory), handlers, dict(owners or {})
        self.values: dict[Any, Any] = dict(values)

    def run(self, stmt: Any) -> None:
        """Run a statement."""
        kind = type(stmt).__name__
        if kind in _BLOCKS:
            self._block(stmt)
        elif kind == "SeqStmt":
            for part in stmt.seq:
                self.run(part)
        elif kind == "For":
            self._loop(stmt)
        elif kind == "Evaluate":
            self.value(stmt.value)
        elif kind == "BufferStore":
            memory, place = self.element(stmt.buffer, stmt.indices)
            memory[place] = self.value(stmt.value)
        else:
            raise TypeError(f"a statement of kind {kind}")

    def _block(self, realize: Any) -> None:
        block = realize.block
        values = {
            v.var: self.value(e) for v, e in zip(block.iter_vars, realize.iter_values, strict=True)
        }
        with self._with(values):
            self.run(block.body)

    def _loop(self, loop: Any) -> None:
        binding = loop.thread_binding
        if binding is not None and str(binding.thread_tag) == "threadIdx.x":
            with self._with({loop.loop_var: LANES}):
                self.run(loop.body)
            return
        if loop.loop_var in self.values:
            self.run(loop.body)
            return
        spatial = _spatial(loop)
        if spatial:
            # all iterations at once: none of them reads what another one writes
            points = np.indices([as_int(each.extent) for each in spatial]).reshape(len(spatial), -1)
            variables = [each.loop_var for each in spatial]
            with self._with(dict(zip(variables, points, strict=True))):
                self.run(loop.body)
            return
        for i in range(as_int(loop.extent)):
            with self._with({loop.loop_var: i + as_int(loop.min)}):
                self.run(loop.body)

    @contextmanager
    def _with(self, values: Mapping[Any, Any]) -> Iterator[None]:
        before = self.values
        self.values = {**before, **values}
        try:
            yield
        finally:
            self.values = before

    def element(self, buffer: Any, indices: Sequence[Any]) -> tuple[AnyArray, Any]:
        """Memory and flat place of an element of a buffer; an array of places where lanes differ.

        Raises
        ------
        ValueError
            The element is in another lane's registers.
        """
        variable, place = root(buffer.data), self.value(buffer.elem_offset)
        for index, stride in zip(indices, self.strides(buffer), strict=True):
            place = place + self.value(index) * stride
        owners = self.owners.get(variable)
        if owners is not None and (owners[place] != np.arange(WARP)).any():
            raise ValueError(f"a lane names an element of {buffer.name} that another one holds")
        return self.memory[variable], place

    def pointer(self, expr: Any) -> tuple[AnyArray, Any]:
        """Memory and offset of a `tvm_access_ptr`."""
        return self.memory[root(expr.args[1])], self.value(expr.args[2])

    def strides(self, buffer: Any) -> list[int]:
        """Strides of a buffer in elements."""
        if len(buffer.strides):
            return [self.value(stride) for stride in buffer.strides]
        sizes = [as_int(size) for size in buffer.shape]
        return [int(np.prod(sizes[d + 1 :], dtype=np.int64)) for d in range(len(sizes))]

    def value(self, expr: Any) -> Any:
        """Value of an expression, or of what stands for one: a number, or one for each lane."""
        if isinstance(expr, int | np.ndarray):
            return expr
        kind = type(expr).__name__
        if kind in _BINARY:
            return _BINARY[kind](self.value(expr.a), self.value(expr.b))
        if kind in ("IntImm", "FloatImm", "StringImm"):
            return expr.value
        if kind in ("Var", "SizeVar"):
            return self.values[expr]
        if kind == "Cast":
            return np.asarray(self.value(expr.value)).astype(dtype_of(expr))
        if kind in ("BufferLoad", "TensorLoad"):
            memory, place = self.element(
                expr.source if kind == "TensorLoad" else expr.buffer, expr.indices
            )
            return memory[place]
        if kind == "Call":
            name = operator_name(expr)
            if name not in self.handlers:
                raise TypeError(f"an instruction {expr.op.name}")
            return self.handlers[name](self, expr.args)
        raise TypeError(f"an expression of kind {kind}")


def operator_name(call: Any) -> str:
    """Name of a call's operator without its dialect, e.g. "ldmatrix", "cp_async_raw"."""
    return str(call.op.name).rpartition(".")[2].removesuffix("_legacy").removeprefix("ptx_")
