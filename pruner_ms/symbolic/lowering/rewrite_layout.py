"""RewriteLayout: an argument of free layout is stored in the order in which its reader reads it.

Rules: TVM's `meta_schedule/postproc/rewrite_layout.cc`. The builder removes the block that the
postprocessor inserts to rewrite the argument (RemoveWeightLayoutRewriteBlock): the program that is
measured, and described here, has an argument of the new layout. It runs last, on CPUs only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.expr import Const, Evaluator, Expr, Iter, binary
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.primitives.cache_steps import MARK
from pruner_ms.symbolic.primitives.state import Acc, Block, Buf, Dim, State
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    certain,
    either,
    mask_column,
    negate,
    possible,
    select,
    times,
    uniform_value,
)
from pruner_ms.tvm_compat.paths import PADDED_PERIODS
from pruner_ms.types import BoolArray

# SuggestIndexMap for a block whose loops were fused into one and split into vectors (`flat.py`).
#
# The index of such a block is `x = f0 * V + f1`, and the flat index of an argument is
# `v = (x // L) mod n`. TVM collects the loops of the simplified index, regardless of outer
# divisions (`schedule/analysis/layout.cc`): mostly f0 and f1, so that the argument is split at
# multiples of V. The last part is padded: the inverse map is given, so that TransformLayout does
# not check for padding. If L divides V, TVM simplifies the quotient: V / L takes the place of V. If
# the argument's inner dimension divides V / L, the argument is split there, too.
#
# Notation
# --------
# V      length of a vector
# L      iterations of x in which the index stays the same
# n      elements of the argument


Windows = tuple[int, ...]
"""Lengths w1 > w2 > ...: the dimensions are `v // w1`, `v % w1 // w2`, ... and `v % w_last`."""

UNCHANGED: Windows = (0,)
"""TVM cannot analyse the index and leaves the argument as it is."""


def windows(
    extents: Sequence[int], strides: Sequence[int], size: int, vector: int
) -> Windows | None:
    """The layout of an argument that a flat block reads; None if unknown.

    Parameters
    ----------
    extents, strides
        Iterations of the loops fused into x, outermost first, and elements of the argument that a
        step moves.
    size, vector
        n and V.
    """
    real = [(e, s) for e, s in zip(extents, strides, strict=True) if e > 1]
    moving = [i for i, (_, stride) in enumerate(real) if stride]
    if not moving:
        return None
    first, last = moving[0], moving[-1] + 1
    group = [extent for extent, _ in real[first:last]]
    if [s for _, s in real[first:last]] != [prod(group[i + 1 :]) for i in range(len(group))]:
        return None
    if prod(group) != size or (len(group) > 1 and prod(extents) <= vector):
        return None
    low = prod(e for e, _ in real[last:])
    padded = prod(extents) > vector and prod(extents) % vector
    if first and padded and not PADDED_PERIODS and size * low < vector and vector % (size * low):
        return UNCHANGED if len(group) == 1 and low == 1 else None
    return _cut(group, first == 0, low, vector)


def _cut(group: Sequence[int], outermost: bool, low: int, vector: int) -> Windows:
    """`windows` by the argument's dimensions, whether they include x's outermost loop, and L."""
    if vector % low:
        return (vector,)
    window, inner = vector // low, prod(group[1:])
    if len(group) == 1 or window % prod(group) == 0:
        return (window,)
    if window % inner == 0:
        return (window,) if outermost else (window, inner)
    return (vector,) if low == 1 and vector % group[-1] else UNCHANGED


def shape_of(size: int, cuts: Windows) -> tuple[int, ...]:
    """Dimensions of an argument after `windows`."""
    shape = [-(-size // cuts[0])]
    rest = min(size, cuts[0])
    for cut in cuts[1:]:
        shape.append(-(-rest // cut))
        rest = min(rest, cut)
    return (*shape, rest)


# SuggestIndexMap in general: the dimensions of a buffer in its reader's order.
#
# Rules: TVM's `schedule/analysis/layout.cc` and `arith/iter_affine_map.cc`. The flat index of a
# buffer is a mixed-radix number whose digits are loops, or digits of fused loops. Each digit of
# more than one iteration becomes a dimension, in the order of the loops; digits of one loop that
# are adjacent in it and in the number are one digit (TryCombineSplitFromSameSource).
#
# Notation
# --------
# digit  a leaf of a loop with its stride in the flat buffer
# real   rows in which a leaf has more than one iteration


@dataclass(frozen=True)
class Digit:
    """A leaf that moves an index.

    Attributes
    ----------
    stride
        Elements of the flat buffer that a step moves.
    extent
        Iterations; 1 in rows without its loop.
    real
        Rows in which it has more than one iteration.
    """

    leaf: Leaf
    stride: Num
    extent: Num
    real: Mask

    @property
    def end(self) -> Num:
        """The stride of the next digit of the number."""
        return times(self.stride, self.extent)


@dataclass
class Slot:
    """A dimension of the new layout, of extent 1 in rows without it."""

    index: dict[Leaf | None, Num]
    extent: Num


def flat_index(evaluator: Evaluator, dims: Sequence[Dim], shape: Sequence[Num]) -> Form:
    """The offset of an element of a row-major buffer, as a form."""
    total: Form = {}
    size: Num = 1
    for dim, extent in zip(reversed(dims), reversed(shape), strict=True):
        total = forms.add(total, forms.scale(evaluator.form(dim.index), size))
        size = times(size, extent)
    return total


def digits_of(block: Block, index: Form) -> list[Digit]:
    """The digits of a flat index, in the order of the loops around a block."""
    digits: list[Digit] = []
    left = {leaf for leaf in index if leaf is not None}
    for loop, present in zip(block.path, block.mask, strict=True):
        for leaf in loop.leaves:
            if leaf in left:
                left.remove(leaf)
                real = both(present, leaf.extent != 1)
                extent = select(present, leaf.extent, 1)
                digits.append(Digit(leaf, index[leaf], extent, real))
    if any(not isinstance(leaf.extent, int) or leaf.extent > 1 for leaf in left):
        raise UnsupportedTrace(f"RewriteLayout: a part of a loop of block {block.name} has no name")
    return [digit for digit in digits if digit.real is not False]


def complete(digits: Sequence[Digit], size: int) -> Mask:
    """Rows in which digits are a mixed-radix number that enumerates the elements of a buffer."""
    fits = _complete_in_order(digits, size)
    if not certain(fits):  # with a sampled location the order depends on the row
        fits = either(fits, _complete_in_any(digits, size))
    return fits


def _complete_in_order(digits: Sequence[Digit], size: int) -> Mask:
    """`complete` for digits that have one order in all rows."""
    order = sorted(digits, key=lambda digit: float(np.mean(digit.stride)))
    fits: Mask = True
    expected: Num = 1
    for digit in order:
        right = digit.stride == expected
        fits = both(fits, either(negate(digit.real), right))
        expected = times(expected, digit.extent)
    return both(fits, expected == size)


def _complete_in_any(digits: Sequence[Digit], size: int) -> Mask:
    """`complete` with the order of each row: a stride is the product of all extents below it.

    Two digits of equal stride do not fit: they reach less far than the product of their extents.
    """
    fits: Mask = True
    total: Num = 1
    reach: Num = 1
    for digit in digits:
        expected: Num = 1
        for other in digits:
            smaller: Mask = other.stride < digit.stride
            below = both(other.real, smaller)
            expected = select(below, times(expected, other.extent), expected)
        right = digit.stride == expected
        fits = both(fits, either(negate(digit.real), right))
        total = times(total, digit.extent)
        step = times(digit.stride, digit.extent - 1)
        reach = reach + select(digit.real, step, 0)
    counted = both(total == size, reach == size)
    return both(fits, counted)


def opposed(digits: Sequence[Digit]) -> Mask:
    """Rows in which some digits count up and some down: TryFuseIters fails there."""
    up: Mask = False
    down: Mask = False
    for digit in digits:
        falls: Mask = digit.stride < 0
        down = either(down, both(digit.real, falls))
        up = either(up, both(digit.real, negate(falls)))
    return both(up, down)


class _Joiner:
    """Joins digits while the loops are walked from the innermost outwards."""

    def __init__(self, digits: Sequence[Digit]) -> None:
        self.digits: Mapping[Leaf, int] = {digit.leaf: i for i, digit in enumerate(digits)}
        self.all = digits
        self.slots = [Slot({digit.leaf: 1}, digit.extent) for digit in digits]
        self._open: list[tuple[int, Mask]] = []  # slots that an outer digit may continue

    def leaf(self, leaf: Leaf, present: Mask) -> None:
        """Visit the next leaf of the current loop."""
        i = self.digits.get(leaf)
        if i is None:
            if self._open:
                self._close(both(present, leaf.extent != 1))
            return
        digit = self.all[i]
        for j, rows in self._open:
            follows = digit.stride == self.all[j].end
            self._join(i, j, both(both(rows, digit.real), follows))
        self._close(digit.real)
        self._open.append((i, digit.real))

    def leave(self, rows: Mask) -> None:
        """Leave a loop, in some rows."""
        self._close(rows)

    def _close(self, rows: Mask) -> None:
        left = [(j, both(open_, negate(rows))) for j, open_ in self._open]
        self._open = [(j, open_) for j, open_ in left if possible(open_)]

    def _join(self, outer: int, inner: int, rows: Mask) -> None:
        """Merge the inner slot into the outer one, in some rows."""
        if not possible(rows):
            return
        a, b = self.slots[outer], self.slots[inner]
        outer_leaf = self.all[outer].leaf
        a.index[outer_leaf] = select(rows, b.extent, a.index[outer_leaf])
        for leaf, stride in b.index.items():
            a.index[leaf] = a.index.get(leaf, 0) + select(rows, stride, 0)
            b.index[leaf] = select(rows, 0, stride)
        a.extent = select(rows, times(a.extent, b.extent), a.extent)
        b.extent = select(rows, 1, b.extent)


def dimensions(block: Block, digits: Sequence[Digit]) -> list[Slot]:
    """The dimensions of the new layout, outermost first.

    Loops that RewriteParallelVectorizeUnroll fused are one loop.
    """
    joiner = _Joiner(digits)
    for loop, present in zip(reversed(block.path), reversed(block.mask), strict=True):
        for leaf in reversed(loop.leaves):
            joiner.leaf(leaf, present)
        joiner.leave(both(present, negate(loop.glued)))
    return joiner.slots


def rewrite_layout(state: State, free: Sequence[str]) -> None:
    """Give arguments, by their names, the layout that their readers suggest."""
    for name in free:
        readers = [
            (block, read)
            for block in state.blocks
            for read in block.reads
            if read.buffer.name == name
        ]
        if any(not read.buffer.param for _, read in readers):
            raise UnsupportedTrace(f"RewriteLayout of {name}, which is not an argument")
        seen: Mask = False
        for block, read in readers:
            rows = both(block.alive, read.mask)
            state.support_only(negate(both(seen, rows)))  # of several readers the last decides
            seen = either(seen, rows)
            if possible(rows) and not _copied(state, block, read.buffer, rows):
                _pack(state, block, read, rows)


def _copied(state: State, block: Block, buffer: Buf, rows: Mask) -> bool:
    """Whether a block looks like a copy (`GetCacheReadChain`) from which no layout follows.

    Raises
    ------
    UnsupportedTrace
        It looks like a copy from which a layout follows.
    """
    if block.reduction or len(block.writes) != 1:
        return False
    others: Mask = False
    for read in block.reads:
        if read.buffer is not buffer:
            others = either(others, read.mask)
    alone = both(rows, negate(others))
    if not possible(alone):
        return False
    if possible(both(rows, others)) or not _unread(state, block.writes[0].buffer):
        raise UnsupportedTrace(f"RewriteLayout of {buffer.name}, which {block.name} copies")
    return True


def _unread(state: State, buffer: Buf) -> bool:
    """Whether all direct and indirect readers of a buffer look like copies."""
    readers = [b for b in state.blocks if any(read.buffer is buffer for read in b.reads)]
    return all(
        len(b.reads) == 1 and not b.reduction and _unread(state, b.writes[0].buffer)
        for b in readers
    )


def _pack(state: State, block: Block, read: Acc, rows: Mask) -> None:
    """Let a block read an argument in the order of its loops."""
    buffer = read.buffer
    size = _size(buffer)
    if size == 1:
        return
    if any(dim.size != 1 for dim in read.dims) or block.cuts:
        raise UnsupportedTrace(f"RewriteLayout of {buffer.name}, read by a split or tiled block")
    evaluator = state.evaluator(block)
    index = flat_index(evaluator, read.dims, buffer.shape)
    state.support_only(either(evaluator.exact, negate(rows)))
    block.reads = [other for other in block.reads if other is not read]
    flat = both(block.flat, rows)
    rest = both(rows, negate(flat))
    if possible(rest):
        block.reads += _by_loops(state, block, read, index, rest)
    if possible(flat):
        access = _by_vectors(state, block, read, index, mask_column(flat, state.rows))
        if access is None:
            state.support_only(negate(flat))
        else:
            block.reads.append(access)


def _size(buffer: Buf) -> int:
    what = f"the shape of {buffer.name}, which RewriteLayout changes,"
    return prod(uniform_value(extent, what) for extent in buffer.shape)


def _packed(buffer: Buf, shape: Sequence[Num]) -> Buf:
    """An argument in its new layout, named as CacheRead does."""
    name = f"{buffer.name.rstrip(MARK)}_global"
    return Buf(name, tuple(shape), buffer.dtype, "global", True)


def _variable(state: State, block: Block, form: Form) -> Iter:
    """A new variable of a block with a form, which is not an iteration variable."""
    key = state.next_key
    state.next_key += 1
    block.env[key] = form
    return Iter(key)


def _by_loops(state: State, block: Block, read: Acc, index: Form, rows: Mask) -> list[Acc]:
    """The packed access of a block that is not flat, and the old one in rows where it stays."""
    digits = digits_of(block, index)
    stays = both(rows, opposed(digits) if block.signed else False)
    rows = both(rows, negate(stays))
    fits = complete(digits, _size(read.buffer))
    fits = both(fits, index.get(None, 0) == 0)
    fits = both(fits, negate(block.guarded))
    state.support_only(either(fits, negate(rows)))
    accesses = [replace(read, mask=stays)] if possible(stays) else []
    if possible(rows):
        slots = dimensions(block, digits)
        packed = _packed(read.buffer, [slot.extent for slot in slots])
        dims = tuple(Dim(_variable(state, block, slot.index)) for slot in slots)
        accesses.append(Acc(packed, dims, rows))
    return accesses


def _by_vectors(state: State, block: Block, read: Acc, index: Form, rows: BoolArray) -> Acc | None:
    """The packed access of a block that is flat in some rows; None if its layout is unknown."""
    buffer, row = read.buffer, int(np.argmax(rows))
    same: Mask = True

    def at(value: Num) -> int:
        nonlocal same
        if isinstance(value, int):
            return value
        same = both(same, value == int(value[row]))
        return int(value[row])

    leaves = [leaf for loop in block.path[block.joined :] for leaf in loop.leaves]
    extents = [at(leaf.extent) for leaf in leaves]
    strides = [at(index.get(leaf, 0)) for leaf in leaves]
    first = at(index.get(None, 0))
    size = _size(buffer)
    cuts = windows(extents, strides, size, block.vector)
    if cuts is None or first or any(leaf is not None and leaf not in leaves for leaf in index):
        return None
    state.support_only(either(same, ~rows))
    if cuts == UNCHANGED:
        return replace(read, mask=rows)
    packed = _packed(buffer, shape_of(size, cuts))
    left: Expr = _variable(state, block, index)
    dims: list[Dim] = []
    for cut in cuts:
        dims.append(Dim(binary("//", left, Const(cut))))
        left = binary("%", left, Const(cut))
    return Acc(packed, (*dims, Dim(left)), rows)
