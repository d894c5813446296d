"""Padded operands that are read in whole tiles: where TVM infers the end of their values.

It does so only if there is one tile. The region of ReadAt's copy is bounded by the condition of the
padding, `v < end and ...`. TVM's ConditionalBoundsContext (`tirx/transform/ir_utils.cc`) solves the
whole conjunction or nothing: each v must move only within an iteration of the copy. A reduction
loop around the copy keeps its variable even if it runs once; other loops that run once vanish. If
the module's loops count in 64 bits nothing is solved: the copy's loops count in 32 bits, and TVM
does not simplify the cast between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pruner_ms.symbolic.index import expr
from pruner_ms.symbolic.index.expr import Binary, Const, Evaluator, Expr, Iter
from pruner_ms.symbolic.index.forms import Form, Leaf
from pruner_ms.symbolic.primitives import first_row
from pruner_ms.symbolic.primitives.state import Acc, Block, End, State
from pruner_ms.symbolic.rows import Mask, Num, both, either, possible, select, smaller


def inherit(block: Block, consumer: Block, by: Mapping[int, Expr]) -> None:
    """Pass a block's ends on to a consumer into which it is inlined."""
    consumer.ends = (*consumer.ends, *_substituted(block, by))


def express(block: Block, by: Mapping[int, Expr]) -> None:
    """Express a block's ends by other variables."""
    block.ends = _substituted(block, by)


def _substituted(block: Block, by: Mapping[int, Expr]) -> tuple[End, ...]:
    return tuple(replace(e, index=expr.substitute(e.index, by)) for e in block.ends)


def evaluator(state: State, block: Block, access: Acc) -> Evaluator:
    """Evaluates the indices of an access of a block."""
    if first_row.is_first_row(block):
        return Evaluator(first_row.variables(block), signed=block.signed)
    if any(access is write for write in block.writes):
        return state.evaluator(block)
    ends = block.ends if block.inner and not state.wide else ()
    if not ends:
        return state.evaluator(block)
    solved: Mask = True
    for end in ends:
        solved = both(solved, _alone(block, end.index))
    if not possible(solved):
        return state.evaluator(block)
    env = dict(block.env)
    for end in ends:  # all are variables or digits of one, otherwise nothing would be solved
        key, _ = _variable(end.index)
        if key is not None:
            env[key] = _within(block, env[key], end.value, solved)
    return Evaluator(env, signed=block.signed)


def _variable(index: Expr) -> tuple[int | None, int]:
    """The variable of which an index is the last digit, and the base; 0 if it is the variable."""
    match index:
        case Iter(key=key):
            return key, 0
        case Binary(op="%", a=Iter(key=key), b=Const(value=base)):
            return key, base
    return None, 0


def _alone(block: Block, index: Expr) -> Mask:
    """Rows in which one leaf of the iteration moves a variable, and no loop around it does.

    Loops that move a digit by multiples of its base do not count.
    """
    key, base = _variable(index)
    if key is None:
        return False
    form = block.env[key]
    inner = [leaf for leaf in form if leaf in block.inner]
    if len(inner) != 1:
        return False
    rows: Mask = form[inner[0]] == 1
    for leaf, stride in form.items():
        if leaf is not None and leaf is not inner[0]:
            once = False if leaf.reduction else leaf.extent == 1
            still = (stride % base if base else stride) == 0
            rows = both(rows, either(once, still))
    return rows


def _within(block: Block, form: Form, end: Num, solved: Mask) -> Form:
    """A variable's form with leaves that stop at an end, in rows with a solved condition."""

    def shorter(leaf: Leaf) -> Leaf:
        extent = select(solved, smaller(leaf.extent, end), leaf.extent)
        return Leaf(extent, leaf.reduction)

    return {
        leaf if leaf is None or leaf not in block.inner else shorter(leaf): stride
        for leaf, stride in form.items()
    }
