"""An access with every number in it exchanged: how one is told by its numbers, and how some of its
rows are picked."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pruner_ms.symbolic.index.access import AffineAccess, Span, Term
from pruner_ms.symbolic.index.forms import Num
from pruner_ms.symbolic.program import Access

Change: TypeAlias = Callable[[Any], Any]
"""What a number or a mask is exchanged for: an array of rows by one of other rows; the same for
what is the same in all rows."""


@dataclass(frozen=True)
class Resolved(Term):
    """A term by what it gives, whatever it was made of.

    Attributes
    ----------
    moved, grown
        `step` and `reach`.
    """

    moved: Num
    grown: Num

    def step(self) -> Num:
        """Elements that the first step of the loop moves."""
        return self.moved

    def reach(self) -> Num:
        """Elements that the interval grows by while the loop runs."""
        return self.grown


def exchanged(access: Access, change: Change) -> AffineAccess | None:
    """An access with all that it is computed from exchanged; None if it is in no closed form.

    All that its methods give is arithmetic, row by row, on what `change` is called with.
    """
    if not isinstance(access, AffineAccess):
        return None
    spans = [
        Span(
            tuple(_term(term, change) for term in span.terms),
            change(span.size),
            change(span.extent),
            change(span.stride),
        )
        for span in access.spans
    ]
    flat = access.flat
    if flat is not None:
        flat = replace(flat, block=replace(flat.block, rows=change(flat.block.rows)))
    return AffineAccess(
        access.buffer, access.write, change(access.mask), spans, change(access.level), flat
    )


def layout(access: AffineAccess) -> Hashable:
    """What of an access is not exchanged: its loops, and how a flat block was cut."""
    terms = tuple(
        tuple((term.loop, type(term) is Term) for term in span.terms) for span in access.spans
    )
    flat = access.flat
    if flat is None:
        return terms
    block = flat.block
    cut = (block.extents, block.first, block.position, block.vector)
    return terms, flat.widths, flat.steps, flat.whole, cut


def _term(term: Term, change: Change) -> Term:
    if type(term) is Term:
        return Term(term.loop, change(term.stride), change(term.extent))
    # nothing but `step` and `reach` is asked of a term
    return Resolved(term.loop, 0, 1, change(term.step()), change(term.reach()))
