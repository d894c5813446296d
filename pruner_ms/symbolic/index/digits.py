"""Quotients in an index, and the contribution of a loop to the interval of one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.access import Term
from pruner_ms.symbolic.index.expr import Binary, Const, Evaluator, Expr
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.rows import Mask, Num, either, negate, times

INSIDE = 1 << 30
"""Position of the leaves that run within one iteration of the block."""


@dataclass(frozen=True)
class Quotient:
    """`scale * ((index // low) mod modulus)`; without the mod if `modulus` is 0."""

    index: Expr
    low: int
    modulus: int
    scale: int


def components(index: Expr, scale: int = 1) -> Iterator[Expr | Quotient]:
    """The summands of an index: quotients, and expressions without one."""
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


class Widths(Protocol):
    """What a term needs of a quotient."""

    def width(self, level: int) -> Num:
        """Largest interval while the loops from a level on run, before scaling."""

    def step(self, position: int) -> Num:
        """Change of the quotient in the first step of a loop, the others at 0."""


@dataclass(frozen=True)
class DigitTerm(Term):
    """A loop's contribution to a quotient.

    Attributes
    ----------
    inner
        Level at which this loop is fixed and those inside of it run.
    """

    digit: Widths
    inner: int

    def step(self) -> Num:
        """Elements by which the first step of the loop moves the index."""
        return times(self.digit.step(self.loop), self.stride)

    def reach(self) -> Num:
        """Elements by which the interval grows when the loop runs as well."""
        return times(self.digit.width(self.loop) - self.digit.width(self.inner), self.stride)

    @property
    def chain(self) -> Hashable | None:
        """The quotient: only the outermost of its terms is asked for a width, which is costly."""
        return id(self.digit)

    def chain_reach(self) -> Num:
        """Elements by which the interval grows while this loop and those inside of it run."""
        return times(self.digit.width(self.loop) - self.digit.width(INSIDE), self.stride)


def split_quotients(index: Expr, evaluator: Evaluator) -> tuple[Form, list[tuple[Quotient, Form]]]:
    """The affine part of an index, and its quotients with the forms of their dividends."""
    affine: Form = {}
    quotients: list[tuple[Quotient, Form]] = []
    for part in components(index):
        if isinstance(part, Quotient):
            quotients.append((part, evaluator.form(part.index)))
        else:
            affine = forms.add(affine, evaluator.form(part))
    return affine, quotients


def uses(form: Form, leaf: Leaf) -> Mask:
    """Rows in which a form moves with a leaf."""
    stride = form.get(leaf, 0)
    return negate(either(stride == 0, leaf.extent == 1))
