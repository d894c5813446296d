"""The oracle: the same `SketchProgram`, read from one schedule that TVM has made.

Loops, regions and buffers are those after CompactBufferAllocation; operations are counted in the
block's body before LowerInitBlock. Threads, memory and validity are read after the passes that
`VerifyGPUCode` runs, the number of unrolled statements after UnrollLoop of the default pipeline
(`tvm_compat.passes`). A tensorized block is one statement, read by its regions. A box is
clipped to the buffer; iterations that a guard excludes count as if they ran. Arguments that
RewriteLayout packs are read packed, as in the program that is built and measured.

Nothing here uses rules of the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from pruner_ms.errors import UnsupportedTrace, unsupported
from pruner_ms.symbolic.ops import KINDS, LOADS, Body, children, read_body
from pruner_ms.symbolic.oracle.lowered_gpu import facts
from pruner_ms.symbolic.oracle.lowered_walk import INIT, For, LeafBlock, Walk, initialisations_last
from pruner_ms.symbolic.oracle.numeric import Enumerator, Index, TooLarge, UnknownIndex, may_fail
from pruner_ms.symbolic.program import (
    Access,
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
from pruner_ms.tvm_compat.paths import (
    as_int,
    buffer_names,
    iter_type_name,
    prim_func,
    region_buffer,
)
from pruner_ms.tvm_compat.targets import is_gpu
from pruner_ms.types import IntArray

# An access of one schedule, read from its region.


@dataclass(frozen=True)
class Axis:
    """One dimension of an access.

    Attributes
    ----------
    index
        First element as a function of the loops; None if unknown: the whole dimension then.
    size
        Elements from there.
    extent, stride
        Of the buffer's dimension.
    exact
        False if the index could be evaluated, but its table is too large.
    """

    index: Index | None
    size: int
    extent: int
    stride: int
    exact: bool = True

    def width(self, level: int) -> int:
        """Elements of the interval at a level, at most the buffer's."""
        moved = 0 if self.index is None else self.index.spread(level)
        return min(self.size + moved, self.extent)

    def step(self, loop: int) -> int:
        """Elements of the flat buffer that one step of a loop moves."""
        return 0 if self.index is None else self.index.step(loop) * self.stride


class ReadAccess(Access):
    """An access of one schedule."""

    def __init__(self, buffer: int, write: bool, axes: Sequence[Axis]) -> None:
        self.buffer = buffer
        self.write = write
        self.mask = np.ones(1, bool)
        self.exact = all(axis.exact for axis in axes)
        self._axes = axes
        self._widths_at: dict[int, list[int]] = {}

    def _widths(self, level: int) -> list[int]:
        if level not in self._widths_at:
            self._widths_at[level] = [axis.width(level) for axis in self._axes]
        return self._widths_at[level]

    def footprint(self, level: int) -> IntArray:
        """See `program.Access.footprint`."""
        return np.array([prod(self._widths(level))])

    def run(self, level: int) -> IntArray:
        """See `program.Access.run`."""
        total = 1
        for width, axis in zip(reversed(self._widths(level)), reversed(self._axes), strict=True):
            total *= width
            if width != axis.extent:
                break
        return np.array([total])

    def stride(self, loop: int) -> IntArray:
        """See `program.Access.stride`."""
        return np.array([sum(axis.step(loop) for axis in self._axes)])


def layout(buffer: Any) -> tuple[list[int], list[int]]:
    """Shape and strides of a buffer; a symbolic extent counts as 1."""
    shape = [as_int(e) if type(e).__name__ == "IntImm" else 1 for e in buffer.shape]
    if len(buffer.strides):
        return shape, [as_int(s) for s in buffer.strides]
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    return shape, strides


def read_access(buffer: int, write: bool, region: Any, names: Enumerator) -> ReadAccess:
    """An access by its region.

    Parameters
    ----------
    buffer
        Its index in the program.
    region
        TVM's buffer region, in terms of loop variables.
    names
        Evaluates them.
    """
    shape, strides = layout(region_buffer(region))
    axes = []
    for r, extent, stride in zip(region.region, shape, strides, strict=True):
        try:
            index: Index | None = names.index(r.min)
            size = names.index(r.extent).bounds()[1]
            exact = True
        except UnknownIndex as error:
            index, size, exact = None, extent, not isinstance(error, TooLarge)
        axes.append(Axis(index, size, extent, stride, exact))
    return ReadAccess(buffer, write, axes)


# Operations, reads and writes of one statement of a scheduled function.


_COMBINE = {"Add": "add", "Sub": "add", "Mul": "mul", "Max": "cmp", "Min": "cmp", "Select": "cmp"}
_REDUCE = "reduce_scope"


def regions_of(block: Any, reduction: bool) -> list[tuple[bool, Any]]:
    """Reads, then writes (True) of a block.

    The update of a reduction loads what it stores, even if the block does not list that read.
    """
    reads, writes = list(block.reads), list(block.writes)
    if reduction and _allreduce(block.body) is None:
        listed = [region_buffer(read) for read in reads]
        unlisted = [w for w in writes if not any(region_buffer(w).same_as(b) for b in listed)]
        reads = unlisted + reads
    return [*((False, region) for region in reads), *((True, region) for region in writes)]


def body_of(block: Any, tensorized: bool) -> Body:
    """Operations of one iteration of a block.

    The operations of an intrinsic follow from the sizes of its regions: with m*k, k*n and m*n
    elements there are m*n*k multiplications and as many additions.
    """
    reducer = _allreduce(block.body)
    if reducer is not None:
        return _combining(*reducer)
    if not tensorized:
        return read_body(block.body)
    written = [region_buffer(region) for region in block.writes]
    reads = [r for r in block.reads if not any(region_buffer(r).same_as(b) for b in written)]
    if len(reads) == 1:
        return Body(copies=True)
    if len(reads) < 2 or not written:
        return Body(copies=False)
    sizes = [_size(reads[0]), _size(reads[1]), _size(block.writes[0])]
    products = round(prod(sizes) ** 0.5)
    return Body({"add": products, "mul": products}, {}, False)


def steps_of(block: Any) -> int:
    """Number of instructions in an intrinsic's body; 1 if it contains no calls."""
    body = block.body
    parts = body.seq if type(body).__name__ == "SeqStmt" else [body]
    return max(1, sum(type(part).__name__ == "Evaluate" for part in parts))


def _allreduce(stmt: Any) -> tuple[Any, Any] | None:
    """Reducer and call of a reduction over threads, if a block's body is one."""
    if type(stmt).__name__ != "AttrStmt" or not str(stmt.attr_key).endswith(_REDUCE):
        return None
    return stmt.node, stmt.body.value


def combines(block: Any) -> bool:
    """Whether a block reduces over threads."""
    return _allreduce(block.body) is not None


def _combining(reducer: Any, call: Any) -> Body:
    """One combination of two values, and the computation of the values."""
    body = Body(copies=False)
    for result in reducer.result:
        for node in _nodes(result):
            body.count(_COMBINE.get(type(node).__name__, ""))
    count = as_int(call.args[0])
    for source in call.args[1 : 1 + count]:
        for node in _nodes(source):
            name = type(node).__name__
            if name in LOADS:
                key = str(region_buffer(node).name)
                body.loads[key] = body.loads.get(key, 0) + 1
            else:
                body.count(_COMBINE.get(name, ""))
    return body


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in children(node):
        yield from _nodes(child)


def _size(region: Any) -> int:
    return prod(as_int(r.extent) for r in region.region)


def written_elsewhere(
    buffer: Any, regions: Sequence[Any], all_regions: Sequence[Sequence[Any]]
) -> bool:
    """Whether a statement other than the one with these regions writes a buffer."""
    return any(
        write and region_buffer(region).same_as(buffer)
        for others in all_regions
        if others is not regions
        for write, region in others
    )


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
            self._statement(leaf, block_regions, reduces, regions)
            for leaf, block_regions, reduces in zip(self.leaves, regions, reductions, strict=True)
        )
        return SketchProgram(
            rows=1,
            statements=statements,
            buffers=staged([self._buffer(buffer) for buffer in self.order], statements),
            supported=np.ones(1, bool),
            gpu=self.gpu() if gpu else None,
            unrolled=cache(partial(_written_out, self.func, self.target)) if unrolled else None,
        )

    def _reduces(self, leaf: LeafBlock) -> bool:
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
        leaf: LeafBlock,
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
    leaf: LeafBlock,
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
    """Stores and calls in the program after UnrollLoop; -1 if a pass throws."""
    try:
        lowered = advance(lowerable(func, target), UNROLL_PASSES)
    except Exception:
        return np.array([-1])
    return np.array([_count(lowered["main"].body)])


def _count(stmt: Any) -> int:
    kind = type(stmt).__name__
    if kind == "Evaluate":
        return int(type(stmt.value).__name__ != "IntImm")  # a constant does not count
    if kind == "BufferStore":
        return 1
    if kind == "SeqStmt":
        return sum(_count(part) for part in stmt.seq)
    total = 0
    for name in ("body", "then_case", "else_case"):
        child = getattr(stmt, name, None)
        if child is not None:
            total += _count(child)
    return total


def read_gpu(mod: Any, target: Any) -> GpuFacts | None:
    """Only the facts of one schedule; None on a CPU."""
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
        Whether the program gets `unrolled`, which lowers as far as UnrollLoop when called.
    gpu
        Whether to read threads, memory and validity; they cost as much as the rest.

    Raises
    ------
    UnsupportedTrace
        TVM cannot lower it, or the lowered program contains something unknown.
    """
    with unsupported("reading a schedule"):  # TVM's passes raise errors of any type
        program = _Reader(prim_func(mod), target).program(unrolled, gpu)
    if not program.statements:
        raise UnsupportedTrace("no block of it lists its reads and writes")
    return program
