"""Misaligned asynchronous copies, on which the device aborts the kernel.

TVM makes `cp.async` of a copy of contiguous elements (InjectPTXAsyncCopy) without checking its
alignment. (Loads that are not provably aligned are split at CUDA code generation.)

Alignment depends on the length of a vector and on the buffer that is read, not on the tiles: in a
row of the copied matrix each vector begins after a whole number of vectors, and all vectors of all
rows are copied.

Notation
--------
L          elements of a vector
variables  of the copying block; the last one runs along a row of the matrix, as vectors do
address    offset in the buffer, in elements; a sum of one part for each variable
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pruner_ms.dtypes import bytes_of
from pruner_ms.symbolic.index import expr
from pruner_ms.symbolic.index.expr import Binary, Const, Expr, Iter
from pruner_ms.symbolic.lowering.compaction import strides_of
from pruner_ms.symbolic.lowering.copy_padding import VECTOR_BYTES
from pruner_ms.symbolic.primitives.state import Block, State, rows_without
from pruner_ms.symbolic.primitives.thread_steps import ASYNC, AUTO_COPY
from pruner_ms.symbolic.program import FRAGMENT_SCOPES
from pruner_ms.symbolic.rows import Mask, Num, both, divides, either, possible, smaller, times
from pruner_ms.tvm_compat.passes import ASYNC_COPY, default_pass_config
from pruner_ms.types import IntArray

ASYNC_BYTES = (4, 8, 16)
"""Sizes of asynchronous copies in bytes; other copies stay loads and stores."""

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


@dataclass(frozen=True)
class Source:
    """The source of a copying block, in terms of its variables.

    Attributes
    ----------
    indices, shape
        Of the buffer that is read.
    extents
        Each variable, by its number, and for how many of its values the buffer is read; the last
        variable runs along a row.
    ends
        Digits of variables, and the value below which the buffer is read.
    """

    indices: tuple[Expr, ...]
    shape: tuple[int, ...]
    extents: tuple[tuple[int, int], ...]
    ends: tuple[tuple[Expr, int], ...] = ()

    def part(self, key: int) -> IntArray | None:
        """Addresses for the values of a variable, the others at 0; None if they are not sums."""
        values = np.arange(dict(self.extents)[key])
        for index, end in self.ends:
            values = values[_value(index, key, values) < end]
        total: Any = np.zeros(len(values), np.int64)
        for index, stride in zip(self.indices, strides_of(self.shape), strict=True):
            if not _is_separable(index):
                return None
            total = total + _value(index, key, values) * stride
        address: IntArray = total
        return address


def _is_separable(index: Expr) -> bool:
    """Whether an index is a sum of one part for each variable, all of them supported."""
    if not isinstance(index, Binary):
        return isinstance(index, Const | Iter)
    separable = _is_separable(index.a) and _is_separable(index.b)
    return separable and (index.op in "+-" or len(expr.variables(index)) <= 1)


def _value(index: Expr, key: int, values: IntArray) -> Any:
    """An index for given values of one variable, the others at 0."""
    if isinstance(index, Binary):
        return _OPERATORS[index.op](_value(index.a, key, values), _value(index.b, key, values))
    if isinstance(index, Iter):
        return values if index.key == key else 0
    return index.value if isinstance(index, Const) else 0


@lru_cache(maxsize=1024)
def is_aligned(source: Source, lanes: int) -> bool:
    """Whether all vectors of `lanes` elements begin at a multiple of `lanes`.

    Also True if the elements of a vector are not contiguous, or their addresses are unknown.
    """
    vectors = _vectors(source, lanes)
    if vectors is None or not is_contiguous(source, lanes):
        return True
    *others, _ = source.extents
    parts = [source.part(key) for key, _ in others]
    starts = [part - part[0] for part in parts if part is not None]
    return not any((start % lanes).any() for start in (vectors[:, 0], *starts))


def _vectors(source: Source, lanes: int) -> IntArray | None:
    """Addresses along a row, int64 (vectors, lanes); None if unknown."""
    along, extent = source.extents[-1]
    row = source.part(along)
    return None if row is None or extent % lanes else row.reshape(-1, lanes)


@lru_cache(maxsize=1024)
def is_contiguous(source: Source, lanes: int) -> bool | None:
    """Whether the elements of each vector are contiguous; None if unknown."""
    vectors = _vectors(source, lanes)
    return None if vectors is None else not (np.diff(vectors, axis=1) != 1).any()


def source_of(block: Block) -> Source | None:
    """The source of a block that copies to shared memory; None for any other block.

    A condition on the variable of the vectors, e.g. the padding of an image, splits vectors outside
    the buffer's last dimension; in that dimension all steps are multiples of them.
    """
    write = block.writes[0]
    keys = [dim.index.key for dim in write.dims if isinstance(dim.index, Iter)]
    if len(block.reads) != 1 or len(keys) != len(write.dims) or not keys:
        return None
    if block.reads[0].buffer.scope != "global":
        return None
    sizes = (*block.reads[0].buffer.shape, *write.buffer.shape)
    if possible(block.conditions.get(keys[-1], False)) or not all(
        isinstance(size, int) for size in sizes
    ):
        return None
    ends = dict(zip(keys, write.buffer.shape, strict=True))
    digits = []
    for end in block.ends:
        used = expr.variables(end.index)
        if len(used) != 1 or not used <= ends.keys():
            return None
        if isinstance(end.index, Iter):
            ends[end.index.key] = smaller(ends[end.index.key], end.value)
        else:
            digits.append((end.index, int(np.max(end.value))))
    read = block.reads[0]
    extents = tuple((key, int(np.max(extent))) for key, extent in ends.items())
    shape = tuple(int(np.max(size)) for size in read.buffer.shape)
    return Source(tuple(dim.index for dim in read.dims), shape, extents, tuple(digits))


def _row(block: Block) -> Num:
    """Elements in a row of the tile that a thread block copies."""
    key = block.writes[0].dims[-1].index
    elements: Num = 1
    if block.cuts and isinstance(key, Iter):
        for leaf in block.cuts[-1].leaves:
            if leaf in block.env[key.key]:
                elements = times(elements, leaf.extent)
    return elements


def _misaligned(block: Block) -> Mask:
    """Rows in which a block's copies are not aligned."""
    ahead = any(ASYNC in loop.notes for loop in block.path)
    source = source_of(block) if ahead else None
    if source is None:
        return False
    item = bytes_of(block.reads[0].buffer.dtype)
    automatic = AUTO_COPY in block.notes
    lanes: Num = VECTOR_BYTES // item if automatic else block.lanes
    misaligned: Mask = False
    for count in (size // item for size in ASYNC_BYTES if size > item):
        rows: Mask = lanes == count
        if possible(rows) and not is_aligned(source, count):
            fits = automatic or divides(count, _row(block))
            misaligned = either(misaligned, both(rows, fits))
    return misaligned


def _copies_are_asynchronous(state: State) -> bool:
    """Whether the copies of software pipelines are asynchronous in this TVM's configuration."""
    config = default_pass_config(state.target.kind, tensorized=True, arch=state.target.arch)
    buffers = (access.buffer for b in state.blocks for access in (*b.reads, *b.writes))
    return bool(config.get(ASYNC_COPY)) and any(
        buffer.scope.startswith(FRAGMENT_SCOPES) for buffer in buffers
    )


def aligned(state: State) -> Mask:
    """Rows in which all asynchronous copies are aligned."""
    return rows_without(state, _misaligned) if _copies_are_asynchronous(state) else True
