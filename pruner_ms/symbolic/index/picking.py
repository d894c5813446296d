"""Replacing all numbers of an access: to compare accesses by their numbers, and to select rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pruner_ms.symbolic.index.access import AffineAccess, Span, Term
from pruner_ms.symbolic.program import Access
from pruner_ms.symbolic.rows import Num

Change: TypeAlias = Callable[[Any], Any]
"""Replaces a number or a mask: an array over rows becomes one over other rows; a number that is the
same in all rows stays."""


@dataclass(frozen=True)
class Resolved(Term):
    """A term of any kind, by its values.

    Attributes
    ----------
    moved, grown
        `step` and `reach`.
    """

    moved: Num
    grown: Num

    def step(self) -> Num:
        """Elements by which the first step of the loop moves the index."""
        return self.moved

    def reach(self) -> Num:
        """Elements by which the interval grows while the loop runs."""
        return self.grown


def exchanged(access: Access, change: Change) -> AffineAccess | None:
    """An access with all its numbers replaced; None if it has no closed form.

    All results of its methods are row-by-row arithmetic on the numbers passed to `change`.
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
    """The parts of an access that are not replaced: its loops, and how a flat block was split."""
    terms = tuple(
        tuple((term.loop, type(term) is Term) for term in span.terms) for span in access.spans
    )
    flat = access.flat
    if flat is None:
        return terms
    block = flat.block
    cut = (block.extents, block.first, block.position, block.vector)
    return terms, flat.widths, flat.steps, flat.total_widths, cut


def _term(term: Term, change: Change) -> Term:
    if type(term) is Term:
        return Term(term.loop, change(term.stride), change(term.extent))
    # only `step` and `reach` of a term are used
    return Resolved(term.loop, 0, 1, change(term.step()), change(term.reach()))
