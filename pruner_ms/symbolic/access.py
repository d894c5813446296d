"""Footprints, runs and strides of an access from its affine forms, computed when asked for.

Per dimension an access is a sum of `stride * loop` terms. While loops level..P-1 run, the
dimension spans 1 + sum(stride * (extent - 1)) over their terms, at most the buffer's extent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.forms import Mask, Num
from pruner_ms.symbolic.program import Access
from pruner_ms.types import BoolArray, IntArray


@dataclass(frozen=True)
class Term:
    """One loop's part in a dimension: `stride * i`, 0 <= i < extent."""

    loop: int
    stride: Num
    extent: Num


@dataclass(frozen=True)
class Span:
    """One dimension of an access.

    Attributes
    ----------
    terms
        From the innermost loop outwards.
    size
        Elements of one iteration.
    extent, stride
        Of the buffer's dimension.
    """

    terms: tuple[Term, ...]
    size: int
    extent: Num
    stride: Num


class AffineAccess(Access):
    """An access in closed form.

    Parameters
    ----------
    buffer, write, mask
        See `program.Access`.
    spans
        The dimensions, outermost first.
    level
        Position of the innermost loop around the buffer's allocation (-1: none): loops up to there
        do not move within the buffer.
    """

    def __init__(
        self, buffer: int, write: bool, mask: BoolArray, spans: Sequence[Span], level: Num
    ) -> None:
        self.buffer = buffer
        self.write = write
        self.mask = mask
        self.spans = tuple(spans)
        self._rows = len(mask)
        self._level = level
        self._widths: dict[tuple[int, int], Num] = {}
        self._feet: dict[tuple[int, ...], IntArray] = {}
        self._runs: dict[tuple[int, ...], IntArray] = {}

    def _running(self, level: int) -> tuple[int, ...]:
        """Per dimension, how many terms run at a level: what every quantity depends on."""
        return tuple(sum(t.loop >= level for t in span.terms) for span in self.spans)

    def _width(self, dim: int, running: int) -> Num:
        """Elements of a dimension while its innermost `running` terms run, before clipping."""
        if running == 0:
            return self.spans[dim].size
        key = (dim, running)
        if key not in self._widths:
            term = self.spans[dim].terms[running - 1]
            step = forms.times(term.stride, term.extent - 1)
            self._widths[key] = self._width(dim, running - 1) + step
        return self._widths[key]

    def _clipped(self, dim: int, running: int) -> Num:
        return forms.smaller(self._width(dim, running), self.spans[dim].extent)

    def footprint(self, level: int) -> IntArray:
        """Elements of the bounding box at a level, see `program.Access.footprint`."""
        running = self._running(level)
        if running not in self._feet:
            total: Num = 1
            for dim, count in enumerate(running):
                total = forms.times(total, self._clipped(dim, count))
            self._feet[running] = forms.column(total, self._rows)
        return self._feet[running]

    def run(self, level: int) -> IntArray:
        """Contiguous elements at a level, see `program.Access.run`."""
        running = self._running(level)
        if running not in self._runs:
            total: Num = 1
            whole: Mask = True
            for dim in reversed(range(len(running))):
                width = self._clipped(dim, running[dim])
                total = forms.select(whole, forms.times(total, width), total)
                whole = forms.both(whole, forms.compare(width, self.spans[dim].extent))
                if not forms.possible(whole):
                    break
            self._runs[running] = forms.column(total, self._rows)
        return self._runs[running]

    def stride(self, loop: int) -> IntArray:
        """Elements one step of a loop moves, see `program.Access.stride`."""
        total: Num = 0
        for span in self.spans:
            for term in span.terms:
                if term.loop == loop:
                    total = total + forms.times(term.stride, span.stride)
        inside: Mask = loop > self._level
        return forms.column(forms.select(inside, total, 0), self._rows)


def ordered(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Terms from the innermost loop outwards, without those that never move."""
    kept = [t for t in terms if not (isinstance(t.extent, int) and t.extent == 1)]
    return tuple(sorted(kept, key=lambda t: -t.loop))
