"""Walk a scheduled function: its blocks with the loops and conditions around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pruner_ms.symbolic.program import LoopKind
from pruner_ms.tvm_compat.paths import as_int, block_of, iter_type_name

_FOR_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED)
_THREAD_TAGS = {"b": LoopKind.BLOCK, "t": LoopKind.THREAD, "v": LoopKind.VTHREAD}
_UNROLL = "pragma_auto_unroll_max_step"
_PIPELINE = "software_pipeline_stage"
INIT = "_init"


@dataclass(frozen=True)
class For:
    """A loop on the way down."""

    var: Any
    extent: int
    start: int
    kind: LoopKind
    tag: str
    unroll: int
    pipelined: bool


@dataclass(frozen=True)
class LeafBlock:
    """A block that is one statement, with the loops and conditions around it.

    Attributes
    ----------
    name
        The block's; a second block of the same name gets a suffix.
    tensorized
        Whether an intrinsic has replaced its body.
    conditions
        The predicate of the block and the conditions of the branches around it.
    """

    name: str
    block: Any
    loops: tuple[For, ...]
    tensorized: bool
    conditions: tuple[Any, ...]


class Walk:
    """Collects the statements of a function, in program order.

    Attributes
    ----------
    leaves
        Blocks without inner blocks, or whose body is an intrinsic's.
    reducing
        Loop variables that occur in the binding of a reduction variable.
    """

    def __init__(self, func: Any) -> None:
        self.leaves: list[LeafBlock] = []
        self.reducing: set[Any] = set()
        self._names: dict[str, int] = {}
        self._visit(func.body, (), ())

    def _visit(self, stmt: Any, loops: tuple[For, ...], conditions: tuple[Any, ...]) -> bool:
        """Walk a statement; True if it contains a block."""
        kind = type(stmt).__name__
        if kind == "SeqStmt":
            have_blocks = [self._visit(part, loops, conditions) for part in stmt.seq]
            return any(have_blocks)
        if kind == "For":
            return self._visit(stmt.body, (*loops, _read_for(stmt)), conditions)
        if kind.endswith("BlockRealize"):
            self._block(stmt, loops, conditions)
            return True
        if kind == "IfThenElse":
            parts = [part for part in (stmt.then_case, stmt.else_case) if part is not None]
            inner = (*conditions, stmt.condition)
            have_blocks = [self._visit(part, loops, inner) for part in parts]
            return any(have_blocks)
        body = getattr(stmt, "body", None)
        return body is not None and self._visit(body, loops, conditions)

    def _block(self, realize: Any, loops: tuple[For, ...], conditions: tuple[Any, ...]) -> None:
        block = block_of(realize)
        if type(block.body).__name__ == "Evaluate" and not len(block.writes):
            return  # the rest of a block that rewrote the layout of an argument
        for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
            if iter_type_name(iv) == "R":
                self.reducing.update(variables(value))
        if type(realize.predicate).__name__ != "IntImm":
            conditions = (*conditions, realize.predicate)
        tensorized = len(block.match_buffers) > 0
        if tensorized or not self._visit(block.body, loops, conditions):
            name = self._name(str(block.name_hint))
            self.leaves.append(LeafBlock(name, block, loops, tensorized, conditions))

    def _name(self, name: str) -> str:
        seen = self._names[name] = self._names.get(name, 0) + 1
        return name if seen == 1 else f"{name}'{seen}"


def variables(node: Any) -> Iterator[Any]:
    """Variables of an index expression."""
    if type(node).__name__.endswith("Var"):
        yield node
        return
    for name in ("a", "b", "value"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, int):
            yield from variables(child)


def _read_for(loop: Any) -> For:
    binding = loop.thread_binding
    tag = "" if binding is None else str(binding.thread_tag)
    kind = _THREAD_TAGS.get(tag[:1]) if tag else _FOR_KINDS[min(int(loop.kind), 3)]
    notes = loop.annotations
    marked = len(notes) > 0
    extent, start = loop.extent, loop.min
    return For(
        loop.loop_var,
        as_int(extent) if type(extent).__name__ == "IntImm" else 1,
        as_int(start) if type(start).__name__ == "IntImm" else 0,
        LoopKind.SERIAL if kind is None else kind,
        tag,
        as_int(notes[_UNROLL]) if marked and _UNROLL in notes else 0,
        marked and _PIPELINE in notes,
    )


def initialisations_last(leaves: list[LeafBlock]) -> list[LeafBlock]:
    """Move each initialisation directly before its update."""
    ordered = [leaf for leaf in leaves if not leaf.name.endswith(INIT)]
    for leaf in leaves:
        if leaf.name.endswith(INIT):
            stem = leaf.name.removesuffix(INIT)
            # a cross-thread reduction is initialised for `<block>_in_thread`
            updates = (stem + "_update", stem)
            at = next((i for i, other in enumerate(ordered) if other.name in updates), None)
            ordered.insert(len(ordered) if at is None else at, leaf)
    return ordered
