"""Footprints, runs and strides of an access from its affine forms, computed on demand.

Per dimension an access is a sum of `stride * loop` terms. While loops level..P-1 run, the
dimension spans 1 + sum(stride * (extent - 1)) over their terms, at most the buffer's extent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.flat import FlatAccess
from pruner_ms.symbolic.index.forms import Leaf
from pruner_ms.symbolic.program import Access
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    column,
    magnitude,
    possible,
    remainder,
    select,
    smaller,
    times,
)
from pruner_ms.types import BoolArray, IntArray


@dataclass(frozen=True)
class Term:
    """Contribution of one loop to a dimension: `stride * i`, 0 <= i < extent."""

    loop: int
    stride: Num
    extent: Num

    def step(self) -> Num:
        """Elements by which the first step of the loop moves the index."""
        return self.stride

    def reach(self) -> Num:
        """Elements by which the interval grows while the loop runs."""
        return times(self.stride, self.extent - 1)

    @property
    def chain(self) -> Hashable | None:
        """Key shared by all terms of one quotient; None for terms whose reaches add up."""
        return None

    def chain_reach(self) -> Num:
        """Elements by which the interval grows while this and the inner terms of its chain run."""
        return self.reach()


@dataclass(frozen=True)
class FusedTerm(Term):
    """Contribution of a loop into which several were fused.

    Attributes
    ----------
    inner
        Leaves fused inside of this one. The first step of the fused loop moves the innermost leaf
        of more than one iteration.
    """

    inner: tuple[Leaf, ...]

    def step(self) -> Num:
        """Elements by which the first step of the loop moves the index."""
        first = self.extent != 1
        for leaf in self.inner:
            first = both(first, leaf.extent == 1)
        return select(first, self.stride, 0)


@dataclass(frozen=True)
class CutTerm(Term):
    """Contribution of a part to a digit of a fused loop that was split.

    Attributes
    ----------
    stride
        Elements that one step of the digit moves.
    cut, digit, part
        The split loop, and the numbers of its digit and part.
    inner
        Bits of the parts that run when this one does not.
    wraps
        Rows in which the index has a mod that the digit lacks; it changes idle iterations.
    """

    cut: Cut
    digit: int
    part: int
    inner: int
    wraps: Mask = False

    def step(self) -> Num:
        """Elements by which the first step of the part moves the index."""
        moved = self.cut.moved(self.digit, self.part)
        if possible(self.wraps):
            around = remainder(moved, self.cut.leaves[self.digit].extent)
            moved = select(self.wraps, around, moved)
        return times(self.stride, moved)

    def reach(self) -> Num:
        """Elements by which the interval grows when the part runs as well."""
        inner = self.cut.wrapped(self.digit, self.inner, self.wraps)
        outer = self.cut.wrapped(self.digit, self.inner | 1 << self.part, self.wraps)
        return times(self.stride, outer - inner)


@dataclass(frozen=True)
class SignedTerm(Term):
    """A term whose stride may be negative.

    Attributes
    ----------
    term
        The term itself.
    """

    term: Term

    def step(self) -> Num:
        """Elements by which the first step of the loop moves the index."""
        return self.term.step()

    def reach(self) -> Num:
        """Elements by which the interval grows while the loop runs."""
        return magnitude(self.term.reach())


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
    size: Num
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
    flat
        Access in the rows whose loops were fused into one and split into vectors.
    """

    def __init__(
        self,
        buffer: int,
        write: bool,
        mask: BoolArray,
        spans: Sequence[Span],
        level: Num,
        flat: FlatAccess | None = None,
    ) -> None:
        self.buffer = buffer
        self.write = write
        self.mask = mask
        self.spans = tuple(spans)
        self._rows = len(mask)
        self.level = level
        self.flat = flat
        self._loops = [[term.loop for term in span.terms] for span in self.spans]
        self._levels: dict[int, tuple[int, ...]] = {}
        self._widths: dict[tuple[int, int], Num] = {}
        self._boxes: dict[tuple[int, int], Num] = {}
        self._measures: dict[tuple[str, tuple[int, ...]], IntArray] = {}

    def _running(self, level: int) -> tuple[int, ...]:
        """Number of terms that run at a level, per dimension; all quantities depend on it only."""
        if level not in self._levels:
            counts = (sum(p >= level for p in loops) for loops in self._loops)
            self._levels[level] = tuple(counts)
        return self._levels[level]

    def _width(self, dim: int, running: int) -> Num:
        """Elements of a dimension while its innermost `running` terms run, before clipping."""
        total = self._alone(dim, running)
        chains = {t.chain: t for t in self.spans[dim].terms[:running] if t.chain is not None}
        for outermost in chains.values():
            total = total + outermost.chain_reach()
        return total

    def _alone(self, dim: int, running: int) -> Num:
        """`_width` without the terms of chains."""
        if running == 0:
            return self.spans[dim].size
        key = (dim, running)
        if key not in self._widths:
            term = self.spans[dim].terms[running - 1]
            width = self._alone(dim, running - 1)
            self._widths[key] = width if term.chain is not None else width + term.reach()
        return self._widths[key]

    def _boxed(self, running: tuple[int, ...]) -> list[Num]:
        """Elements per dimension, at most the buffer's."""
        return [self._clipped(dim, count) for dim, count in enumerate(running)]

    def _clipped(self, dim: int, count: int) -> Num:
        """Elements of a dimension while its innermost `count` terms run."""
        key = (dim, count)
        if key not in self._boxes:
            self._boxes[key] = smaller(self._width(dim, count), self.spans[dim].extent)
        return self._boxes[key]

    def _area(self, widths: Sequence[Num]) -> IntArray:
        """Elements of a box."""
        total: Num = 1
        for width in widths:
            total = times(total, width)
        return column(total, self._rows)

    def _contiguous(self, widths: Sequence[Num]) -> IntArray:
        """Elements of a box that are contiguous in the buffer."""
        total: Num = 1
        complete: Mask = True
        for width, span in zip(reversed(widths), reversed(self.spans), strict=True):
            total = select(complete, times(total, width), total)
            complete = both(complete, width == span.extent)
            if not possible(complete):
                break
        return column(total, self._rows)

    def _at(self, level: int, measure: Callable[[Sequence[Num]], IntArray]) -> IntArray:
        """A measure of the box at a level, computed once."""
        running = self._running(level)
        key = (measure.__name__, running)
        if key not in self._measures:
            self._measures[key] = measure(self._boxed(running))
        values = self._measures[key]
        if self.flat is None:
            return values
        block = self.flat.block
        if level <= block.position and self.flat.total_widths is None:
            block_values = select(block.rows, self._at(0, measure) if level else values, values)
            return column(block_values, self._rows)
        if level <= block.position + 1:
            inner = level > block.position
            widths = self.flat.widths if inner else self.flat.total_widths
            clipped = [
                smaller(width, span.extent)
                for width, span in zip(widths or (), self.spans, strict=True)
            ]
            return column(select(block.rows, measure(clipped), values), self._rows)
        return values

    def footprint(self, level: int) -> IntArray:
        """Elements of the bounding box at a level, see `program.Access.footprint`."""
        return self._at(level, self._area)

    def run(self, level: int) -> IntArray:
        """Contiguous elements at a level, see `program.Access.run`."""
        return self._at(level, self._contiguous)

    def stride(self, loop: int) -> IntArray:
        """Elements one step of a loop moves, see `program.Access.stride`."""
        if self.flat is not None and loop >= self.flat.block.position:
            step = self.flat.steps[loop - self.flat.block.position]
            return column(select(self.flat.block.rows, step, 0), self._rows)
        total: Num = 0
        for span in self.spans:
            for term in span.terms:
                if term.loop == loop:
                    total = total + times(term.step(), span.stride)
        inside: Mask = loop > self.level
        return column(select(inside, total, 0), self._rows)


def ordered(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Terms from the innermost loop outwards, without those of one iteration."""
    moving = [t for t in terms if not (isinstance(t.extent, int) and t.extent == 1)]
    return tuple(sorted(moving, key=lambda t: -t.loop))
