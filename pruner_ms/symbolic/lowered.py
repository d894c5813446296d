"""The oracle: the same `SketchProgram`, read off one schedule after all postprocessors.

Loops, regions and buffers are those after CompactBufferAllocation; operations are counted in the
block's body before it. Index ranges are enumerated, so nothing here knows how the interpreter
derives them. A block that was tensorized is one statement, read by its regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pruner_ms.symbolic.lowered_walk import INIT, For, Found, Walk, initialisations_last
from pruner_ms.symbolic.numeric import Enumerator, Table, UnknownIndex, constant
from pruner_ms.symbolic.ops import KINDS, Body, read_body, statements
from pruner_ms.symbolic.program import (
    ITEM_BYTES,
    Access,
    Buffer,
    GpuFacts,
    Loop,
    SketchProgram,
    Statement,
)
from pruner_ms.symbolic.roles import role_of
from pruner_ms.tvm_compat.passes import compacted
from pruner_ms.tvm_compat.paths import (
    as_int,
    buffer_names,
    iter_type_name,
    prim_func,
    region_buffer,
)
from pruner_ms.types import IntArray


class ReadAccess(Access):
    """An access of one schedule, by tables.

    Parameters
    ----------
    dims
        Per dimension: tables, elements of one iteration, extent and stride of the buffer.
    """

    def __init__(
        self, buffer: int, write: bool, dims: Sequence[tuple[list[Table], int, int, int]]
    ) -> None:
        self.buffer = buffer
        self.write = write
        self.mask = np.ones(1, bool)
        self._dims = dims

    def _widths(self, level: int) -> list[int]:
        return [
            min(size + sum(t.spread(level) for t in tables), extent)
            for tables, size, extent, _ in self._dims
        ]

    def footprint(self, level: int) -> IntArray:
        """See `program.Access.footprint`."""
        return np.array([int(np.prod(self._widths(level), dtype=np.int64))])

    def run(self, level: int) -> IntArray:
        """See `program.Access.run`."""
        total = 1
        for width, (_, _, extent, _) in zip(
            reversed(self._widths(level)), reversed(self._dims), strict=True
        ):
            total *= width
            if width != extent:
                break
        return np.array([total])

    def stride(self, loop: int) -> IntArray:
        """See `program.Access.stride`."""
        return np.array(
            [sum(t.step(loop) * stride for tables, _, _, stride in self._dims for t in tables)]
        )


class _Reader:
    """Assembles the program of one function."""

    def __init__(self, func: Any) -> None:
        before, after = Walk(func), Walk(compacted(func))
        self.leaves = initialisations_last(after.leaves)
        self.allocs = after.allocs
        self.reducing = before.reducing
        self.bodies = {leaf.name: leaf.block for leaf in before.leaves}
        self.reductions = {
            leaf.name
            for leaf in before.leaves
            if any(iter_type_name(iv) == "R" for iv in leaf.block.iter_vars)
        }
        self.params = buffer_names(func)
        self.buffers: dict[Any, int] = {}
        self.order: list[Any] = []

    def program(self, gpu: bool) -> SketchProgram:
        """The program."""
        regions = [self._regions(leaf) for leaf in self.leaves]
        statements = tuple(
            self._statement(leaf, found, regions)
            for leaf, found in zip(self.leaves, regions, strict=True)
        )
        return SketchProgram(
            rows=1,
            statements=statements,
            buffers=tuple(self._buffer(buffer) for buffer in self.order),
            supported=np.ones(1, bool),
            gpu=self._gpu() if gpu else None,
        )

    def _regions(self, leaf: Found) -> list[tuple[bool, Any]]:
        reads = [(False, region) for region in leaf.block.reads]
        return [*reads, *((True, region) for region in leaf.block.writes)]

    def _index(self, buffer: Any) -> int:
        if buffer not in self.buffers:
            self.buffers[buffer] = len(self.order)
            self.order.append(buffer)
        return self.buffers[buffer]

    def _access(self, write: bool, region: Any, names: Enumerator) -> ReadAccess:
        buffer = region_buffer(region)
        shape, strides = _layout(buffer)
        dims = []
        for r, extent, stride in zip(region.region, shape, strides, strict=True):
            try:
                tables, size = names.tables(r.min), as_int(r.extent)
            except (UnknownIndex, TypeError):
                tables, size = [constant(0)], extent
            dims.append((tables, size, extent, stride))
        return ReadAccess(self._index(buffer), write, dims)

    def _statement(
        self, leaf: Found, regions: list[tuple[bool, Any]], everything: list[Any]
    ) -> Statement:
        names = Enumerator({loop.var: (p, loop.extent) for p, loop in enumerate(leaf.loops)})
        accesses = tuple(self._access(write, region, names) for write, region in regions)
        body = self._body(leaf, regions)
        init = leaf.name.endswith(INIT) and not any(not write for write, _ in regions)
        source = next((region_buffer(r) for write, r in regions if not write), None)
        target = next((region_buffer(r) for write, r in regions if write), source)
        written = any(
            write and source is not None and region_buffer(r).same_as(source)
            for found in everything
            if found is not regions
            for write, r in found
        )
        target_scope = "global" if target is None else str(target.scope())
        return Statement(
            name=leaf.name,
            role=role_of(
                init,
                body.copies,
                target_scope if source is None else str(source.scope()),
                target_scope,
                written,
            ),
            loops=tuple(self._loop(loop) for loop in leaf.loops),
            accesses=accesses,
            ops={kind: np.array([body.ops.get(kind, 0)]) for kind in KINDS},
            dtype="int32" if target is None else str(target.dtype),
            alive=np.ones(1, bool),
            unroll=np.array([max([0, *(loop.unroll for loop in leaf.loops)])]),
            reduction=leaf.name in self.reductions,
        )

    def _body(self, leaf: Found, regions: list[tuple[bool, Any]]) -> Body:
        """Operations; of a tensorized block, from the sizes of its regions."""
        block = self.bodies.get(leaf.name, leaf.block)
        body = read_body(block.body)
        if body.loads or next(statements(block.body), None) is not None:
            return body
        sizes = [_size(region) for _, region in regions]
        reads = {str(region_buffer(r).name) for write, r in regions if not write}
        if len(reads) == 1:
            return Body(copies=True)
        if len(sizes) >= 3:
            products = round(float(np.prod(sorted(sizes)[-3:], dtype=float)) ** 0.5)
            return Body({"add": products, "mul": products}, {}, False)
        return Body(copies=False)

    def _loop(self, loop: For) -> Loop:
        return Loop(
            extent=np.array([loop.extent]),
            kind=np.array([int(loop.kind)], np.int8),
            reduction=loop.var in self.reducing,
            boundary=np.ones(1, bool),
        )

    def _buffer(self, buffer: Any) -> Buffer:
        shape, strides = _layout(buffer)
        alloc = strides[0] * shape[0] if shape else 1
        return Buffer(
            name=self.params.get(buffer, str(buffer.name)),
            dtype=str(buffer.dtype),
            scope=str(buffer.scope()),
            param=buffer in self.params,
            shape=tuple(np.array([extent]) for extent in shape),
            alloc=np.array([alloc]),
        )

    def _gpu(self) -> GpuFacts:
        """Threads by tag; bytes of what is allocated, times the versions of a pipelined loop."""
        tags: dict[str, int] = {}
        stages = 1
        for leaf in self.leaves:
            for loop in leaf.loops:
                stages = max(stages, loop.stages)
                if loop.tag:
                    tags[loop.tag] = max(tags.get(loop.tag, 1), loop.extent)

        def of(prefix: str) -> int:
            found = [extent for tag, extent in tags.items() if tag.startswith(prefix)]
            return int(np.prod(found, dtype=np.int64))

        shared = local = 0
        for buffer, _ in self.allocs:
            shape, strides = _layout(buffer)
            size = ITEM_BYTES.get(str(buffer.dtype), 4) * (strides[0] * shape[0] if shape else 1)
            if str(buffer.scope()).startswith("shared"):
                shared += size * stages
            elif str(buffer.scope()) == "local":
                local += size
        return GpuFacts(
            threads=np.array([of("threadIdx")]),
            vthreads=np.array([of("vthread")]),
            blocks=np.array([of("blockIdx")]),
            shared=np.array([shared]),
            local=np.array([local * of("vthread")]),
            valid=np.ones(1, bool),
            stages=np.array([stages]),
        )


def _layout(buffer: Any) -> tuple[list[int], list[int]]:
    """Shape and strides; an open extent counts as 1."""
    shape = [as_int(e) if type(e).__name__ == "IntImm" else 1 for e in buffer.shape]
    if len(buffer.strides):
        return shape, [as_int(s) for s in buffer.strides]
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    return shape, strides


def _size(region: Any) -> int:
    return int(np.prod([as_int(r.extent) for r in region.region], dtype=np.int64))


def read(mod: Any, target: Any) -> SketchProgram:
    """Read one schedule.

    Parameters
    ----------
    mod
        Its module, after the postprocessors.
    target
        The task's target.
    """
    return _Reader(prim_func(mod)).program(str(target.kind.name) != "llvm")
