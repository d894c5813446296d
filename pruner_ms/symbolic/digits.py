"""Digits of an index that has no affine form: (A // s) mod m, as im2col leaves them behind.

A is affine. Its loops (and the parts of loops that were cut) are digits of a mixed-radix number,
so the widest interval at a level follows from how often each of them runs; what that is, is tried
out once for every set of numbers.

Notation
--------
atom   one digit of A: a loop, or a part's share in a digit of a cut loop
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.access import FusedTerm, Term
from pruner_ms.symbolic.cuts import Cut
from pruner_ms.symbolic.expr import Binary, Const, Evaluator, Expr
from pruner_ms.symbolic.forms import Form, Leaf, Mask, Num

INSIDE = 1 << 30
"""Position of what one iteration of the block runs through as a whole."""


@dataclass(frozen=True)
class Quotient:
    """`scale * ((index // low) mod modulus)`; no mod where that is 0."""

    index: Expr
    low: int
    modulus: int
    scale: int


def components(index: Expr, scale: int = 1) -> Iterator[Expr | Quotient]:
    """The summands of an index: quotients, and what has none."""
    if isinstance(index, Binary) and index.op == "+":
        yield from components(index.a, scale)
        yield from components(index.b, scale)
        return
    if isinstance(index, Binary) and index.op == "-" and isinstance(index.b, Const):
        yield from components(index.a, scale)
        yield Const(-index.b.value * scale)
        return
    if isinstance(index, Binary) and index.op == "*" and isinstance(index.b, Const):
        yield from components(index.a, scale * index.b.value)
        return
    if isinstance(index, Binary) and index.op in ("//", "%") and isinstance(index.b, Const):
        inner, modulus = index, 0
        if index.op == "%":
            modulus = index.b.value
            inner = index.a  # type: ignore[assignment]
        if isinstance(inner, Binary) and inner.op == "//" and isinstance(inner.b, Const):
            yield Quotient(inner.a, inner.b.value, modulus, scale)
        else:
            yield Quotient(inner, 1, modulus, scale)
        return
    yield index if scale == 1 else Binary("*", index, Const(scale))


@lru_cache(maxsize=1 << 16)
def spread(extents: tuple[int, ...], running: tuple[bool, ...], low: int, modulus: int) -> int:
    """Largest interval of a quotient while some atoms run; extents from the outermost on."""
    value = np.arange(prod(extents)) // low
    if modulus:
        value %= modulus
    grid = value.reshape(extents)
    axes = tuple(i for i, runs in enumerate(running) if runs)
    return int((grid.max(axis=axes) - grid.min(axis=axes)).max()) + 1


@dataclass(frozen=True)
class Atom:
    """A digit of A.

    Attributes
    ----------
    rank
        Smaller for a digit that is worth more.
    position
        Of its loop on the path.
    """

    rank: tuple[float, int]
    position: int
    stride: Num
    extent: Num


class Digit:
    """A quotient of an affine index along the loops of a block.

    Parameters
    ----------
    quotient, form
        What it is, and the affine form of what is divided.
    where
        Leaf -> position of its loop.
    cut_digits
        Leaf -> the cut loop it belongs to, and which digit of that it is.
    parts
        Cut loop -> position and number of every part.
    fused
        Leaf -> leaves that were fused inside of it.

    Attributes
    ----------
    exact
        Rows in which the widths are known.
    """

    def __init__(
        self,
        quotient: Quotient,
        form: Form,
        where: Mapping[Leaf, int],
        cut_digits: Mapping[Leaf, tuple[Cut, int]],
        parts: Mapping[Cut, list[tuple[int, int]]],
        fused: Mapping[Leaf, tuple[Leaf, ...]],
    ) -> None:
        self.quotient = quotient
        self.exact: Mask = forms.compare(form.get(None, 0), 0)
        self._moves: dict[int, Num] = {}
        self._known: dict[int, Num] = {}
        atoms: list[Atom] = []
        for leaf, stride in form.items():
            if leaf is None:
                continue
            if leaf in cut_digits:
                cut, digit = cut_digits[leaf]
                atoms += self._shares(cut, digit, stride, parts[cut])
                self.exact = forms.both(self.exact, cut.chained)
            else:
                position = where.get(leaf, INSIDE)
                atoms.append(Atom((_worth(stride, leaf), 0), position, stride, leaf.extent))
                step = FusedTerm(position, stride, leaf.extent, fused.get(leaf, ())).step()
                self._moves[position] = self._moves.get(position, 0) + step
        self.atoms = sorted(atoms, key=lambda atom: atom.rank)
        expected: Num = 1
        for atom in reversed(self.atoms):
            fits = forms.either(forms.compare(atom.extent, 1), forms.compare(atom.stride, expected))
            self.exact = forms.both(self.exact, fits)
            expected = forms.times(expected, atom.extent)

    def _shares(
        self, cut: Cut, digit: int, stride: Num, parts: list[tuple[int, int]]
    ) -> list[Atom]:
        """What each part of a cut loop moves of one of its digits."""
        low = cut.inside[digit]
        end = forms.times(low, cut.leaves[digit].extent)
        end = forms.select(cut.last(digit), forms.larger(end, cut.reach), end)
        found: list[Atom] = []
        for position, part in parts:
            first = forms.larger(low, cut.steps[part])
            last = forms.smaller(end, forms.times(cut.steps[part], cut.extents[part]))
            extent = forms.larger(last // first, 1)
            worth = (_worth(stride, cut.leaves[digit]), part)
            found.append(Atom(worth, position, forms.times(stride, first // low), extent))
            moved = forms.times(stride, cut.moved(digit, part))
            self._moves[position] = self._moves.get(position, 0) + moved
        return found

    def width(self, level: int) -> Num:
        """Largest interval while the loops from a level on run, before scaling."""
        if level not in self._known:
            self._known[level] = self._width(level)
        return self._known[level]

    def _width(self, level: int) -> Num:
        extents: list[Num] = []
        running: list[bool] = []
        for atom in self.atoms:
            runs = atom.position >= level
            if running and running[-1] == runs:
                extents[-1] = forms.times(extents[-1], atom.extent)
            else:
                extents.append(atom.extent)
                running.append(runs)
        if not any(running):
            return 1
        low, modulus = self.quotient.low, self.quotient.modulus
        arrays = [e for e in extents if isinstance(e, np.ndarray)]
        size = len(arrays[0]) if arrays else 1
        table = np.stack([forms.column(e, size) for e in extents], axis=1)
        known = forms.mask_column(self.exact, size)
        table = np.where(known[:, None], table, 1)
        kinds, which = np.unique(table, axis=0, return_inverse=True)
        flags = tuple(running)
        found = [spread(tuple(kind), flags, low, modulus) for kind in kinds.tolist()]
        return np.array(found, np.int64)[which.reshape(-1)]

    def step(self, position: int) -> Num:
        """What the quotient moves by in the first step of a loop, the others at 0."""
        moved = self._moves.get(position, 0) // self.quotient.low
        return moved % self.quotient.modulus if self.quotient.modulus else moved

    def terms(self) -> list[Term]:
        """One term per loop."""
        places = sorted({atom.position for atom in self.atoms} - {INSIDE}, reverse=True)
        found: list[Term] = []
        inner = INSIDE
        for place in places:
            found.append(DigitTerm(place, self.quotient.scale, 2, self, inner))
            inner = place
        return found


def _worth(stride: Num, leaf: Leaf) -> float:
    """Rank of a leaf: the same order in any rows, since strides are products of extents."""
    return -float(np.mean(np.log2(np.maximum(stride, 1))) + np.mean(np.log2(leaf.extent)) / 64)


@dataclass(frozen=True)
class DigitTerm(Term):
    """A loop's contribution to a quotient.

    Attributes
    ----------
    inner
        Level at which this loop stands still and those inside of it run.
    """

    digit: Digit
    inner: int

    def step(self) -> Num:
        """Elements that the first step of the loop moves."""
        return forms.times(self.digit.step(self.loop), self.stride)

    def reach(self) -> Num:
        """Elements that the interval grows by while the loop runs, too."""
        return forms.times(self.digit.width(self.loop) - self.digit.width(self.inner), self.stride)


def taken_apart(index: Expr, evaluator: Evaluator) -> tuple[Form, list[tuple[Quotient, Form]]]:
    """The affine part of an index, and its quotients with the forms of what is divided."""
    affine: Form = {}
    found: list[tuple[Quotient, Form]] = []
    for part in components(index):
        if isinstance(part, Quotient):
            found.append((part, evaluator.form(part.index)))
        else:
            affine = forms.add(affine, evaluator.form(part))
    return affine, found
