"""Modules of PrimFuncs out of another TVM's JSON, made anew by this TVM's constructors.

What a workload of MetaSchedule consists of is known: a function of buffers, blocks, loops, stores
and arithmetic. Everything else is refused by name; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any

from pruner_ms.tvm_compat.object_graph import BINARY, Graph
from pruner_ms.tvm_compat.paths import IS_S_TIR, IRModule, _first, tir

# Makers of expressions, statements and blocks for `rebuild`, by the kind of a node.


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
"""Prefixes of the names of intrinsics and of functions' attributes, this TVM's first."""

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
    for candidate in (name, *(room + short for room in ROOMS)):
        try:
            _Op.get(candidate)
        except (RuntimeError, ValueError, AttributeError):
            continue
        return candidate
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


_RENAMED = ("noalias", "is_scheduled")
"""Attributes of functions that begin with the name of the module."""

_PLAIN = 1
"""Kind of a buffer that does not broadcast itself (tvm `tir/buffer.h`, until 0.25)."""

_MARK = "s_tir"
"""Attribute of functions with blocks, since 0.24."""


class Rebuilder:
    """Objects of this TVM for the nodes of a graph.

    Parameters
    ----------
    graph
        Of another TVM, or of this one.
    """

    graph: Graph

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._made: dict[int, Any] = {}
        # before 0.26 a function's parameters are handles, and buffers are mapped to them
        self._mapped = "buffer_map" in signature(tir.PrimFunc.__init__).parameters
        self._layout = "layout" in signature(tir.decl_buffer).parameters

    def module(self) -> Any:
        """The module in the graph's root.

        Raises
        ------
        ValueError
            It holds something that is not known here; the message names it.
        """
        graph = self.graph
        if graph.kind(graph.root) != "IRModule":
            raise ValueError(f"it holds a {graph.type_name(graph.root)}, not a module")
        if self.annotations(graph.root, "attrs"):
            raise ValueError("a module with attributes")
        functions = graph.object_pairs(graph.needed(graph.root, "functions"))
        return IRModule(
            {graph.text(name, "name_hint"): self._function(func) for name, func in functions}
        )

    def make(self, i: int | None) -> Any:
        """The object for a node; the same one for the same node."""
        if i is None:
            return None
        if i not in self._made:
            self._made[i] = self._new(i)
        return self._made[i]

    def _new(self, i: int) -> Any:
        kind = self.graph.kind(i)
        if kind in BINARY:
            return getattr(tir, kind)(self.at(i, "a"), self.at(i, "b"))
        maker = MAKERS.get(kind)
        if maker is None:
            raise ValueError(f"a {self.graph.type_name(i)} is not known here")
        return maker(self, i)

    def at(self, i: int, *names: str) -> Any:
        """The object in a field."""
        return self.make(self.graph.needed(i, *names))

    def several(self, i: int, *names: str) -> list[Any]:
        """The objects of an array in a field."""
        return [self.make(item) for item in self.graph.items(self.graph.ref(i, *names))]

    def _function(self, i: int) -> Any:
        graph = self.graph
        if graph.kind(i) != "PrimFunc":
            raise ValueError(f"a {graph.type_name(i)} is no function that is scheduled")
        params = graph.items(graph.ref(i, "params"))
        if graph.has(i, "buffer_map"):
            pairs = dict(graph.object_pairs(graph.needed(i, "buffer_map")))
            names = [graph.text(param, "name", "name_hint") for param in params]
            if not all(param in pairs for param in params):
                raise ValueError("a function that takes something else than buffers")
            buffers = [self.buffer(pairs[param]) for param in params]
        else:
            buffers = [self.buffer(param) for param in params]
            names = [str(buffer.name) for buffer in buffers]
        body = self.at(i, "body")
        if self._mapped:
            handles = [tir.Var(name, "handle") for name in names]
            made = tir.PrimFunc(handles, body, None, dict(zip(handles, buffers, strict=True)))
        else:
            made = tir.PrimFunc(buffers, body)
        for name, value in self.annotations(i, "attrs").items():
            if name != _MARK:
                made = made.with_attr(_function_attr(name), value)
        return made.with_attr(_MARK, True) if self._marks() else made

    @staticmethod
    def _marks() -> bool:
        """Whether this TVM marks functions that have blocks."""
        script = _first("tvm.script:tirx", "tvm.script:tir")
        return "s_tir" in signature(script.prim_func).parameters

    def buffer(self, i: int) -> Any:
        """A buffer: a node of its own until 0.25, since then a variable with its type."""
        if i in self._made:
            return self._made[i]
        graph = self.graph
        typed = graph.kind(i) == "Var"
        about = graph.needed(i, "ty") if typed else i
        if typed and graph.kind(about) != "BufferType":
            raise ValueError(f"the variable {graph.text(i, 'name')} where a buffer should be")
        if graph.has(about, "axis_separators") and graph.items(graph.ref(about, "axis_separators")):
            raise ValueError("a buffer with axis separators")
        if graph.has(about, "buffer_type") and graph.inline(about, "buffer_type") != _PLAIN:
            raise ValueError("a buffer that broadcasts itself")
        options: dict[str, Any] = {"layout": None} if self._layout else {}
        if typed:
            scope = graph.text(about, "storage_scope")
        else:
            pointer = graph.needed(graph.needed(i, "data"), "type_annotation", "ty")
            scope = graph.text(pointer, "storage_scope")
        self._made[i] = tir.decl_buffer(
            self.several(about, "shape"),
            graph.dtype(about),
            graph.text(i, "name"),
            strides=self.several(about, "strides"),
            elem_offset=self.at(about, "elem_offset"),
            scope=scope,
            data_alignment=graph.inline(about, "data_alignment"),
            offset_factor=graph.inline(about, "offset_factor"),
            **options,
        )
        return self._made[i]

    def annotations(self, i: int, name: str) -> dict[str, Any]:
        """The map in a field, with plain values."""
        index = self.graph.ref(i, name)
        if index is not None and self.graph.kind(index) == "DictAttrs":
            index = self.graph.ref(index, "__dict__")
        return {key: self.value(node) for key, node in self.graph.pairs(index)}

    def value(self, i: int) -> Any:
        """A value of an annotation: a text, a number, a list, a map of such."""
        graph, kind = self.graph, self.graph.kind(i)
        if kind == "String":
            return graph.text(i)
        if kind == "StringImm":
            return graph.text(i, "value")
        if kind == "IntImm" and graph.dtype(i) == "bool":
            return bool(graph.immediate(i))
        if kind in ("IntImm", "FloatImm"):
            # until 0.19 every number was stored so; later versions tell it from a plain number
            return graph.immediate(i) if graph.old else self.make(i)
        if graph.is_number(i):
            return graph.plain(i)
        if kind == "Array":
            return [self.value(item) for item in graph.items(i)]
        if kind == "Map":
            return {key: self.value(item) for key, item in graph.pairs(i)}
        if kind == "None":
            return None
        raise ValueError(f"an annotation with a {graph.type_name(i)}")


def _function_attr(name: str) -> str:
    room, _, short = name.rpartition(".")
    return ROOMS[0] + short if room in ("tir", "tirx") and short in _RENAMED else name


_REFUSALS = (
    *(KeyError, IndexError, TypeError, AttributeError, RuntimeError),
    *(ArithmeticError, AssertionError),
)
"""What TVM's constructors raise for what they do not take, and Python for what is no number."""


def rebuilt(parsed: Any) -> Any:
    """The module in parsed JSON of any TVM, as this TVM has it.

    Raises
    ------
    ValueError
        It is no module, or holds something that is not known here.
    """
    try:
        return Rebuilder(Graph.parse(parsed)).module()
    except _REFUSALS as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"its objects cannot be made here ({said[-1][:160]})") from error
