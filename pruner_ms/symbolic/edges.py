"""Paddings that are read in whole tiles: TVM sees where the values end if one tile is all there is.

The region that ReadAt's copy reads is taken under the condition of the padding, `v < end`. Where v
moves within an iteration of the copy alone the condition bounds it; where loops around move it,
too, some tile is all inside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pruner_ms.symbolic import expr, forms
from pruner_ms.symbolic.expr import Evaluator, Expr, Iter
from pruner_ms.symbolic.forms import Form, Leaf, Mask, Num
from pruner_ms.symbolic.state import Acc, Block, State

ENDS = "ends"
"""Mark of a block: the ends of what it reads, beyond which it pads."""


@dataclass(frozen=True)
class End:
    """A condition `index < value`."""

    index: Expr
    value: Num


def inherit(block: Block, consumer: Block, by: dict[int, Expr]) -> None:
    """Let a consumer into which a block is inlined know the block's ends."""
    ends = [replace(e, index=expr.substitute(e.index, by)) for e in block.notes.get(ENDS, ())]
    if ends:
        consumer.notes[ENDS] = [*consumer.notes.get(ENDS, ()), *ends]


def evaluator(state: State, block: Block, access: Acc) -> Evaluator:
    """Evaluates the indices of an access of a block."""
    ends = block.notes.get(ENDS, ()) if block.inner else ()
    if not ends or any(access is write for write in block.writes):
        return state.evaluator(block)
    env = dict(block.env)
    for end in ends:
        if isinstance(end.index, Iter):
            env[end.index.key] = _within(block, env[end.index.key], end.value)
    return Evaluator(env, backwards=block.backwards)


def _within(block: Block, form: Form, end: Num) -> Form:
    """A variable's form up to an end, in the rows in which one leaf of the iteration moves it."""
    inner = [leaf for leaf in form if leaf in block.inner]
    if len(inner) != 1 or inner[0] is None:
        return form
    alone: Mask = forms.compare(form[inner[0]], 1)
    for leaf, stride in form.items():
        if leaf is not None and leaf is not inner[0]:
            still = forms.either(forms.compare(leaf.extent, 1), forms.compare(stride, 0))
            alone = forms.both(alone, still)
    extent = forms.select(alone, forms.smaller(inner[0].extent, end), inner[0].extent)
    fresh = Leaf(extent, inner[0].reduction)
    return {fresh if leaf is inner[0] else leaf: stride for leaf, stride in form.items()}
