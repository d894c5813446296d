"""Blocks whose loops were all fused into one and split into vectors (`[None, V]`).

TVM does so with element-wise blocks. Two loops remain: `ceil(total / V)` parallel, V vectorized.

Notation
--------
e_p    extent of the block's loop p before fusion; s_p the product of the extents inside it
x      the fused iteration; digit p of x is (x // s_p) mod e_p (no mod for the outermost one of
       more than one iteration)
V      length of a vector; windows are the V iterations from a multiple of V on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from pruner_ms.symbolic.index.expr import Binary, Const, Expr, Iter
from pruner_ms.types import BoolArray, IntArray


@lru_cache(maxsize=4096)
def window_width(extents: tuple[int, ...], loop: int, vector: int) -> int:
    """Largest bounding interval of a digit over any window."""
    inner = prod(extents[loop + 1 :])
    starts = vector * np.arange(-(-prod(extents) // vector))
    first, last = starts // inner, (starts + vector - 1) // inner
    width = last - first + 1
    if prod(extents[:loop]) > 1:
        width = np.where(first // extents[loop] != last // extents[loop], extents[loop], width)
    return int(width.max())


def digit(extents: tuple[int, ...], loop: int, iteration: int) -> int:
    """A digit of a fused iteration."""
    quotient = iteration // prod(extents[loop + 1 :])
    return quotient % extents[loop] if prod(extents[:loop]) > 1 else quotient


@dataclass(frozen=True)
class FlatBlock:
    """Rows in which a block is flat, and its loops before fusion.

    Attributes
    ----------
    rows
        bool (N,).
    extents
        Of its loops, the same in all those rows.
    first
        Path position of the first of them.
    position
        Path position of the parallel loop; the vectorized one follows.
    vector
        V.
    """

    rows: BoolArray
    extents: tuple[int, ...]
    first: int
    position: int
    vector: int

    @property
    def guarded(self) -> bool:
        """Whether the last vector reaches beyond the last iteration."""
        return prod(self.extents) % self.vector != 0

    @property
    def trips(self) -> int:
        """Extent of the parallel loop."""
        return -(-prod(self.extents) // self.vector)


def last_digit(block: FlatBlock, loop: int) -> int:
    """The largest value of a digit, also of iterations beyond the end."""
    outermost = prod(block.extents[:loop]) == 1
    last = digit(block.extents, loop, block.trips * block.vector - 1)
    return last if outermost else block.extents[loop] - 1


@dataclass(frozen=True)
class FlatAccess:
    """An access of a flat block.

    Attributes
    ----------
    block
        The block.
    widths
        Elements per dimension that one vector touches at most, before clipping.
    steps
        Elements that one step of the parallel and of the vectorized loop moves.
    total_widths
        Elements per dimension that all iterations touch; None if the loops give them exactly.
    """

    block: FlatBlock
    widths: tuple[int, ...]
    steps: tuple[int, int]
    total_widths: tuple[int, ...] | None = None


def flat_access(
    block: FlatBlock,
    terms: Sequence[Sequence[tuple[int, int]]],
    sizes: Sequence[int],
    strides: Sequence[int],
) -> FlatAccess | None:
    """Describe an access of a flat block.

    Parameters
    ----------
    terms
        Per dimension: (path position, stride) of every loop that moves in it.
    sizes
        Per dimension: elements of one iteration.
    strides
        Of the buffer's dimensions.

    Returns
    -------
    None where two loops move in one dimension: then a window has no simple bounding box.
    """
    widths, total_widths = [], []
    steps = [0, 0]
    for dim, size, stride in zip(terms, sizes, strides, strict=True):
        moving = [(p - block.first, step) for p, step in dim if step]
        if len(moving) > 1:
            return None
        width = everything = size
        for loop, step in moving:
            width += abs(step) * (window_width(block.extents, loop, block.vector) - 1)
            everything += abs(step) * last_digit(block, loop)
            for i, iteration in enumerate((block.vector, 1)):
                steps[i] += step * stride * digit(block.extents, loop, iteration)
        widths.append(width)
        total_widths.append(everything)
    # iterations beyond the end count where the buffer is larger than the loops (padded)
    beyond = tuple(total_widths) if block.guarded else None
    return FlatAccess(block, tuple(widths), (steps[0], steps[1]), beyond)


# Accesses of flat blocks whose indices are not sums of single loops, by enumeration.
#
# A flat block has the same loops in all its rows, so that one table of all iterations gives what a
# vector touches.


LIMIT = 1 << 22
"""Iterations beyond which no table is made."""

Digits = tuple[tuple[int, int, int, int], ...]
"""Digits of a variable: (loop, its iterations inside the leaf, modulus or 0, stride)."""


@dataclass(frozen=True)
class Binding:
    """A variable of a flat block: a constant and digits."""

    constant: int
    digits: Digits


@dataclass(frozen=True)
class Index:
    """One dimension of an access."""

    index: Expr
    size: int
    stride: int


def _loop_values(extents: tuple[int, ...], vector: int) -> list[IntArray]:
    """Value of every loop in every iteration; beyond the end the outermost one continues."""
    x = np.arange(-(-prod(extents) // vector) * vector)
    values: list[IntArray] = []
    for loop, extent in enumerate(extents):
        value = x // prod(extents[loop + 1 :]) if extent > 1 else np.zeros_like(x)
        values.append(value % extent if prod(extents[:loop]) > 1 else value)
    return values


def _value(
    index: Expr, bindings: Mapping[int, Binding], loops: Sequence[IntArray]
) -> IntArray | None:
    """An index in every iteration; None if it contains numbers that differ by row."""
    if isinstance(index, Const):
        return np.full(len(loops[0]), index.value)
    if isinstance(index, Iter):
        total = np.full(len(loops[0]), bindings[index.key].constant)
        for loop, inside, modulus, stride in bindings[index.key].digits:
            value = loops[loop] // inside
            total += stride * (value % modulus if modulus else value)
        return total
    if not isinstance(index, Binary):
        return None
    a, b = _value(index.a, bindings, loops), _value(index.b, bindings, loops)
    if a is None or b is None:
        return None
    values: IntArray = _OPERATORS[index.op](a, b)
    return values


_OPERATORS = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
}


@lru_cache(maxsize=64)
def _measured(
    extents: tuple[int, ...],
    vector: int,
    index: Expr,
    bindings: tuple[tuple[int, Binding], ...],
) -> tuple[int, int, int, int] | None:
    """Widest interval of a vector, interval of all iterations, and first steps of the two loops."""
    loops = _loop_values(extents, vector)
    values = _value(index, dict(bindings), loops)
    if values is None:
        return None
    table = values.reshape(-1, vector)
    widest = int((table.max(axis=1) - table.min(axis=1)).max()) + 1
    first = int(table[0, 0])
    outer = int(table[1, 0]) - first if len(table) > 1 else 0
    inner = int(table[0, 1]) - first if vector > 1 else 0
    return widest, int(values.max() - values.min()) + 1, outer, inner


def tabulated(
    block: FlatBlock, indices: Sequence[Index], bindings: Mapping[int, Binding]
) -> FlatAccess | None:
    """Describe an access of a flat block by enumeration; None if it has too many iterations.

    Parameters
    ----------
    indices
        The dimensions.
    bindings
        Every variable of the block.
    """
    if prod(block.extents) > LIMIT:
        return None
    widths, total_widths, steps = [], [], [0, 0]
    key = tuple(sorted(bindings.items(), key=lambda pair: pair[0]))
    for dim in indices:
        measures = _measured(block.extents, block.vector, dim.index, key)
        if measures is None:
            return None
        widest, full, outer, inner = measures
        widths.append(widest + dim.size - 1)
        total_widths.append(full + dim.size - 1)
        steps[0] += outer * dim.stride
        steps[1] += inner * dim.stride
    return FlatAccess(block, tuple(widths), (steps[0], steps[1]), tuple(total_widths))
