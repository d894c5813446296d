"""The oracle: the same `SketchProgram`, read off one schedule that TVM has made.

Loops, regions and buffers are those after CompactBufferAllocation; operations are counted in the
block's body before LowerInitBlock. Threads, memory and verdict are those after the passes that
`VerifyGPUCode` runs, statements written out those after UnrollLoop of the default pipeline
(`tvm_compat.passes`). A block that was tensorized is one statement, read by its regions. A box is
clipped to the buffer's edge; iterations that a guard keeps from running count as if they ran.
Arguments that RewriteLayout packs are read packed, as in the program that is built and measured.

Nothing here knows how the interpreter derives any of it.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace, unsupported
from pruner_ms.symbolic.lowered_access import ReadAccess, layout, read_access
from pruner_ms.symbolic.lowered_body import (
    body_of,
    combines,
    regions_of,
    steps_of,
    written_elsewhere,
)
from pruner_ms.symbolic.lowered_gpu import facts
from pruner_ms.symbolic.lowered_walk import INIT, For, Found, Walk, initialisations_last
from pruner_ms.symbolic.numeric import Enumerator, may_fail
from pruner_ms.symbolic.ops import KINDS, Body
from pruner_ms.symbolic.program import (
    Buffer,
    GpuFacts,
    Loop,
    Role,
    SketchProgram,
    Statement,
    staged,
)
from pruner_ms.symbolic.roles import role_of
from pruner_ms.tvm_compat.passes import (
    COMPACTED,
    REDUCED,
    UNROLL_PASSES,
    VERIFY_PASSES,
    advance,
    lowerable,
    without_rewriting,
)
from pruner_ms.tvm_compat.paths import buffer_names, iter_type_name, prim_func, region_buffer
from pruner_ms.tvm_compat.targets import is_gpu
from pruner_ms.types import IntArray


class _Reader:
    """Assembles the program of one function."""

    def __init__(self, func: Any, target: Any) -> None:
        func = without_rewriting(func)
        self.func, self.target = func, target
        reduced = advance(lowerable(func, target), VERIFY_PASSES, None, REDUCED)
        self.compacted = advance(reduced, VERIFY_PASSES, REDUCED, COMPACTED)
        self.leaves = initialisations_last(Walk(self.compacted["main"]).leaves)
        before = Walk(reduced["main"])
        self.reducing = before.reducing
        self.blocks = {leaf.name: leaf.block for leaf in before.leaves}
        self.params = buffer_names(func)
        self.buffers: dict[Any, int] = {}
        self.order: list[Any] = []

    def program(self, unrolled: bool, gpu: bool) -> SketchProgram:
        """The program."""
        reductions = [self._reduces(leaf) for leaf in self.leaves]
        regions = [
            regions_of(leaf.block, reduces and not leaf.tensorized)
            for leaf, reduces in zip(self.leaves, reductions, strict=True)
        ]
        statements = tuple(
            self._statement(leaf, found, reduces, regions)
            for leaf, found, reduces in zip(self.leaves, regions, reductions, strict=True)
        )
        return SketchProgram(
            rows=1,
            statements=statements,
            buffers=staged([self._buffer(buffer) for buffer in self.order], statements),
            supported=np.ones(1, bool),
            gpu=self.gpu() if gpu else None,
            unrolled=cache(partial(_written_out, self.func, self.target)) if unrolled else None,
        )

    def _reduces(self, leaf: Found) -> bool:
        block = self.blocks.get(leaf.name, leaf.block)
        return combines(block) or any(iter_type_name(iv) == "R" for iv in block.iter_vars)

    def _index(self, buffer: Any) -> int:
        if buffer not in self.buffers:
            self.buffers[buffer] = len(self.order)
            self.order.append(buffer)
        return self.buffers[buffer]

    def _access(self, write: bool, region: Any, names: Enumerator) -> ReadAccess:
        return read_access(self._index(region_buffer(region)), write, region, names)

    def _statement(
        self,
        leaf: Found,
        regions: list[tuple[bool, Any]],
        reduces: bool,
        everything: list[list[tuple[bool, Any]]],
    ) -> Statement:
        names = Enumerator(
            [loop.var for loop in leaf.loops],
            [loop.extent for loop in leaf.loops],
            [loop.start for loop in leaf.loops],
        )
        body = body_of(self.blocks.get(leaf.name, leaf.block), leaf.tensorized)
        target = next((region_buffer(r) for write, r in regions if write), None)
        guarded = any(may_fail(names, condition) for condition in leaf.conditions)
        return Statement(
            name=leaf.name,
            role=_role(leaf, body, regions, everything),
            loops=tuple(self._loop(loop) for loop in leaf.loops),
            accesses=tuple(self._access(write, region, names) for write, region in regions),
            ops={kind: np.array([body.ops.get(kind, 0)]) for kind in KINDS},
            dtype="int32" if target is None else str(target.dtype),
            alive=np.ones(1, bool),
            unroll=np.array([max([0, *(loop.unroll for loop in leaf.loops)])]),
            reduction=reduces,
            guarded=np.array([guarded]) if guarded else None,
            steps=steps_of(leaf.block) if leaf.tensorized and reduces else 1,
        )

    def _loop(self, loop: For) -> Loop:
        return Loop(
            extent=np.array([loop.extent]),
            kind=np.array([int(loop.kind)], np.int8),
            reduction=loop.var in self.reducing,
            boundary=np.ones(1, bool),
            tag=loop.tag,
        )

    def _buffer(self, buffer: Any) -> Buffer:
        shape, strides = layout(buffer)
        return Buffer(
            name=self.params.get(buffer, str(buffer.name)),
            dtype=str(buffer.dtype),
            scope=str(buffer.scope()),
            param=buffer in self.params,
            shape=tuple(np.array([extent]) for extent in shape),
            alloc=np.array([strides[0] * shape[0] if shape else 1]),
        )

    def gpu(self) -> GpuFacts | None:
        """Threads, memory and verdict; None on a CPU."""
        if not is_gpu(self.target):
            return None
        return facts(self.func, self.compacted, self.leaves, self.target)


def _role(
    leaf: Found,
    body: Body,
    regions: list[tuple[bool, Any]],
    everything: list[list[tuple[bool, Any]]],
) -> Role:
    source = next((region_buffer(r) for write, r in regions if not write), None)
    target = next((region_buffer(r) for write, r in regions if write), source)
    target_scope = "global" if target is None else str(target.scope())
    return role_of(
        leaf.name.endswith(INIT) and source is None,
        body.copies,
        target_scope if source is None else str(source.scope()),
        target_scope,
        source is not None and written_elsewhere(source, regions, everything),
    )


def _written_out(func: Any, target: Any) -> IntArray:
    """Stores and calls in the text after UnrollLoop; -1 where a pass throws."""
    try:
        lowered = advance(lowerable(func, target), UNROLL_PASSES)
    except Exception:
        return np.array([-1])
    return np.array([_count(lowered["main"].body)])


def _count(stmt: Any) -> int:
    kind = type(stmt).__name__
    if kind == "Evaluate":
        return int(type(stmt.value).__name__ != "IntImm")  # a constant is nothing
    if kind == "BufferStore":
        return 1
    if kind == "SeqStmt":
        return sum(_count(part) for part in stmt.seq)
    found = 0
    for name in ("body", "then_case", "else_case"):
        child = getattr(stmt, name, None)
        if child is not None:
            found += _count(child)
    return found


def read_gpu(mod: Any, target: Any) -> GpuFacts | None:
    """The facts alone of one schedule; None on a CPU."""
    return _Reader(prim_func(mod), target).gpu()


def read(mod: Any, target: Any, unrolled: bool = False, gpu: bool = True) -> SketchProgram:
    """Read one schedule.

    Parameters
    ----------
    mod
        Its module, after the postprocessors.
    target
        The task's target.
    unrolled
        Whether it can lower as far as UnrollLoop, too, when its `unrolled` is asked for.
    gpu
        Whether to read threads, memory and the verdict; they cost as much as the rest.

    Raises
    ------
    UnsupportedTrace
        TVM cannot lower it, or the text that comes out holds what is not known here.
    """
    with unsupported("reading a schedule"):  # TVM's passes raise whatever they raise
        program = _Reader(prim_func(mod), target).program(unrolled, gpu)
    if not program.statements:
        raise UnsupportedTrace("no block of it says what it reads and writes")
    return program
