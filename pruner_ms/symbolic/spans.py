"""How the loops of a statement move an access, dimension by dimension."""

from __future__ import annotations

from collections.abc import Mapping

from pruner_ms.symbolic import forms
from pruner_ms.symbolic.access import CutTerm, FusedTerm, Span, Term, ordered
from pruner_ms.symbolic.compaction import Placed
from pruner_ms.symbolic.cuts import Cut
from pruner_ms.symbolic.digits import INSIDE, Digit, taken_apart
from pruner_ms.symbolic.expr import Evaluator, Expr
from pruner_ms.symbolic.forms import Form, Leaf, Mask, Num
from pruner_ms.symbolic.joint import Joint, JointTerm
from pruner_ms.symbolic.moves import relaxed
from pruner_ms.symbolic.state import Acc, Block, State


class Places:
    """Where the leaves of a block are on its path.

    Attributes
    ----------
    where
        Leaf -> position of its loop.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.where: Mapping[Leaf, int] = {
            leaf: p for p, loop in enumerate(block.path) for leaf in loop.leaves
        }
        self._digits: Mapping[Leaf, tuple[Cut, int]] = {
            leaf: (cut, digit) for cut in block.cuts for digit, leaf in enumerate(cut.leaves)
        }
        self._parts = {cut: self._inner_first(cut) for cut in block.cuts}

    def _inner_first(self, cut: Cut) -> list[tuple[int, int]]:
        """Path position and number of every part, the innermost on the path first."""
        pairs = [(self.block.path.index(loop), k) for k, loop in enumerate(cut.loops)]
        return sorted(pairs, reverse=True)

    def _still(self, position: int, level: Num, scope: str) -> bool:
        """Whether a loop is around a buffer's allocation and so does not move in it."""
        around = isinstance(level, int) and position <= level
        return around and not relaxed(self.block.path[position], scope)

    def relative(self, form: Form, base: Form | None, level: Num) -> Form:
        """An index from the first one that is allocated on; no base: that moves with the index."""
        found: dict[Leaf | None, Num] = {}
        for leaf, stride in form.items():
            found[leaf] = stride
            if leaf is not None and leaf in self.where:
                rest = 0 if base is None else stride - base.get(leaf, 0)
                found[leaf] = forms.select(self.where[leaf] <= level, rest, stride)
        return found

    def span(
        self, form: Mapping[Leaf | None, Num], size: Num, level: Num, scope: str
    ) -> tuple[tuple[Term, ...], Num, Mask]:
        """Terms of a dimension, elements of one iteration, and rows in which that is exact."""
        terms: list[Term] = []
        cuts: dict[Cut, list[tuple[int, Num]]] = {}
        exact: Mask = True
        for leaf, step in form.items():
            if leaf is None:
                continue
            if leaf in self._digits:
                cut, digit = self._digits[leaf]
                cuts.setdefault(cut, []).append((digit, step))
            elif leaf not in self.where:  # the block runs through it as a whole
                size = size + forms.times(step, leaf.last)
            elif not self._still(self.where[leaf], level, scope):
                terms.append(self._term(leaf, step))
        for cut, digits in cuts.items():
            if len(digits) == 1:
                terms += self._parted(cut, *digits[0])
            else:
                joint = Joint(cut, digits)
                terms += self._joined(joint)
                exact = forms.both(exact, joint.exact)
        return ordered(terms), size, exact

    def _term(self, leaf: Leaf, stride: Num) -> Term:
        position = self.where[leaf]
        loop = self.block.path[position]
        leaves = next((group for group in loop.groups if leaf in group), loop.leaves)
        if len(leaves) > 1:
            inner = leaves[leaves.index(leaf) + 1 :]
            return FusedTerm(position, stride, leaf.extent, inner)
        return Term(position, stride, leaf.extent)

    def quotients(self, index: Expr, evaluator: Evaluator) -> tuple[Form, list[Digit]]:
        """The affine part of an index, and the quotients that have no affine form."""
        affine, found = taken_apart(index, evaluator)
        inner = {
            leaf: group[i + 1 :]
            for loop in self.block.path
            for group in (loop.groups or (loop.leaves,))
            for i, leaf in enumerate(group)
        }
        digits = [
            Digit(quotient, form, self.where, self._digits, self._parts, inner)
            for quotient, form in found
        ]
        return affine, digits

    def _joined(self, joint: Joint) -> list[Term]:
        terms: list[Term] = []
        inner = 0
        for position, part in self._parts[joint.cut]:
            extent = joint.cut.extents[part]
            terms.append(JointTerm(position, 0, extent, joint, part, inner))
            inner |= 1 << part
        return terms

    def _parted(self, cut: Cut, digit: int, stride: Num) -> list[Term]:
        extent = cut.leaves[digit].extent
        if isinstance(extent, int) and extent == 1:
            return []
        terms: list[Term] = []
        inner = 0
        for position, part in self._parts[cut]:
            terms.append(CutTerm(position, stride, cut.extents[part], cut, digit, part, inner))
            inner |= 1 << part
        return terms


def spans_of(state: State, access: Acc, placed: Placed, places: Places) -> list[Span]:
    """The dimensions of an access; rows that cannot be expressed are doubted."""
    level = placed.level_of(places.block)
    spans = []
    for i, (dim, extent, stride) in enumerate(
        zip(access.dims, placed.shape, placed.strides, strict=True)
    ):
        evaluator = state.evaluator(places.block)
        form = evaluator.form(dim.index)
        digits: list[Digit] = []
        if placed.buffer.param and not forms.certain(evaluator.exact):
            evaluator = state.evaluator(places.block)
            form, digits = places.quotients(dim.index, evaluator)
        state.doubt(evaluator.exact)
        if placed.drifts:
            form = places.relative(form, placed.bases[i], level)
        around = -1 if placed.drifts else level
        terms, size, exact = places.span(form, dim.size, around, placed.buffer.scope)
        for digit in digits:
            terms = ordered([*terms, *digit.terms()])
            within = digit.width(INSIDE) - 1
            size = size + forms.times(within, digit.quotient.scale)
            exact = forms.both(exact, digit.exact)
        state.doubt(exact)
        spans.append(Span(terms, size, extent, stride))
    return spans
