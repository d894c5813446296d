"""Paddings that are read in whole tiles: TVM sees where the values end if one tile is all there is.

The region that ReadAt's copy reads is taken under the condition of the padding, `v < end and ...`.
All its parts are solved together or none is (`ConditionalBoundsContext` in
`tirx/transform/ir_utils.cc`): each v must move within an iteration of the copy alone. The loop of a
reduction around the copy keeps its variable, even if it runs once; other loops that do vanish.
Where the module's loops count in 64 bits nothing is solved: the copy's own count in 32, and TVM
does not look through the cast between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pruner_ms.symbolic.index import expr, forms
from pruner_ms.symbolic.index.expr import Binary, Const, Evaluator, Expr, Iter
from pruner_ms.symbolic.index.forms import Form, Leaf, Mask, Num
from pruner_ms.symbolic.primitives import first_row
from pruner_ms.symbolic.primitives.state import Acc, Block, End, State


def inherit(block: Block, consumer: Block, by: Mapping[int, Expr]) -> None:
    """Let a consumer into which a block is inlined know the block's ends."""
    consumer.ends = (*consumer.ends, *_substituted(block, by))


def express(block: Block, by: Mapping[int, Expr]) -> None:
    """Express a block's ends by other variables."""
    block.ends = _substituted(block, by)


def _substituted(block: Block, by: Mapping[int, Expr]) -> tuple[End, ...]:
    return tuple(replace(e, index=expr.substitute(e.index, by)) for e in block.ends)


def evaluator(state: State, block: Block, access: Acc) -> Evaluator:
    """Evaluates the indices of an access of a block."""
    if first_row.is_first_row(block):
        return Evaluator(first_row.variables(block), backwards=block.backwards)
    if any(access is write for write in block.writes):
        return state.evaluator(block)
    ends = block.ends if block.inner and not state.wide else ()
    if not ends:
        return state.evaluator(block)
    solved: Mask = True
    for end in ends:
        solved = forms.both(solved, _alone(block, end.index))
    if not forms.possible(solved):
        return state.evaluator(block)
    env = dict(block.env)
    for end in ends:  # of all of which the variable is known, or nothing would be solved
        key, _ = _variable(end.index)
        if key is not None:
            env[key] = _within(block, env[key], end.value, solved)
    return Evaluator(env, backwards=block.backwards)


def _variable(index: Expr) -> tuple[int | None, int]:
    """The variable that an index is, or is the last digit of, and that digit's base; 0 for all."""
    match index:
        case Iter(key=key):
            return key, 0
        case Binary(op="%", a=Iter(key=key), b=Const(value=base)):
            return key, base
    return None, 0


def _alone(block: Block, index: Expr) -> Mask:
    """Rows in which one leaf of the iteration moves a variable, and no loop around it does.

    Of a digit loops that move it by whole turns do not.
    """
    key, base = _variable(index)
    if key is None:
        return False
    form = block.env[key]
    inner = [leaf for leaf in form if leaf in block.inner]
    if len(inner) != 1:
        return False
    found: Mask = forms.compare(form[inner[0]], 1)
    for leaf, stride in form.items():
        if leaf is not None and leaf is not inner[0]:
            once = False if leaf.reduction else forms.compare(leaf.extent, 1)
            still = forms.compare(stride % base if base else stride, 0)
            found = forms.both(found, forms.either(once, still))
    return found


def _within(block: Block, form: Form, end: Num, solved: Mask) -> Form:
    """A variable's form up to an end, in the rows in which the condition is solved."""

    def shorter(leaf: Leaf) -> Leaf:
        extent = forms.select(solved, forms.smaller(leaf.extent, end), leaf.extent)
        return Leaf(extent, leaf.reduction)

    return {
        leaf if leaf is None or leaf not in block.inner else shorter(leaf): stride
        for leaf, stride in form.items()
    }
