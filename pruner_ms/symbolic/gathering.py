"""Indices in which several variables of a block become the one that now stands for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pruner_ms.symbolic import expr
from pruner_ms.symbolic.expr import Const, Expr, Iter
from pruner_ms.symbolic.forms import Leaf

Radix = Sequence[tuple[int, int]]
"""Variables of a mixed-radix sum, each with its stride, outermost first."""


def gathered(index: Expr, extents: Mapping[int, int], sums: Sequence[tuple[Radix, int]]) -> Expr:
    """An affine index by new variables, wherever all parts of one are in it; others stay.

    `((g * 3 + r) * 3 + s) * 32 + c` is `g * 288 + k`, where k stands for `(r * 3 + s) * 32 + c`.

    Parameters
    ----------
    extents
        Of the old variables.
    sums
        The parts of each new variable, and that.
    """
    if expr.divides(index):
        return index
    leaves = {key: Leaf(1, False) for key in expr.variables(index)}
    form = expr.Evaluator({key: {leaf: 1} for key, leaf in leaves.items()}).form(index)
    strides = {key: form.get(leaf, 0) for key, leaf in leaves.items()}
    terms: list[Expr] = []
    for parts, new in sums:
        running = [(key, stride) for key, stride in parts if extents[key] > 1]
        if len(running) < 2:
            continue
        inner, least = running[-1]
        scale = strides.get(inner, 0) // least
        if scale != 0 and all(strides.get(key, 0) == scale * stride for key, stride in running):
            terms.append(expr.binary("*", Iter(new), Const(int(scale))))
            strides = {k: s for k, s in strides.items() if k not in dict(parts)}
    if not terms:
        return index
    rest = [expr.binary("*", Iter(key), Const(int(s))) for key, s in strides.items()]
    start = Const(int(form.get(None, 0)))
    return reduce(lambda a, b: expr.binary("+", a, b), [*rest, *terms, start])
