"""An intrinsic's implementation on an emulated warp, beside its description on plain arrays.

A description says what elements of which buffers become; an implementation names instructions,
lanes and registers. Descriptions alone never show whether the lanes are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.tensorcore.intrinsics import WARP
from pruner_ms.types import IntArray
from tests.support import warp_ops as ops
from tests.support.lanes import LANES, Handler, Lanes, root
from tests.support.warp_memory import Argument, owned, placed, read

AnyArray = npt.NDArray[Any]


def _registers(memory: AnyArray, offset: Any, count: int) -> tuple[AnyArray, ...]:
    """Index of `count` elements of each lane's registers from an offset on."""
    slots = np.broadcast_to(offset, (WARP,))[:, None] + np.arange(count)
    return (slots,) if memory.ndim == 1 else (LANES[:, None], slots)


def _ldmatrix(lanes: Lanes, args: Sequence[Any]) -> None:
    transposed, count, _, local, offset, shared, start = args
    memory, base = lanes.pointer(shared)
    where = np.broadcast_to(base + lanes.value(start), (WARP,))
    if memory.dtype.itemsize == 1 and transposed:
        values = ops.bytes_transposed(memory, base, int(lanes.value(start)))
    else:
        values = ops.ldmatrix(memory, where, int(count), bool(transposed))
    fragment = lanes.memory[root(local)]
    fragment[_registers(fragment, lanes.value(offset), values.shape[1])] = values


def _extern(lanes: Lanes, args: Sequence[Any]) -> None:
    """`memcpy` of one element of shared memory to a register of each lane."""
    name, target, source, size = args
    memory, place = lanes.pointer(source)
    if (name.value, lanes.value(size)) != ("memcpy", memory.dtype.itemsize):
        raise TypeError(f"a call of {name.value} of {size} bytes")
    fragment, offset = lanes.pointer(target)
    fragment[_registers(fragment, offset, 1)] = memory[place][:, None]


def _mma(lanes: Lanes, args: Sequence[Any]) -> None:
    instruction, rest = ops.called(*(arg.value for arg in args[:6])), args[6:]
    held = []
    for i, count in enumerate(instruction.slots):
        memory = lanes.memory[root(rest[2 * i])]
        held.append((memory, _registers(memory, lanes.value(rest[2 * i + 1]), count)))
    a, b, c = (memory[where] for memory, where in held)
    memory, where = held[2]
    memory[where] = ops.mma(instruction, a, b, c)


def _mma_fill(lanes: Lanes, args: Sequence[Any]) -> None:
    count, local, offset = args
    memory = lanes.memory[root(local)]
    # every lane clears its own registers; the offset is that of the first one's
    memory[_registers(memory, lanes.value(offset) + LANES * int(count), int(count))] = 0


def _mma_store(lanes: Lanes, args: Sequence[Any]) -> None:
    rows, columns, target, local, offset, stride = args
    memory, base = lanes.pointer(target)
    fragment = lanes.memory[root(local)]
    count = int(rows) * int(columns) // WARP
    slot, lane = np.arange(count), LANES[:, None]
    row = 8 * (slot % 4 // 2) + lane // 4
    column = 8 * (slot // 4) + lane % 4 * 2 + slot % 2
    values = fragment[_registers(fragment, lanes.value(offset) + LANES * count, count)]
    memory[base + row * lanes.value(stride) + column] = values


def _load_fragment(lanes: Lanes, args: Sequence[Any]) -> None:
    memory, start, stride, layout = *lanes.pointer(args[5]), lanes.value(args[6]), args[7].value
    fragment = lanes.memory[root(args[0])]
    fragment[lanes.value(args[4])] = memory[_matrix(fragment, start, stride, layout)]


def _store_fragment(lanes: Lanes, args: Sequence[Any]) -> None:
    memory, start, stride, layout = *lanes.pointer(args[5]), lanes.value(args[6]), args[7].value
    fragment = lanes.memory[root(args[0])]
    memory[_matrix(fragment, start, stride, layout)] = fragment[lanes.value(args[4])]


def _matrix(fragment: AnyArray, start: int, stride: int, layout: str) -> IntArray:
    """Places of a fragment's elements in memory."""
    row, column = np.indices(fragment.shape[1:])
    if layout == "col_major":
        row, column = column, row
    return np.asarray(start + row * stride + column)


def _fill_fragment(lanes: Lanes, args: Sequence[Any]) -> None:
    lanes.memory[root(args[0])][lanes.value(args[4])] = lanes.value(args[5])


def _mma_fragments(lanes: Lanes, args: Sequence[Any]) -> None:
    d, a, b, c = ((lanes.memory[root(args[i])], lanes.value(args[i + 1])) for i in range(0, 8, 2))
    d[0][d[1]] = ops.multiply_add(a[0][a[1]], b[0][b[1]], c[0][c[1]])


HANDLERS: Mapping[str, Handler] = {
    "ldmatrix": _ldmatrix,
    "call_extern": _extern,
    "mma": _mma,
    "mma_fill": _mma_fill,
    "mma_store": _mma_store,
    "tvm_load_matrix_sync": _load_fragment,
    "tvm_store_matrix_sync": _store_fragment,
    "tvm_fill_fragment": _fill_fragment,
    "tvm_mma_sync": _mma_fragments,
}
"""Instructions by `lanes.operator_name`."""


def described(func: Any, buffers: Sequence[Any], arguments: Sequence[Argument]) -> list[AnyArray]:
    """What a description makes of its arguments' buffers; its own are compact."""
    parts = [a.part(b) for b, a in zip(buffers, arguments, strict=True)]
    flat = [a.elements[part].copy().reshape(-1) for part, a in zip(parts, arguments, strict=True)]
    variables = [root(b.data) for b in buffers]
    offsets = {b.elem_offset: 0 for b in buffers if type(b.elem_offset).__name__ == "Var"}
    Lanes(dict(zip(variables, flat, strict=True)), offsets, {}).run(func.body)
    results = [a.elements.copy() for a in arguments]
    for result, part, new in zip(results, parts, flat, strict=True):
        result[part] = new.reshape(result[part].shape)
    return results


def implemented(
    func: Any,
    buffers: Sequence[Any],
    arguments: Sequence[Argument],
    handlers: Mapping[str, Handler] = HANDLERS,
) -> list[AnyArray]:
    """What an implementation makes of its arguments' buffers, on a warp."""
    by_element = _stores(func.body)
    variables = [root(buffer.data) for buffer in buffers]
    memory: dict[Any, AnyArray] = {}
    held: dict[Any, AnyArray] = {}
    for variable, buffer, argument in zip(variables, buffers, arguments, strict=True):
        lanes = owned(buffer, argument)
        if by_element and lanes is not None:
            held[variable], memory[variable] = lanes, argument.elements.copy().reshape(-1)
        else:
            memory[variable] = placed(buffer, argument)
    Lanes(memory, _values(buffers, arguments), handlers, held).run(func.body)
    return [
        memory[variable].reshape(argument.elements.shape)
        if variable in held
        else read(buffer, argument, memory[variable])
        for variable, buffer, argument in zip(variables, buffers, arguments, strict=True)
    ]


def _stores(stmt: Any) -> bool:
    """Whether a statement stores elements itself."""
    kind = type(stmt).__name__
    if kind == "SeqStmt":
        return any(map(_stores, stmt.seq))
    inner = stmt.block.body if hasattr(stmt, "block") else getattr(stmt, "body", None)
    return kind == "BufferStore" or (inner is not None and _stores(inner))


def _values(buffers: Sequence[Any], arguments: Sequence[Argument]) -> dict[Any, int]:
    """Strides and offsets of the arguments."""
    values: dict[Any, int] = {}
    for buffer, argument in zip(buffers, arguments, strict=True):
        width = argument.elements.shape[1]
        if type(buffer.elem_offset).__name__ == "Var":
            values[buffer.elem_offset] = argument.offset
        elif argument.offset:
            raise ValueError(f"{buffer.name} starts at its first element")
        if not len(buffer.strides) and width != int(buffer.shape[1]):
            raise ValueError(f"{buffer.name} has no stride: its rows lie side by side")
        values.update(zip(buffer.strides, (width, 1), strict=False))
    return values
