"""Asynchronous copies that do not begin at a multiple of their bytes: the device ends the kernel.

TVM makes `cp.async` of a copy whose elements follow one another (InjectPTXAsyncCopy) and asks for
no alignment. A load that it cannot prove to be aligned it takes apart when it writes CUDA code.

Which copies are aligned depends on the length of a vector and on what is read, not on the tiles: a
vector begins at a whole number of vectors in a row of the matrix that is copied, and every row and
every vector of it is copied by somebody.

Notation
--------
L          elements of a vector
variables  of the block that copies; the last one runs along a row of the matrix, vectors with it
address    elements from the buffer's first one; a sum of one part for each variable
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pruner_ms.dtypes import bytes_of
from pruner_ms.symbolic.index import expr, forms
from pruner_ms.symbolic.index.expr import Binary, Const, Expr, Iter
from pruner_ms.symbolic.index.forms import Mask, Num
from pruner_ms.symbolic.lowering.compaction import strides_of
from pruner_ms.symbolic.lowering.copy_padding import VECTOR_BYTES
from pruner_ms.symbolic.primitives.state import Block, State, copied_without
from pruner_ms.symbolic.primitives.thread_steps import ASYNC, AUTO_COPY
from pruner_ms.symbolic.program import FRAGMENT_SCOPES
from pruner_ms.tvm_compat.passes import ASYNC_COPY, default_pass_config
from pruner_ms.types import IntArray

COPIED = (4, 8, 16)
"""Bytes of an asynchronous copy; others stay loads and stores."""

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


@dataclass(frozen=True)
class Source:
    """What a block copies, in terms of its variables.

    Attributes
    ----------
    indices, shape
        Of the buffer that is read.
    extents
        Number of each variable, and of how many values of it something is read; the last one runs
        along a row.
    ends
        Digits of variables, and below which value of them something is read.
    """

    indices: tuple[Expr, ...]
    shape: tuple[int, ...]
    extents: tuple[tuple[int, int], ...]
    ends: tuple[tuple[Expr, int], ...] = ()

    def part(self, key: int) -> IntArray | None:
        """Address by the values of a variable, the others being 0; None where that is no sum."""
        values = np.arange(dict(self.extents)[key])
        for index, end in self.ends:
            values = values[_value(index, key, values) < end]
        total: Any = np.zeros(len(values), np.int64)
        for index, stride in zip(self.indices, strides_of(self.shape), strict=True):
            if not _is_sum(index):
                return None
            total = total + _value(index, key, values) * stride
        found: IntArray = total
        return found


def _is_sum(index: Expr) -> bool:
    """Whether an index is a sum of one part for each variable, all of them known."""
    if not isinstance(index, Binary):
        return isinstance(index, Const | Iter)
    known = _is_sum(index.a) and _is_sum(index.b)
    return known and (index.op in "+-" or len(expr.variables(index)) <= 1)


def _value(index: Expr, key: int, values: IntArray) -> Any:
    """An index by the values of one variable."""
    if isinstance(index, Binary):
        return _OPERATORS[index.op](_value(index.a, key, values), _value(index.b, key, values))
    if isinstance(index, Iter):
        return values if index.key == key else 0
    return index.value if isinstance(index, Const) else 0


@lru_cache(maxsize=1024)
def is_aligned(source: Source, lanes: int) -> bool:
    """Whether all vectors of so many elements begin at a multiple of as many.

    True, too, where the elements of a vector do not follow one another, or nobody knows.
    """
    vectors = _vectors(source, lanes)
    if vectors is None or not follow(source, lanes):
        return True
    *others, _ = source.extents
    parts = [source.part(key) for key, _ in others]
    starts = [part - part[0] for part in parts if part is not None]
    return not any((start % lanes).any() for start in (vectors[:, 0], *starts))


def _vectors(source: Source, lanes: int) -> IntArray | None:
    """Addresses along a row, int64 (vectors, lanes); None where nobody knows them."""
    along, extent = source.extents[-1]
    row = source.part(along)
    return None if row is None or extent % lanes else row.reshape(-1, lanes)


@lru_cache(maxsize=1024)
def follow(source: Source, lanes: int) -> bool | None:
    """Whether the elements of each vector follow one another; None where nobody knows."""
    vectors = _vectors(source, lanes)
    return None if vectors is None else not (np.diff(vectors, axis=1) != 1).any()


def source_of(block: Block) -> Source | None:
    """What a block copies to shared memory; None where it does something else, or more.

    A condition on the variable of the vectors, as padding an image brings it, takes vectors apart
    that do not lie in the buffer's last dimension; of the others all steps are multiples.
    """
    write = block.writes[0]
    keys = [dim.index.key for dim in write.dims if isinstance(dim.index, Iter)]
    if len(block.reads) != 1 or len(keys) != len(write.dims) or not keys:
        return None
    if block.reads[0].buffer.scope != "global":
        return None
    sizes = (*block.reads[0].buffer.shape, *write.buffer.shape)
    if forms.possible(block.conditions.get(keys[-1], False)) or not all(
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
            ends[end.index.key] = forms.smaller(ends[end.index.key], end.value)
        else:
            digits.append((end.index, int(np.max(end.value))))
    read = block.reads[0]
    whole = tuple((key, int(np.max(extent))) for key, extent in ends.items())
    shape = tuple(int(np.max(size)) for size in read.buffer.shape)
    return Source(tuple(dim.index for dim in read.dims), shape, whole, tuple(digits))


def _row(block: Block) -> Num:
    """Elements of a row of the tile that the threads of a block copy."""
    key = block.writes[0].dims[-1].index
    found: Num = 1
    if block.cuts and isinstance(key, Iter):
        for leaf in block.cuts[-1].leaves:
            if leaf in block.env[key.key]:
                found = forms.times(found, leaf.extent)
    return found


def _misaligned(block: Block) -> Mask:
    """Rows in which a block's copies are not aligned."""
    ahead = any(ASYNC in loop.notes for loop in block.path)
    source = source_of(block) if ahead else None
    if source is None:
        return False
    item = bytes_of(block.reads[0].buffer.dtype)
    whole = AUTO_COPY in block.notes
    lanes: Num = VECTOR_BYTES // item if whole else block.lanes
    found: Mask = False
    for count in (size // item for size in COPIED if size > item):
        rows: Mask = forms.compare(lanes, count)
        if forms.possible(rows) and not is_aligned(source, count):
            fits = whole or forms.divides(count, _row(block))
            found = forms.either(found, forms.both(rows, fits))
    return found


def _copies_run_ahead(state: State) -> bool:
    """Whether copies are asynchronous where a software pipeline says so."""
    config = default_pass_config(state.target.kind, tensorized=True, arch=state.target.arch)
    buffers = (access.buffer for b in state.blocks for access in (*b.reads, *b.writes))
    return bool(config.get(ASYNC_COPY)) and any(
        buffer.scope.startswith(FRAGMENT_SCOPES) for buffer in buffers
    )


def aligned(state: State) -> Mask:
    """Rows of which all asynchronous copies are aligned."""
    return copied_without(state, _misaligned) if _copies_run_ahead(state) else True
