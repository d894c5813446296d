"""Index expressions without TVM: small immutable trees over numbered iteration variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index import forms
from pruner_ms.symbolic.index.forms import Form
from pruner_ms.symbolic.rows import Mask, Num, both, certain, larger, select, smaller, times


@dataclass(frozen=True)
class Const:
    """An integer."""

    value: int


@dataclass(frozen=True)
class Iter:
    """An iteration variable of a block, by number."""

    key: int


@dataclass(frozen=True)
class Binary:
    """`op` is one of "+", "-", "*", "//", "%"."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, eq=False)
class Number:
    """A number of the trace, one value per row: an index map may contain decisions."""

    value: Num


@dataclass(frozen=True)
class Opaque:
    """An index without an affine form; harmless if dropped later, as reads of constants are."""

    reason: str


Expr: TypeAlias = Const | Iter | Binary | Number | Opaque

_FOLD: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}

_NODES: Mapping[str, str] = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%"}
"""TVM's node names of the operators supported in an index."""


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """A node, folded where both sides are constants or one is neutral."""
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(_FOLD[op](a.value, b.value))
    if op in "+-" and b == Const(0):
        return a
    if op in ("*", "//") and b == Const(1):
        return a
    if op == "+" and a == Const(0):
        return b
    if op == "*" and Const(0) in (a, b):
        return Const(0)
    return Binary(op, a, b)


def bounds(expr: Expr, extents: Mapping[int, int]) -> tuple[int, int]:
    """Smallest and largest value, each variable ranging over 0..extent-1 independently."""
    if isinstance(expr, Const):
        return expr.value, expr.value
    if isinstance(expr, Iter):
        return 0, extents[expr.key] - 1
    if isinstance(expr, Number):
        raise UnsupportedTrace("the bounds of an index depend on a decision")
    if isinstance(expr, Opaque):
        raise UnsupportedTrace(expr.reason)
    (a, b), (c, d) = bounds(expr.a, extents), bounds(expr.b, extents)
    if expr.op == "+":
        return a + c, b + d
    if expr.op == "-":
        return a - d, b - c
    if expr.op == "*":
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if c != d or c <= 0:
        raise UnsupportedTrace("the divisor of an index is not a positive constant")
    if expr.op == "//":
        return a // c, b // c
    return (a % c, b % c) if a // c == b // c else (0, c - 1)


def interval(expr: Expr, env: Mapping[int, Form]) -> tuple[Num, Num]:
    """Smallest and largest value while every leaf runs, as in TVM's interval arithmetic."""
    if isinstance(expr, Const | Number):
        return expr.value, expr.value
    if isinstance(expr, Opaque):
        raise UnsupportedTrace(expr.reason)
    if isinstance(expr, Iter):
        low: Num = env[expr.key].get(None, 0)
        high = low
        for leaf, stride in env[expr.key].items():
            reach = 0 if leaf is None else times(stride, leaf.extent - 1)
            low, high = low + smaller(reach, 0), high + larger(reach, 0)
        return low, high
    (a, b), (c, d) = interval(expr.a, env), interval(expr.b, env)
    if expr.op == "+":
        return a + c, b + d
    if expr.op == "-":
        return a - d, b - c
    if expr.op == "*" and isinstance(expr.a, Const):
        (a, b), (c, d) = (c, d), (a, b)
    if not certain(both(c == d, c > 0)):
        raise UnsupportedTrace("a factor or divisor of an index may be negative")
    if expr.op == "*":
        return times(a, c), times(b, c)
    if expr.op == "//":
        return a // c, b // c
    one = a // c == b // c
    return select(one, a % c, 0), select(one, b % c, c - 1)


def narrow(expr: Expr, extents: Mapping[int, int]) -> Expr:
    """Simplify divisions by the variables' ranges (`v // 64` is 0 for v < 64)."""
    if not isinstance(expr, Binary):
        return expr
    a, b = narrow(expr.a, extents), narrow(expr.b, extents)
    if expr.op in ("//", "%") and isinstance(b, Const) and b.value > 0:
        low, high = bounds(a, extents)
        if low // b.value == high // b.value:
            if expr.op == "//":
                return Const(low // b.value)
            return binary("-", a, Const(low // b.value * b.value))
    return binary(expr.op, a, b)


def read(node: Any, keys: Mapping[Any, int]) -> Expr:
    """A TVM `PrimExpr` as an `Expr`.

    Parameters
    ----------
    node
        The expression.
    keys
        TVM variable -> number.

    Raises
    ------
    UnsupportedTrace
        It contains something other than variables, constants, + - * // %.
    """
    kind = type(node).__name__
    if kind == "IntImm":
        return Const(int(node.value))
    if kind == "Cast":
        return read(node.value, keys)
    if kind in _NODES:
        return binary(_NODES[kind], read(node.a, keys), read(node.b, keys))
    if kind.endswith("Var") and node in keys:
        return Iter(keys[node])
    raise UnsupportedTrace(f"an index holds {kind}, which has no affine form")


def substitute(expr: Expr, by: Mapping[int, Expr]) -> Expr:
    """Replace iteration variables by expressions."""
    if isinstance(expr, Iter):
        return by.get(expr.key, expr)
    if isinstance(expr, Binary):
        return binary(expr.op, substitute(expr.a, by), substitute(expr.b, by))
    return expr


def may_decrease(expr: Expr) -> bool:
    """Whether an index may decrease while a variable increases."""
    if not isinstance(expr, Binary):
        return False
    if expr.op == "-" and variables(expr.b):
        return True
    negative = any(isinstance(x, Const) and x.value < 0 for x in (expr.a, expr.b))
    if expr.op == "*" and negative:
        return True
    return may_decrease(expr.a) or may_decrease(expr.b)


def divides(expr: Expr) -> bool:
    """Whether an index contains a quotient or a remainder."""
    if not isinstance(expr, Binary):
        return False
    return expr.op in ("//", "%") or divides(expr.a) or divides(expr.b)


def divisors(expr: Expr) -> frozenset[int]:
    """Constants by which an index, or a part of it, is divided."""
    if not isinstance(expr, Binary):
        return frozenset()
    inner = divisors(expr.a) | divisors(expr.b)
    match expr:
        case Binary(op="//" | "%", b=Const(value=int(divisor))):
            return inner | {divisor}
    return inner


def variables(expr: Expr) -> frozenset[int]:
    """Numbers of the iteration variables in an expression."""
    if isinstance(expr, Iter):
        return frozenset((expr.key,))
    if isinstance(expr, Binary):
        return variables(expr.a) | variables(expr.b)
    return frozenset()


class Evaluator:
    """Evaluates expressions to forms, and records the rows in which all divisions are exact.

    Parameters
    ----------
    env
        Number of an iteration variable -> its form.
    syntactic
        Whether to evaluate as TVM's StrideExtractor does, which ignores terms under a floormod
        (`rewrite_parallel_vectorize_unroll.cc`).
    memo
        Cache of divisions: quotient, remainder and rows in which they are exact. Valid only while
        the variables' forms are unchanged.
    signed
        Whether strides may be negative: a quotient of such a form is not exact.
    """

    def __init__(
        self,
        env: Mapping[int, Form],
        syntactic: bool = False,
        memo: dict[tuple[Expr, Expr], tuple[Form, Form, Mask]] | None = None,
        signed: bool = False,
    ) -> None:
        self.env = env
        self.signed = signed
        self.memo = {} if memo is None else memo
        self.syntactic = syntactic
        self.exact: Mask = True

    def form(self, expr: Expr) -> Form:
        """The form of an expression."""
        if isinstance(expr, Iter):
            return self.env[expr.key]
        if isinstance(expr, Const):
            return {None: expr.value} if expr.value else {}
        if isinstance(expr, Number):
            return {None: expr.value}
        if isinstance(expr, Opaque):
            raise UnsupportedTrace(expr.reason)
        if expr.op in ("//", "%"):
            return self._division(expr)
        a, b = self.form(expr.a), self.form(expr.b)
        if expr.op == "+":
            return forms.add(a, b)
        if expr.op == "-":
            return forms.add(a, b, -1)
        return self._product(a, b)

    def _product(self, a: Form, b: Form) -> Form:
        factor, form = forms.constant(b), a
        if factor is None:
            factor, form = forms.constant(a), b
        if factor is None:
            raise UnsupportedTrace("an index is a product of two variables")
        return forms.scale(form, factor)

    def _division(self, expr: Binary) -> Form:
        key = (expr.a, expr.b)
        if key not in self.memo:
            width = forms.constant(self.form(expr.b))
            if width is None or not certain(width > 0):
                raise UnsupportedTrace("the divisor of an index is not a positive number")
            before, self.exact = self.exact, True
            dividend = self.form(expr.a)
            high, low, exact = forms.divide(dividend, width)
            if self.signed:
                for leaf, stride in dividend.items():
                    exact = both(exact, True if leaf is None else stride >= 0)
            self.memo[key] = high, low, both(self.exact, exact)
            self.exact = before
        high, low, exact = self.memo[key]
        if self.syntactic:
            return high if expr.op == "//" else {}
        self.exact = both(self.exact, exact)
        return high if expr.op == "//" else low
