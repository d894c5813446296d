"""The dimensions of an access, with the contribution of each loop."""

from __future__ import annotations

from collections.abc import Mapping

from pruner_ms.symbolic.index import floors, forms
from pruner_ms.symbolic.index.access import CutTerm, FusedTerm, SignedTerm, Span, Term, ordered
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.index.digit_sums import Sum, digits_of
from pruner_ms.symbolic.index.digits import INSIDE, Quotient, components, split_quotients
from pruner_ms.symbolic.index.expr import Binary, Const, Evaluator, Expr
from pruner_ms.symbolic.index.floors import Floored
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.index.joint import Joint, JointTerm
from pruner_ms.symbolic.index.nests import Nest
from pruner_ms.symbolic.lowering.compaction import Placed
from pruner_ms.symbolic.primitives import edges
from pruner_ms.symbolic.primitives.moves import relaxed
from pruner_ms.symbolic.primitives.state import Acc, Block, State
from pruner_ms.symbolic.rows import (
    Mask,
    Num,
    both,
    certain,
    either,
    larger,
    negate,
    possible,
    quotient,
    select,
    times,
)


class Places:
    """Positions of the leaves of a block on its path.

    Attributes
    ----------
    where
        Leaf -> position of its loop.
    nest
        The loops with their leaves and digits.
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
        fused = {
            leaf: group[i + 1 :]
            for loop in block.path
            for group in (loop.groups or (loop.leaves,))
            for i, leaf in enumerate(group)
        }
        self.nest = Nest(self.where, self._digits, self._parts, fused)

    def _inner_first(self, cut: Cut) -> list[tuple[int, int]]:
        """Path position and number of every part, the innermost on the path first."""
        pairs = [(self.block.path.index(loop), k) for k, loop in enumerate(cut.loops)]
        return sorted(pairs, reverse=True)

    def _still(self, position: int, level: Num, scope: str) -> bool:
        """Whether a loop is around a buffer's allocation, and so does not move an access in it."""
        around = isinstance(level, int) and position <= level
        return around and not relaxed(self.block.path[position], scope)

    def relative(self, form: Form, base: Form | None, level: Num) -> Form:
        """An index relative to the first allocated one; without a base the two move together."""
        offset: dict[Leaf | None, Num] = {}
        for leaf, stride in form.items():
            offset[leaf] = stride
            if leaf is not None and leaf in self.where:
                rest = 0 if base is None else stride - base.get(leaf, 0)
                offset[leaf] = select(self.where[leaf] <= level, rest, stride)
        return offset

    def span(
        self,
        form: Mapping[Leaf | None, Num],
        size: Num,
        level: Num,
        scope: str,
        modulus: int | None = None,
    ) -> tuple[tuple[Term, ...], Num, Mask]:
        """Terms of a dimension, elements of one iteration, and rows in which that is exact.

        Parameters
        ----------
        modulus
            The divisor, if the index itself is a remainder.
        """
        terms: list[Term] = []
        cuts: dict[Cut, list[tuple[int, Num]]] = {}
        exact: Mask = True
        for leaf, step in form.items():
            if leaf is None:
                continue
            if leaf in self._digits:
                cut, digit = self._digits[leaf]
                cuts.setdefault(cut, []).append((digit, step))
            elif leaf not in self.where:  # it runs within one iteration
                size = size + times(step, leaf.last)
            elif not self._still(self.where[leaf], level, scope):
                terms.append(self._term(leaf, step))
        for cut, digits in cuts.items():
            if len(digits) == 1:
                wraps, sure = _wrapping(cut, *digits[0], modulus)
                terms += self._part_terms(cut, *digits[0], wraps)
                exact = both(exact, sure)
            else:
                joint = Joint(cut, digits)
                terms += self._joint_terms(joint)
                exact = both(exact, joint.exact)
                if self.block.signed:
                    for _, step in digits:
                        exact = both(exact, step >= 0)
        return ordered(terms), size, exact

    def _term(self, leaf: Leaf, stride: Num) -> Term:
        position = self.where[leaf]
        loop = self.block.path[position]
        leaves = next((group for group in loop.groups if leaf in group), loop.leaves)
        if len(leaves) > 1:
            inner = leaves[leaves.index(leaf) + 1 :]
            return FusedTerm(position, stride, leaf.extent, inner)
        return Term(position, stride, leaf.extent)

    def quotients(
        self, index: Expr, evaluator: Evaluator, level: Num, scope: str, offset_varies: bool = False
    ) -> tuple[Form, list[Sum | Floored]]:
        """The affine part of an index, and the quotients that have no affine form."""
        affine, quotients = split_quotients(index, evaluator)
        tried: list[tuple[Quotient, Form]] = []
        floored: list[Sum | Floored] = []
        for floor, form in quotients:
            moving = {x: s for x, s in form.items() if not self._fixed(x, level, scope)}
            if floors.of_sum(floor) and not any(leaf in self._digits for leaf in form):
                if offset_varies:
                    affine, moving = self._whole_steps(floor, form, affine, level)
                floored.append(Floored(floor, moving, self.where, self.nest.fused))
            else:
                tried.append((floor, moving))
        digits = digits_of(tried, self.nest)
        for digit in digits:
            affine = forms.add(affine, digit.plain)
        return affine, [Sum(digits, affine, self.nest), *floored] if digits else floored

    def _whole_steps(
        self, floor: Quotient, form: Form, affine: Form, level: Num
    ) -> tuple[Form, dict[Leaf | None, Num]]:
        """Make whole steps of loops around an allocation affine: the offset may vary with them."""
        k, scale = floor.low, floor.scale
        steps: dict[Leaf | None, Num] = {}
        rest = dict(form)
        for leaf, stride in form.items():
            if leaf is not None and leaf in self.where:
                around = self.where[leaf] <= level
                steps[leaf] = select(around, scale * (stride // k), 0)
                rest[leaf] = select(around, stride % k, stride)
        return forms.add(affine, steps), rest

    def _fixed(self, leaf: Leaf | None, level: Num, scope: str) -> bool:
        """Whether a leaf does not move an access in a buffer."""
        if leaf is None or leaf not in self.where:
            return False
        return self._still(self.where[leaf], level, scope)

    def idle(self, index: Expr, evaluator: Evaluator) -> Mask:
        """Rows in which idle iterations exceed the extent of a digit in a quotient of an index.

        An index that is a remainder itself is handled by `_wrapping`.
        """
        rows: Mask = False
        if not self._digits or _modulus(index) is not None:
            return rows
        for part in components(index):
            form = evaluator.form(part.index) if isinstance(part, Quotient) else {}
            for leaf, stride in form.items():
                if leaf is not None and leaf in self._digits:
                    cut, digit = self._digits[leaf]
                    beyond = both(stride > 0, cut.passes(digit, leaf.extent))
                    rows = either(rows, beyond)
        return rows

    def _joint_terms(self, joint: Joint) -> list[Term]:
        terms: list[Term] = []
        inner = 0
        for position, part in self._parts[joint.cut]:
            extent = joint.cut.extents[part]
            terms.append(JointTerm(position, 0, extent, joint, part, inner))
            inner |= 1 << part
        return terms

    def _part_terms(self, cut: Cut, digit: int, stride: Num, wraps: Mask) -> list[Term]:
        extent = cut.leaves[digit].extent
        if isinstance(extent, int) and extent == 1:
            return []
        terms: list[Term] = []
        inner = 0
        for position, part in self._parts[cut]:
            length = cut.extents[part]
            terms.append(CutTerm(position, stride, length, cut, digit, part, inner, wraps))
            inner |= 1 << part
        return terms


def _modulus(index: Expr) -> int | None:
    """The divisor of an index that is a remainder, else None."""
    if isinstance(index, Binary) and index.op == "%" and isinstance(index.b, Const):
        return index.b.value
    return None


def _wrapping(cut: Cut, digit: int, stride: Num, modulus: int | None) -> tuple[Mask, Mask]:
    """Rows in which the mod of an index changes idle iterations, and in which that is known."""
    if modulus is None:
        return False, True
    over = both(stride > 0, cut.passes(digit, quotient(modulus, larger(stride, 1))))
    exact = times(stride, cut.leaves[digit].extent) == modulus
    return both(over, exact), either(negate(over), exact)


def spans_of(
    state: State, access: Acc, placed: Placed, places: Places, exempt: Mask = False
) -> list[Span]:
    """The dimensions of an access; inexact rows that are not exempt are unsupported."""
    level = placed.level_of(places.block)
    spans = []
    for i, (dim, extent, stride) in enumerate(
        zip(access.dims, placed.shape, placed.strides, strict=True)
    ):
        evaluator = edges.evaluator(state, places.block, access)
        form = evaluator.form(dim.index)
        digits: list[Sum | Floored] = []
        apart = placed.buffer.param or floors.divides_sum(dim.index)
        apart = apart or (not placed.offset_varies and isinstance(level, int) and level == -1)
        idle = places.idle(dim.index, evaluator)
        if apart and not (certain(evaluator.exact) and not possible(idle)):
            evaluator = edges.evaluator(state, places.block, access)
            scope, offset_varies = placed.buffer.scope, placed.offset_varies
            form, digits = places.quotients(dim.index, evaluator, level, scope, offset_varies)
            idle = False
        sure = both(evaluator.exact, negate(idle))
        state.support_only(either(sure, exempt))
        if placed.offset_varies:
            form = places.relative(form, placed.bases[i], level)
        around = -1 if placed.offset_varies else level
        modulus = _modulus(dim.index)
        terms, size, exact = places.span(form, dim.size, around, placed.buffer.scope, modulus)
        for digit in digits:
            terms = ordered([*terms, *digit.terms()])
            within = digit.width(INSIDE) - 1
            size = size + times(within, digit.scale)
            exact = both(exact, digit.exact)
        if places.block.signed:
            terms = tuple(SignedTerm(t.loop, t.stride, t.extent, t) for t in terms)
            exact = both(exact, not places.block.inner)
        state.support_only(either(exact, exempt))
        spans.append(Span(terms, size, extent, stride))
    return spans
