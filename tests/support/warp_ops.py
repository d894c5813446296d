"""What the instructions of a warp do, on arrays: for judging implementations without a device.

Registers of a thread are elements, not bits: a fragment of 16-bit elements is (32, 2 x registers).
Arrays may have further dimensions before the ones named, for several warps at once.
PTX ISA 8.5: `ldmatrix` 9.7.13.4.15, `mma` 9.7.13.4.14.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.dtypes import BY_ANY_NAME
from pruner_ms.tensorcore.fragments import places
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS, WARP, Instruction
from pruner_ms.types import IntArray

AnyArray = npt.NDArray[Any]

_ROW_BYTES = 16
"""Bytes of a row of one of `ldmatrix`'s 8x8 matrices of 16 bits."""


def ldmatrix(memory: AnyArray, offsets: IntArray, count: int, transposed: bool) -> AnyArray:
    """`ldmatrix.sync.aligned.m8n8.x{count}[.trans].shared.b16`.

    Parameters
    ----------
    memory
        Shared memory, flat.
    offsets
        Element at which the row that a lane points to starts, int (32,): lanes 8q to 8q+7 point to
        the rows of matrix q.
    count
        Matrices: 1, 2 or 4.
    transposed
        Whether each matrix is transposed on the way.

    Returns
    -------
    array (32, count x elements of 32 bits), dtype of the memory

    Raises
    ------
    ValueError
        A row does not start at a multiple of 16 bytes, or elements are not of 16 bits and
        `transposed`.
    """
    size = memory.dtype.itemsize
    if transposed and size != 2:
        raise ValueError(f"ldmatrix transposes elements of 2 bytes, not of {size}")
    if (offsets * size % _ROW_BYTES).any():
        raise ValueError("ldmatrix: a row does not start at a multiple of 16 bytes")
    width = _ROW_BYTES // size
    return dealt(memory[offsets[..., : 8 * count, None] + np.arange(width)], count, transposed)


def dealt(rows: AnyArray, count: int, transposed: bool) -> AnyArray:
    """What each thread gets of `ldmatrix`'s rows (8 x count, elements of 16 bytes)."""
    *warps, _, width = rows.shape
    matrices = rows.reshape(*warps, count, 8, width)
    if transposed:
        matrices = np.swapaxes(matrices, -1, -2)
    # thread 4r+p gets the p-th 32 bits of row r
    parts = matrices.reshape(*warps, count, WARP, width // 4)
    return np.swapaxes(parts, -3, -2).reshape(*warps, WARP, -1)


def bytes_transposed(memory: AnyArray, base: int, stride: int) -> AnyArray:
    """What TVM generates for a transposed load of bytes, which `ldmatrix` does not have.

    A loop over 16 elements of each lane of a 32 x 16 matrix (`ptx_ldmatrix` in TVM).
    """
    lane, i = np.arange(WARP)[:, None], np.arange(16)
    row = i % 8 // 4 * 16 + lane % 4 * 4 + i % 4
    return np.asarray(memory[base + row * stride + lane // 4 + i // 8 * 8])


def gather(fragment: AnyArray, instruction: Instruction, which: str) -> AnyArray:
    """The matrix that a fragment holds."""
    where = places(instruction, which)
    matrix = np.empty((*fragment.shape[:-2], *where.shape), fragment.dtype)
    matrix[..., where.row, where.column] = fragment
    return matrix


def scatter(matrix: AnyArray, instruction: Instruction, which: str) -> AnyArray:
    """The fragment of a matrix."""
    where = places(instruction, which)
    return np.asarray(matrix[..., where.row, where.column])


def multiply_add(a: AnyArray, b: AnyArray, c: AnyArray) -> AnyArray:
    """A x B + C, computed wide and rounded once to the dtype of C."""
    wide = np.int64 if c.dtype.kind == "i" else np.float64
    return np.asarray(a.astype(wide) @ b.astype(wide) + c.astype(wide)).astype(c.dtype)


def cut(values: AnyArray) -> AnyArray:
    """float32 without the thirteen bits that tf32 does not have."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def called(shape: str, row: str, column: str, *dtypes: str) -> Instruction:
    """The instruction that a call of `mma` names, in TVM's words: "m16n8k16", "row", "col", "fp16".

    Raises
    ------
    ValueError
        Factors do not lie as all instructions want them.
    """
    if (row, column) != ("row", "col"):
        raise ValueError("mma takes A by rows and B by columns")
    types = "".join(BY_ANY_NAME[dtype].ptx for dtype in dtypes)
    return INSTRUCTIONS[f"mma_{shape}_{types}"]


def mma(instruction: Instruction, a: AnyArray, b: AnyArray, c: AnyArray) -> AnyArray:
    """`mma.sync.aligned.{shape}.row.col` on fragments; gives the new fragment of C."""
    if instruction.tf32:
        a, b = cut(a), cut(b)
    parts = (gather(x, instruction, w) for x, w in ((a, "a"), (b, "b"), (c, "c")))
    return scatter(multiply_add(*parts), instruction, "c")
