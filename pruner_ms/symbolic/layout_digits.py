"""What SuggestIndexMap makes of an index: the dimensions that a buffer gets in its reader's order.

Rules: TVM's `schedule/analysis/layout.cc` and `arith/iter_affine_map.cc`. The flat index of a
buffer is a mixed-radix number whose digits are loops, or digits of fused loops. Each digit of more
than one iteration becomes a dimension, in the order of the loops; neighbouring digits of one loop
that are neighbours in the number, too, are one digit (TryCombineSplitFromSameSource).

Notation
--------
digit  a leaf of a loop with its stride in the flat buffer
real   rows in which a leaf has more than one iteration
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic import forms
from pruner_ms.symbolic.expr import Evaluator
from pruner_ms.symbolic.forms import Form, Leaf, Mask, Num
from pruner_ms.symbolic.state import Block, Dim


@dataclass(frozen=True)
class Digit:
    """A leaf that moves an index.

    Attributes
    ----------
    stride
        Elements of the flat buffer that a step moves.
    extent
        Iterations; 1 in rows in which its loop is not there.
    real
        Rows in which it has more than one iteration.
    """

    leaf: Leaf
    stride: Num
    extent: Num
    real: Mask

    @property
    def end(self) -> Num:
        """The stride with which the next digit of the number begins."""
        return forms.times(self.stride, self.extent)


@dataclass
class Slot:
    """A dimension of the new layout, of extent 1 in rows in which there is no such dimension."""

    index: dict[Leaf | None, Num]
    extent: Num


def flat_index(evaluator: Evaluator, dims: Sequence[Dim], shape: Sequence[Num]) -> Form:
    """The element of a row-major buffer that indices name, as a form."""
    total: Form = {}
    size: Num = 1
    for dim, extent in zip(reversed(dims), reversed(shape), strict=True):
        total = forms.add(total, forms.scale(evaluator.form(dim.index), size))
        size = forms.times(size, extent)
    return total


def digits_of(block: Block, index: Form) -> list[Digit]:
    """The digits of a flat index, in the order of the loops around a block."""
    found: list[Digit] = []
    left = {leaf for leaf in index if leaf is not None}
    for loop, here in zip(block.path, block.mask, strict=True):
        for leaf in loop.leaves:
            if leaf in left:
                left.remove(leaf)
                real = forms.both(here, forms.differ(leaf.extent, 1))
                extent = forms.select(here, leaf.extent, 1)
                found.append(Digit(leaf, index[leaf], extent, real))
    if any(not isinstance(leaf.extent, int) or leaf.extent > 1 for leaf in left):
        raise UnsupportedTrace(f"RewriteLayout: a part of a loop of block {block.name} has no name")
    return [digit for digit in found if digit.real is not False]


def complete(digits: Sequence[Digit], size: int) -> Mask:
    """Rows in which digits are a mixed-radix number that counts the elements of a buffer."""
    fits = _complete_in_order(digits, size)
    if not forms.certain(fits):  # with a sampled location the order depends on the row
        fits = forms.either(fits, _complete_in_any(digits, size))
    return fits


def _complete_in_order(digits: Sequence[Digit], size: int) -> Mask:
    """The same for digits that have one order in all rows."""
    order = sorted(digits, key=lambda digit: float(np.mean(digit.stride)))
    fits: Mask = True
    expected: Num = 1
    for digit in order:
        right = forms.compare(digit.stride, expected)
        fits = forms.both(fits, forms.either(forms.negate(digit.real), right))
        expected = forms.times(expected, digit.extent)
    return forms.both(fits, forms.compare(expected, size))


def _complete_in_any(digits: Sequence[Digit], size: int) -> Mask:
    """The same, with the order of each row: a stride is the product of all extents below it.

    Two digits of one stride reach less far than their product.
    """
    fits: Mask = True
    total: Num = 1
    reach: Num = 1
    for digit in digits:
        expected: Num = 1
        for other in digits:
            smaller: Mask = other.stride < digit.stride
            below = forms.both(other.real, smaller)
            expected = forms.select(below, forms.times(expected, other.extent), expected)
        right = forms.compare(digit.stride, expected)
        fits = forms.both(fits, forms.either(forms.negate(digit.real), right))
        total = forms.times(total, digit.extent)
        step = forms.times(digit.stride, digit.extent - 1)
        reach = reach + forms.select(digit.real, step, 0)
    counted = forms.both(forms.compare(total, size), forms.compare(reach, size))
    return forms.both(fits, counted)


def opposed(digits: Sequence[Digit]) -> Mask:
    """Rows in which some digits count up and some down: TryFuseIters gives up there."""
    up: Mask = False
    down: Mask = False
    for digit in digits:
        falls: Mask = digit.stride < 0
        down = forms.either(down, forms.both(digit.real, falls))
        up = forms.either(up, forms.both(digit.real, forms.negate(falls)))
    return forms.both(up, down)


class _Joiner:
    """Joins digits while the loops are walked from the innermost outwards."""

    def __init__(self, digits: Sequence[Digit]) -> None:
        self.digits: Mapping[Leaf, int] = {digit.leaf: i for i, digit in enumerate(digits)}
        self.all = digits
        self.slots = [Slot({digit.leaf: 1}, digit.extent) for digit in digits]
        self._open: list[tuple[int, Mask]] = []  # slots that a digit further out may continue

    def leaf(self, leaf: Leaf, here: Mask) -> None:
        """The next leaf of the loop that the walk is in."""
        i = self.digits.get(leaf)
        if i is None:
            if self._open:
                self._close(forms.both(here, forms.differ(leaf.extent, 1)))
            return
        digit = self.all[i]
        for j, rows in self._open:
            follows = forms.compare(digit.stride, self.all[j].end)
            self._join(i, j, forms.both(forms.both(rows, digit.real), follows))
        self._close(digit.real)
        self._open.append((i, digit.real))

    def leave(self, rows: Mask) -> None:
        """The walk leaves a loop, in some rows."""
        self._close(rows)

    def _close(self, rows: Mask) -> None:
        left = [(j, forms.both(open_, forms.negate(rows))) for j, open_ in self._open]
        self._open = [(j, open_) for j, open_ in left if forms.possible(open_)]

    def _join(self, outer: int, inner: int, rows: Mask) -> None:
        """Let one slot take over another one, in some rows."""
        if not forms.possible(rows):
            return
        a, b = self.slots[outer], self.slots[inner]
        own = self.all[outer].leaf
        a.index[own] = forms.select(rows, b.extent, a.index[own])
        for leaf, stride in b.index.items():
            a.index[leaf] = a.index.get(leaf, 0) + forms.select(rows, stride, 0)
            b.index[leaf] = forms.select(rows, 0, stride)
        a.extent = forms.select(rows, forms.times(a.extent, b.extent), a.extent)
        b.extent = forms.select(rows, 1, b.extent)


def dimensions(block: Block, digits: Sequence[Digit]) -> list[Slot]:
    """The dimensions of the new layout, outermost first.

    Loops that RewriteParallelVectorizeUnroll fused are one loop.
    """
    joiner = _Joiner(digits)
    for loop, here in zip(reversed(block.path), reversed(block.mask), strict=True):
        for leaf in reversed(loop.leaves):
            joiner.leaf(leaf, here)
        joiner.leave(forms.both(here, forms.negate(loop.glued)))
    return joiner.slots
