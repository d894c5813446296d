"""Walk a scheduled function: its blocks with the loops around them, and its allocations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pruner_ms.symbolic.program import LoopKind
from pruner_ms.tvm_compat.paths import as_int, block_of, iter_type_name, plain

_FOR_KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED)
_THREAD_TAGS = {"b": LoopKind.BLOCK, "t": LoopKind.THREAD, "v": LoopKind.VTHREAD}
_UNROLL = "pragma_auto_unroll_max_step"
_PIPELINE = "software_pipeline_stage"
INIT = "_init"


@dataclass
class For:
    """A loop on the way down."""

    var: Any
    extent: int
    kind: LoopKind
    tag: str
    unroll: int
    stages: int


@dataclass
class Found:
    """A block without further blocks, and the loops around it."""

    name: str
    block: Any
    loops: list[For]


class Walk:
    """Collects blocks, loops and allocations of a function, in program order."""

    def __init__(self, func: Any) -> None:
        self.leaves: list[Found] = []
        self.allocs: list[tuple[Any, list[For]]] = []
        self.reducing: set[Any] = set()
        self._visit(func.body, [])

    def _visit(self, stmt: Any, loops: list[For]) -> bool:
        """Walk a statement; True if there is a block in it."""
        kind = type(stmt).__name__
        if kind == "SeqStmt":
            return self._all(stmt.seq, loops)
        if kind == "For":
            return self._visit(stmt.body, [*loops, _read_for(stmt)])
        if kind.endswith("BlockRealize"):
            self._block(stmt, loops)
            return True
        if kind == "IfThenElse":
            parts = [stmt.then_case, stmt.else_case]
            return self._all([part for part in parts if part is not None], loops)
        body = getattr(stmt, "body", None)
        return body is not None and self._visit(body, loops)

    def _all(self, parts: Any, loops: list[For]) -> bool:
        found = [self._visit(part, loops) for part in parts]
        return any(found)

    def _block(self, realize: Any, loops: list[For]) -> None:
        block = block_of(realize)
        for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
            if iter_type_name(iv) == "R":
                self.reducing.update(_variables(value))
        for buffer in block.alloc_buffers:
            self.allocs.append((buffer, loops))
        if not self._visit(block.body, loops):
            self.leaves.append(Found(str(block.name_hint), block, loops))


def _variables(node: Any) -> list[Any]:
    kind = type(node).__name__
    if kind.endswith("Var"):
        return [node]
    found = []
    for name in ("a", "b", "value"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, int):
            found += _variables(child)
    return found


def _read_for(loop: Any) -> For:
    kind = int(loop.kind)
    tag = "" if loop.thread_binding is None else str(loop.thread_binding.thread_tag)
    code = _THREAD_TAGS.get(tag[:1], LoopKind.SERIAL) if tag else _FOR_KINDS[min(kind, 3)]
    notes = {str(k): v for k, v in loop.annotations.items()} if len(loop.annotations) else {}
    unroll = as_int(notes[_UNROLL]) if _UNROLL in notes else 0
    stages = 1
    if _PIPELINE in notes:
        order = [int(s) for s in plain(notes[_PIPELINE])]
        stages = max(order) - min(order) + 1
    extent = as_int(loop.extent) if type(loop.extent).__name__ == "IntImm" else 1
    return For(loop.loop_var, extent, code, tag, unroll, stages)


def initialisations_last(leaves: list[Found]) -> list[Found]:
    """Put each initialisation directly before its update."""
    found = [leaf for leaf in leaves if not leaf.name.endswith(INIT)]
    for leaf in leaves:
        if leaf.name.endswith(INIT):
            update = leaf.name.removesuffix(INIT) + "_update"
            at = next((i for i, other in enumerate(found) if other.name == update), 0)
            found.insert(at, leaf)
    return found
