"""How the elements of an intrinsic's buffers lie in the memory and the registers of a warp.

By scope: "warp": flat, a lane's registers side by side; "m16n8k8.*": (32, slots), as TVM's
TransformMmaBufferLayout lays it out; "wmma.*": (fragments, rows, columns), for the order inside is
nobody's business; shared and global memory: flat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.symbolic.program import MMA_SCOPE
from pruner_ms.tensorcore.fragments import places
from pruner_ms.tensorcore.intrinsics import WARP, Instruction
from pruner_ms.types import IntArray

AnyArray = npt.NDArray[Any]

MATRICES = {f"{MMA_SCOPE}{which.upper()}": which for which in "abc"}
"""Operand by scope."""


@dataclass
class Argument:
    """The part of a buffer that an intrinsic works on.

    Attributes
    ----------
    elements
        The buffer's elements, two-dimensional.
    row, column
        Where the part starts.
    turned
        Whether a fragment holds the transposed part.
    instruction
        Of an "m16n8k8.*" buffer: the instruction whose operands lie in it one after the other;
        None: as TVM lays it out.
    order
        Of a "warp" buffer: where in its tile the registers hold each element, flat. Descriptions of
        a load and of a product may agree on another order than the hardware's.
    """

    elements: AnyArray
    row: int = 0
    column: int = 0
    turned: bool = False
    order: IntArray | None = None
    instruction: Instruction | None = None

    @property
    def offset(self) -> int:
        """Element at which the part starts."""
        return self.row * self.elements.shape[1] + self.column

    def part(self, buffer: Any) -> tuple[slice, slice]:
        """Rows and columns that the intrinsic works on."""
        rows, columns = (int(size) for size in buffer.shape)
        return slice(self.row, self.row + rows), slice(self.column, self.column + columns)


def owners(
    scope: str, shape: tuple[int, int], row: Instruction | None = None, turned: bool = False
) -> tuple[IntArray, IntArray] | None:
    """Lane and slot of each element of a buffer in an "m16n8k8.*" scope; None for other scopes.

    TVM, src/tirx/transform/transform_mma_buffer_layout.cc: blocks of 32 x 8 of A, 8 x 32 of B, 16 x
    8 of C, a lane's elements of a block side by side. Of an instruction: its operands are blocks; B
    by columns (turned): two of them, one below the other, before those of the next sixteen rows; A
    by columns: its operands turned.
    """
    i, j = np.indices(shape)
    if row is not None and turned and MATRICES[scope] == "a":
        positions = places(row, "a")
        (wide, deep), (lane, slot) = positions.shape, positions.owners()
        block = i // deep * (shape[1] // wide) + j // wide
        within = j % wide, i % deep
        return lane[within], block * positions.row.shape[1] + slot[within]
    if row is not None and turned:
        positions = places(row, MATRICES[scope])
        (deep, wide), (lane, slot) = positions.shape, positions.owners()
        within = j % deep, i % wide
        block = (i // 16 * (shape[1] // deep) + j // deep) * 2 + i % 16 // wide
        return lane[within], block * positions.row.shape[1] + slot[within]
    if row is not None and scope in MATRICES:
        positions = places(row, MATRICES[scope])
        (rows, columns), (lane, slot) = positions.shape, positions.owners()
        block = i // rows * (shape[1] // columns) + j // columns
        within = i % rows, j % columns
        return lane[within], block * positions.row.shape[1] + slot[within]
    if scope == "m16n8k8.matrixA":
        block, inside = i // 32 * (shape[1] // 8) + j // 8, i % 32 // 8 * 2 + j % 2
        return i % 8 * 4 + j % 8 // 2, block * 8 + inside
    if scope == "m16n8k8.matrixB":
        block, inside = i // 8 * (shape[1] // 32) + j // 32, j % 32 // 8 * 2 + i % 2
        return j % 8 * 4 + i % 8 // 2, block * 8 + inside
    if scope == "m16n8k8.matrixC":
        block, inside = i // 16 * (shape[1] // 8) + j // 8, i % 16 // 8 * 2 + j % 2
        return i % 8 * 4 + j % 8 // 2, block * 4 + inside
    return None


def owned(buffer: Any, argument: Argument) -> AnyArray | None:
    """Lane that holds each element, flat; None for memory that all lanes share."""
    if buffer.scope() == "warp":
        return np.asarray(np.indices(argument.elements.shape)[0].reshape(-1) % WARP)
    holders = owners(buffer.scope(), argument.elements.shape, argument.instruction, argument.turned)
    return None if holders is None else holders[0].reshape(-1)


def placed(buffer: Any, argument: Argument) -> AnyArray:
    """Memory as instructions see it."""
    elements, scope = argument.elements, buffer.scope()
    registers = owners(scope, elements.shape, argument.instruction, argument.turned)
    if registers is not None:
        lanes = np.zeros((WARP, int(registers[1].max()) + 1), elements.dtype)
        lanes[registers] = elements
        return lanes
    if scope.startswith("wmma."):
        rows, columns = (int(size) for size in buffer.shape)
        grid = elements.reshape(-1, rows, elements.shape[1] // columns, columns)
        tiles = grid.transpose(0, 2, 1, 3).reshape(-1, rows, columns)
        return (tiles.transpose(0, 2, 1) if argument.turned else tiles).copy()
    flat = elements.copy().reshape(-1)
    if argument.order is not None:
        lanes = elements.reshape(-1, len(argument.order))
        flat.reshape(lanes.shape)[:, argument.order] = lanes
    return flat


def read(buffer: Any, argument: Argument, memory: AnyArray) -> AnyArray:
    """The elements of a buffer out of memory as instructions see it."""
    elements, scope = argument.elements, buffer.scope()
    registers = owners(scope, elements.shape, argument.instruction, argument.turned)
    if registers is not None:
        return np.asarray(memory[registers])
    if scope.startswith("wmma."):
        tiles = memory.transpose(0, 2, 1) if argument.turned else memory
        rows, columns = tiles.shape[1:]
        grid = tiles.reshape(-1, elements.shape[1] // columns, rows, columns)
        return np.asarray(grid.transpose(0, 2, 1, 3).reshape(elements.shape))
    if argument.order is not None:
        memory = memory.reshape(-1, len(argument.order))[:, argument.order]
    return memory.reshape(elements.shape)


def order(
    described: tuple[IntArray, IntArray], held: tuple[IntArray, IntArray], slots: int
) -> IntArray:
    """The `order` of a "warp" buffer.

    Parameters
    ----------
    described
        Lane and slot of each element of a matrix as descriptions have it.
    held
        The same as the registers have it.
    slots
        Elements of a lane.
    """
    permutation = np.empty(WARP * slots, np.int64)
    permutation[described[0] * slots + described[1]] = held[0] * slots + held[1]
    return permutation
