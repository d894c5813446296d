"""Quotients of sums: (h + r) // 2, as a transposed convolution reads its input.

The ranges of h and r overlap, so that the dividend is not a mixed-radix number. Its interval is
known nevertheless, and floor division is monotonic: it maps an interval to an interval.

Notation
--------
k      divisor
s      stride of a leaf in the dividend: s // k always moves the quotient, s mod k sometimes
rest   sum of the parts s mod k and of the constant
rho    largest residue of the rest mod k, over the iterations of the fixed loops
w      growth of the rest while the other loops run: the quotient grows by (rho + w) // k
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pruner_ms.symbolic.index.access import FusedTerm, Term
from pruner_ms.symbolic.index.digits import INSIDE, DigitTerm, Quotient, components
from pruner_ms.symbolic.index.expr import Expr, variables
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.rows import Mask, Num, both, certain, either, negate, select, times

LIMIT = 16
"""Largest divisor whose residues are enumerated."""


def of_sum(quotient: Quotient) -> bool:
    """Whether a quotient without a mod divides a sum of several variables by a small number."""
    adds_up = len(variables(quotient.index)) > 1
    return adds_up and not quotient.modulus and quotient.low <= LIMIT


def divides_sum(index: Expr) -> bool:
    """Whether an index contains a quotient of a sum, and no other quotient."""
    quotients = [part for part in components(index) if isinstance(part, Quotient)]
    return bool(quotients) and all(of_sum(quotient) for quotient in quotients)


class Region(NamedTuple):
    """Interval of a quotient while some leaves run.

    Attributes
    ----------
    grown, base
        Its growth, and its first value.
    exact
        Rows in which these are known: the fixed loops move the dividend by multiples of k, or the
        rest never reaches k.
    varies
        Rows in which TVM's extent is known to depend on fixed loops: k is 2 and the rest grows by
        an odd number.
    """

    grown: Num
    base: dict[Leaf | None, Num]
    exact: Mask
    varies: Mask


def interval(quotient: Quotient, form: Form, free: Mapping[Leaf, Mask]) -> Region:
    """The interval of a quotient while some leaves run."""
    k, scale = quotient.low, quotient.scale
    first = form.get(None, 0)
    base: dict[Leaf | None, Num] = {None: scale * (first // k)}
    begin: Num = first % k
    rest: Num = 0
    grown: Num = 0
    most: Num = begin
    divisible: Mask = True
    for leaf, stride in form.items():
        if leaf is None:
            continue
        runs = free.get(leaf, False)
        part = stride % k
        reach = times(part, leaf.extent - 1)
        most = most + reach
        rest = rest + select(runs, reach, 0)
        step = times(stride // k, leaf.extent - 1)
        grown = grown + select(runs, step, 0)
        moves = negate(either(runs, reach == 0))
        divisible = both(divisible, negate(moves))
        if not certain(runs):
            base[leaf] = select(runs, 0, scale * (stride // k))
    rises = rising(form)
    exact = both(rises, either(divisible, most < k))
    odd = rest % k == 1 if k == 2 else False
    varies = both(both(rises, odd), negate(exact))
    return Region(times(scale, grown + (begin + rest) // k), base, exact, varies)


def rising(form: Form) -> Mask:
    """Rows in which a form decreases with no leaf."""
    rows: Mask = True
    for leaf, stride in form.items():
        rows = both(rows, True if leaf is None else stride >= 0)
    return rows


class Floored:
    """A quotient of a sum along the loops of a block, with the interface of `image_digits.Digit`.

    Parameters
    ----------
    quotient, form
        The quotient, and the affine form of its dividend.
    where
        Leaf -> position of its loop; missing leaves run within one iteration.
    fused
        Leaf -> leaves that were fused inside of it.
    """

    def __init__(
        self,
        quotient: Quotient,
        form: Form,
        where: Mapping[Leaf, int],
        fused: Mapping[Leaf, tuple[Leaf, ...]],
    ) -> None:
        self.quotient = quotient
        self.scale = quotient.scale
        self.exact: Mask = rising(form)
        self._first = form.get(None, 0) % quotient.low
        self._leaves = [
            (where.get(leaf, INSIDE), leaf, stride, fused.get(leaf, ()))
            for leaf, stride in form.items()
            if leaf is not None and not (isinstance(leaf.extent, int) and leaf.extent == 1)
        ]
        self._widths_at: dict[int, Num] = {}

    def width(self, level: int) -> Num:
        """Largest interval while the loops from a level on run, before scaling."""
        if level not in self._widths_at:
            self._widths_at[level] = self._width(level)
        return self._widths_at[level]

    def _width(self, level: int) -> Num:
        k = self.quotient.low
        grown: Num = 0
        rest: Num = 0
        residues: Num = 1 << self._first
        for position, leaf, stride, _ in self._leaves:
            part = stride % k
            if position < level:
                residues = _spread(residues, part, leaf.extent, k)
            else:
                grown = grown + times(stride // k, leaf.extent - 1)
                rest = rest + times(part, leaf.extent - 1)
        return 1 + grown + (_largest(residues, k) + rest) // k

    def step(self, position: int) -> Num:
        """Change of the quotient in the first step of a loop, the others at 0."""
        k = self.quotient.low
        total: Num = 0
        for place, leaf, stride, inner in self._leaves:
            if place == position:
                moved = stride // k + (self._first + stride % k) // k
                total = total + FusedTerm(place, moved, leaf.extent, inner).step()
        return total

    def terms(self) -> list[Term]:
        """One term per loop."""
        places = sorted({place for place, *_ in self._leaves} - {INSIDE}, reverse=True)
        terms: list[Term] = []
        inner = INSIDE
        for place in places:
            terms.append(DigitTerm(place, self.quotient.scale, 2, self, inner))
            inner = place
        return terms


def _spread(residues: Num, part: Num, extent: Num, k: int) -> Num:
    """Residues mod k (bit r: r is among them) after adding 0, part, ..., (extent - 1) * part."""
    reached = residues
    for x in range(1, k):
        shift = (x * part) % k
        rotated = (residues << shift | residues >> (k - shift)) & (1 << k) - 1
        reached = reached | select(x < extent, rotated, 0)
    return reached


def _largest(residues: Num, k: int) -> Num:
    """The largest residue of a set (bits)."""
    largest: Num = 0
    for r in range(1, k):
        largest = select((residues >> r & 1) > 0, r, largest)
    return largest
