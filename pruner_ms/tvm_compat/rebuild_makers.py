"""Makers of expressions, statements and blocks for `rebuild`, by the kind of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pruner_ms.tvm_compat.paths import IS_S_TIR, _first, tir

if TYPE_CHECKING:
    from pruner_ms.tvm_compat.rebuild import Rebuilder

_Range: Any = _first("tvm.ir:Range")
_Op: Any = _first("tvm.ir:Op")
_const: Any = _first("tvm.tirx:const", "tvm.tir:const")
_StringImm: Any = _first("tvm.tirx:StringImm", "tvm.tir:StringImm", "tvm.ir:StringImm")


def _block_class(name: str, old: str) -> Any:
    """A class of blocks: its own package since 0.26, another name before 0.24."""
    return _first(f"tvm.s_tir:{name}", f"tvm.tirx:{name}", f"tvm.tir:{old}")


_Block = _block_class("SBlock", "Block")
_BlockRealize = _block_class("SBlockRealize", "BlockRealize")
_MatchBufferRegion = _block_class("MatchBufferRegion", "MatchBufferRegion")

ROOMS = ("tirx.", "tir.") if IS_S_TIR else ("tir.", "tirx.")
"""Where intrinsics and attributes of functions are named, this TVM's first."""

_FOR_KINDS = range(5)


def _var(of: Rebuilder, i: int) -> Any:
    graph = of.graph
    if graph.has(i, "ty") and graph.kind(graph.needed(i, "ty")) == "BufferType":
        return of.buffer(i)
    return tir.Var(graph.text(i, "name", "name_hint"), graph.dtype(i))


def _number(of: Rebuilder, i: int) -> Any:
    return _const(of.graph.immediate(i), of.graph.dtype(i))


def _call(of: Rebuilder, i: int) -> Any:
    graph = of.graph
    op = graph.needed(i, "op")
    name = graph.text(op, "name") if graph.has(op, "name") else graph.text(op)
    return tir.call_intrin(graph.dtype(i), intrinsic(name), *of.several(i, "args"))


def intrinsic(name: str) -> str:
    """This TVM's name of an intrinsic of any TVM.

    Raises
    ------
    ValueError
        It has none.
    """
    short = name.rpartition(".")[2]
    for found in (name, *(room + short for room in ROOMS)):
        try:
            _Op.get(found)
        except (RuntimeError, ValueError, AttributeError):
            continue
        return found
    raise ValueError(f"the intrinsic {name} is not known here")


def _block(of: Rebuilder, i: int) -> Any:
    graph = of.graph
    buffers = [of.buffer(item) for item in graph.items(graph.ref(i, "alloc_buffers"))]
    iters = of.several(i, "iter_vars")
    return _Block(
        iters,
        of.several(i, "reads"),
        of.several(i, "writes"),
        graph.text(i, "name_hint"),
        of.at(i, "body"),
        of.make(graph.ref(i, "init")),
        buffers,
        of.several(i, "match_buffers"),
        of.annotations(i, "annotations"),
    )


def _for(of: Rebuilder, i: int) -> Any:
    graph = of.graph
    if graph.inline(i, "kind") not in _FOR_KINDS:
        raise ValueError(f"a loop of kind {graph.inline(i, 'kind')}")
    if graph.has(i, "step") and graph.ref(i, "step") is not None:
        raise ValueError("a loop with a step")
    return tir.For(
        of.at(i, "loop_var"),
        of.at(i, "min"),
        of.at(i, "extent"),
        graph.inline(i, "kind"),
        of.at(i, "body"),
        of.make(graph.ref(i, "thread_binding")),
        of.annotations(i, "annotations"),
    )


def _iter_var(of: Rebuilder, i: int) -> Any:
    graph = of.graph
    kind = graph.inline(i, "iter_type")
    domain = of.make(graph.ref(i, "dom"))  # none where a loop is bound to a thread
    return tir.IterVar(domain, of.at(i, "var"), kind, graph.text(i, "thread_tag"))


def _at(make: Callable[..., Any], *names: tuple[str, ...]) -> Callable[[Rebuilder, int], Any]:
    """A maker that gives a constructor the objects in some fields."""
    return lambda of, i: make(*(of.at(i, *alternatives) for alternatives in names))


def _region(of: Rebuilder, i: int) -> Any:
    buffer = of.buffer(of.graph.needed(i, "buffer", "source"))
    return tir.BufferRegion(buffer, of.several(i, "region"))


def _load(of: Rebuilder, i: int) -> Any:
    buffer = of.buffer(of.graph.needed(i, "buffer", "source"))
    return tir.BufferLoad(buffer, of.several(i, "indices"))


def _store(of: Rebuilder, i: int) -> Any:
    buffer = of.buffer(of.graph.needed(i, "buffer"))
    return tir.BufferStore(buffer, of.at(i, "value"), of.several(i, "indices"))


def _condition(of: Rebuilder, i: int) -> Any:
    other = of.make(of.graph.ref(i, "else_case"))
    return tir.IfThenElse(of.at(i, "condition"), of.at(i, "then_case"), other)


def _let(of: Rebuilder, i: int) -> Any:
    """A name for a value: around what uses it until 0.24, before it since then."""
    var, value, body = (of.at(i, name) for name in ("var", "value", "body"))
    if hasattr(tir, "LetStmt"):
        return tir.LetStmt(var, value, body)
    return tir.SeqStmt([tir.Bind(var, value), body])


MAKERS: Mapping[str, Callable[[Rebuilder, int], Any]] = MappingProxyType(
    {
        "Var": _var,
        "IntImm": _number,
        "FloatImm": _number,
        "StringImm": lambda of, i: _StringImm(of.graph.text(i, "value")),
        "Buffer": lambda of, i: of.buffer(i),
        "Range": lambda of, i: _Range.from_min_extent(of.at(i, "min"), of.at(i, "extent")),
        "IterVar": _iter_var,
        "BufferRegion": _region,
        "MatchBufferRegion": lambda of, i: _MatchBufferRegion(
            of.buffer(of.graph.needed(i, "buffer")), of.at(i, "source")
        ),
        "BufferLoad": _load,
        "BufferStore": _store,
        "Block": _block,
        "BlockRealize": lambda of, i: _BlockRealize(
            of.several(i, "iter_values"), of.at(i, "predicate"), of.at(i, "block")
        ),
        "For": _for,
        "LetStmt": _let,
        "SeqStmt": lambda of, i: tir.SeqStmt(of.several(i, "seq")),
        "IfThenElse": _condition,
        "Evaluate": _at(tir.Evaluate, ("value",)),
        "Cast": lambda of, i: tir.Cast(of.graph.dtype(i), of.at(i, "value")),
        "Select": _at(tir.Select, ("condition",), ("true_value",), ("false_value",)),
        "Let": _at(tir.Let, ("var",), ("value",), ("body",)),
        "Not": _at(tir.Not, ("a",)),
        "Call": _call,
    }
)
