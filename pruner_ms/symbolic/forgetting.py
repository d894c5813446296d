"""Design spaces in which a block would lose the previous contents of its output.

With `cache_write` and a few similar instructions a block computes in a new buffer, all of which is
then copied to the output. Two kinds of blocks become wrong: an update (`C += A * B` without a
`T.init`) starts from the uninitialised new buffer, and elements that a block does not write
(`C[2 * i] = ...`, or a store under a condition) are overwritten. TVM checks for neither (tvm
`schedule/primitive/cache_read_write.cc`). Its other instructions that would be wrong for such
blocks fail, since they require complete or reduction blocks. Evidence: docs/constants.md.

Blocks that `te.compute` makes write every element once: they are of neither kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pruner_ms.symbolic.ops import LOADS
from pruner_ms.symbolic.primitives.trace import Inst, Slot, read_trace
from pruner_ms.symbolic.tir_walk import walk
from pruner_ms.tvm_compat.exprs import is_variable
from pruner_ms.tvm_compat.paths import (
    block_of,
    iter_type_name,
    prim_func,
    region_buffer,
    structural_equal,
)

_NEW_OUTPUT = {"CacheWrite": 0, "ReindexCacheWrite": 0, "WriteAt": 1}
"""Instructions that copy a whole new buffer to an output, with the index of the block among their
inputs. The index of the output is their first attribute."""

_WRITES = 1
"""Second attribute of a `ReIndex` of an output: each instance of the block has an element of the
new buffer, so that exactly the written elements are copied."""


@dataclass(frozen=True)
class _Output:
    """How a block writes one buffer.

    Attributes
    ----------
    updates
        Whether a value depends on the contents of the buffer before the block.
    covers
        Whether each element between the first and the last one is written.
    """

    updates: bool
    covers: bool


_Outputs = dict[str, list[_Output]]
"""By name of the block, in the order of its writes."""


def preserving_outputs(design_spaces: Sequence[Any], mod: Any) -> tuple[list[Any], list[str]]:
    """The design spaces that preserve the contents of outputs, and the reasons for dropping others.

    Parameters
    ----------
    design_spaces
        TVM schedules.
    mod
        Module of the function that they schedule.

    Returns
    -------
    tuple
        The spaces to search, and a sentence for each of the others.
    """
    outputs = _outputs_of(mod)
    right: list[Any] = []
    reasons: list[str] = []
    for space in design_spaces:
        reason = _forgets(read_trace(space.trace), outputs) if outputs else ""
        if reason:
            reasons.append(reason)
        else:
            right.append(space)
    return right, reasons


def _forgets(insts: Sequence[Inst], outputs: _Outputs) -> str:
    """Why a trace loses the contents of an output; empty if it does not."""
    now = {name: list(block_outputs) for name, block_outputs in outputs.items()}
    names: dict[int, str] = {}
    for inst in insts:
        if inst.kind == "GetSBlock":
            names[inst.outputs[0]] = str(inst.attrs[0])
            continue
        if inst.kind == "ReIndex" and inst.attrs[1] == _WRITES:
            place = 0
        elif inst.kind in _NEW_OUTPUT:
            place = _NEW_OUTPUT[inst.kind]
        else:
            continue
        slot = inst.inputs[place]
        name = names.get(slot.index) if isinstance(slot, Slot) else None
        # the trace does not name a block that another instruction made: it may be any of them
        for one in now if name is None else [name]:
            block_outputs = now.get(one, [])
            chosen = [inst.attrs[0]] if name is not None else range(len(block_outputs))
            for number in (n for n in chosen if n < len(block_outputs)):
                output = block_outputs[number]
                if output.updates or not (output.covers or inst.kind == "ReIndex"):
                    return f"{inst.kind} makes block {one!r} lose the contents of its output"
                block_outputs[number] = replace(output, covers=True)
    return ""


def _outputs_of(mod: Any) -> _Outputs:
    """Outputs of the blocks of a module that may lose their contents."""
    by_block: _Outputs = {}
    for realize in _realizes(prim_func(mod).body):
        block = block_of(realize)
        outputs = [_output(realize, block, region_buffer(region)) for region in block.writes]
        if any(output.updates or not output.covers for output in outputs):
            by_block.setdefault(str(block.name_hint), outputs)
    return by_block


def _realizes(body: Any) -> Iterator[Any]:
    return (node for node in walk(body) if type(node).__name__.endswith("BlockRealize"))


def _output(realize: Any, block: Any, buffer: Any) -> _Output:
    stores = [s for s in _plain_stores(block.body) if region_buffer(s) == buffer]
    begun = block.init is not None and any(
        region_buffer(store) == buffer for store in _plain_stores(block.init)
    )
    loads = [
        node
        for node in walk(block.body)
        if type(node).__name__ in LOADS and region_buffer(node) == buffer
    ]
    initialised = begun and all(any(_same(load, store) for store in stores) for load in loads)
    covers = _always(realize) and any(_covers(store, block) for store in stores)
    return _Output(updates=bool(loads) and not initialised, covers=covers)


def _plain_stores(stmt: Any) -> Iterator[Any]:
    """Stores that each instance of a block executes, once."""
    kind = type(stmt).__name__
    if kind == "BufferStore":
        yield stmt
    elif kind == "SeqStmt":
        for part in stmt.seq:
            yield from _plain_stores(part)
    elif kind in ("AttrStmt", "LetStmt"):
        yield from _plain_stores(stmt.body)


def _same(load: Any, store: Any) -> bool:
    """Whether a load reads the element that a store writes."""
    pairs = zip(load.indices, store.indices, strict=True)
    return all(structural_equal(one, other) for one, other in pairs)


def _always(realize: Any) -> bool:
    """Whether a block has no condition, and each of its variables is a loop or a constant."""
    plain = all(is_variable(value) or _is_number(value) for value in realize.iter_values)
    return plain and _is_number(realize.predicate) and int(realize.predicate.value) == 1


def _is_number(expr: Any) -> bool:
    return type(expr).__name__ == "IntImm"


def _covers(store: Any, block: Any) -> bool:
    """Whether a store writes every element of a box.

    Each index must be a constant, or a spatial variable that no other index uses, with or without
    an offset.
    """
    spatial = {iv.var for iv in block.iter_vars if iter_type_name(iv) == "S"}
    for index in store.indices:
        if _is_number(index):
            continue
        parts = [index.a, index.b] if type(index).__name__ in ("Add", "Sub") else [index]
        moving = [part for part in parts if not _is_number(part)]
        if len(moving) != 1 or moving[0] not in spatial:
            return False
        spatial.remove(moving[0])
    return True
