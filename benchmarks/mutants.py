"""Small wrong versions of functions, made from their syntax trees and put in place in memory."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {
    "both": "either",
    "either": "both",
    "smaller": "larger",
    "larger": "smaller",
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "certain": "possible",
    "possible": "certain",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one function.

    Attributes
    ----------
    function
        Its qualified name within the module.
    line
        Of the module's file.
    change
        What was done, in words.
    tree
        Makes the module's syntax tree with the change.
    """

    module: str
    function: str
    line: int
    change: str
    tree: Callable[[], ast.Module]

    @property
    def name(self) -> str:
        """Where and what."""
        return f"{self.module.rsplit('.', 1)[-1]}.{self.function}:{self.line} {self.change}"


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """What can be done to a node: (words, how)."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            if type(op) in _FLIPS:
                new = _FLIPS[type(op)]

                def flip(n: Any, i: int = i, new: Any = new) -> None:
                    n.ops[i] = new()

                yield f"{type(op).__name__} -> {new.__name__}", flip
    elif isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And

        def swap(n: Any, other: Any = other) -> None:
            n.op = other()

        yield f"{type(node.op).__name__} -> {other.__name__}", swap
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        kind = _OPERATORS[type(node.op)]

        def compute(n: Any, kind: Any = kind) -> None:
            n.op = kind()

        yield f"{type(node.op).__name__} -> {kind.__name__}", compute
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        value = (not node.value) if isinstance(node.value, bool) else node.value + 1

        def write(n: Any, value: Any = value) -> None:
            n.value = value

        yield f"{node.value} -> {value}", write
    elif isinstance(node, ast.Attribute | ast.Name):
        yield from _renamed(node)


def _renamed(node: ast.Attribute | ast.Name) -> Iterator[tuple[str, Callable[[Any], None]]]:
    field = "attr" if isinstance(node, ast.Attribute) else "id"
    old = getattr(node, field)
    if old in _NAMES:

        def rename(n: Any) -> None:
            setattr(n, field, _NAMES[old])

        yield f"{old} -> {_NAMES[old]}", rename


def _dropped(node: ast.stmt) -> bool:
    """Whether a statement may be left out: one that changes something in place."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.AugAssign):
        return True
    return isinstance(node, ast.Assign) and isinstance(
        node.targets[0], ast.Attribute | ast.Subscript
    )


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Functions and methods of a module with their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def mutants_of(module: ModuleType) -> Iterator[Mutant]:
    """Every mutant of every function of a module, in the order of the file."""
    tree = ast.parse(Path(str(inspect.getsourcefile(module))).read_text())
    for name, function in functions_of(tree):
        yield from _of_function(module.__name__, tree, name, function)


def _of_function(
    module: str, tree: ast.Module, name: str, function: ast.FunctionDef
) -> Iterator[Mutant]:
    body = [part for statement in function.body for part in ast.walk(statement)]
    # `zip(strict=...)` only checks: sequences of one length go the same way with either value
    checks = [n.value for n in body if isinstance(n, ast.keyword) and n.arg == "strict"]
    for position, node in enumerate(body):
        if node in checks:
            continue
        line = getattr(node, "lineno", function.lineno)
        for words, change in _changes(node):
            make = partial(_changed, tree, name, position, change)
            yield Mutant(module, name, line, words, make)
        if isinstance(node, ast.stmt) and _dropped(node):
            words = f"without `{ast.unparse(node)[:60]}`"
            make = partial(_changed, tree, name, position, None)
            yield Mutant(module, name, line, words, make)


def _changed(
    tree: ast.Module, name: str, position: int, change: Callable[[Any], None] | None
) -> ast.Module:
    """A copy of a tree with a change at one node of a function; None drops the statement."""
    fresh = copy.deepcopy(tree)
    function = dict(functions_of(fresh))[name]
    node = [part for statement in function.body for part in ast.walk(statement)][position]
    if change is not None:
        change(node)
        return fresh
    for parent in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(parent, field, None)
            if isinstance(block, list) and node in block:
                block[block.index(node)] = ast.copy_location(ast.Pass(), node)
    return fresh


def code_of(code: CodeType, name: str) -> CodeType:
    """The code object of a qualified name within a module's."""
    for part in name.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part)
    return code


def function_of(module: ModuleType, name: str) -> FunctionType:
    """The function of a qualified name, out of its property or cache."""
    member: Any = module
    for part in name.split("."):
        member = inspect.getattr_static(member, part)
    for field in ("fget", "__wrapped__", "__func__"):
        inner = getattr(member, field, None)
        if inner is not None:
            member = inner
    if not isinstance(member, FunctionType):
        raise TypeError(f"{name} of {module.__name__} is no function")
    return member


@contextmanager
def in_place(mutant: Mutant) -> Iterator[None]:
    """Put a mutant's code into the function that every caller already holds."""
    module = importlib.import_module(mutant.module)
    compiled = compile(ast.fix_missing_locations(mutant.tree()), mutant.module, "exec")
    function = function_of(module, mutant.function)
    original = function.__code__
    function.__code__ = code_of(compiled, mutant.function)
    try:
        yield
    finally:
        function.__code__ = original
