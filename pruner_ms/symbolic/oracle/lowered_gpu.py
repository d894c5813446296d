"""Figures of a schedule that `VerifyGPUCode` checks, read from the code after its passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from pruner_ms.dtypes import bytes_of
from pruner_ms.symbolic.oracle.lowered_walk import LeafBlock
from pruner_ms.symbolic.program import FRAGMENT_SCOPES, GpuFacts, LoopKind
from pruner_ms.tvm_compat.passes import (
    COMPACTED,
    PIPELINED,
    VERIFY_PASSES,
    advance,
    config_for,
    gpu_code_accepted,
    with_config,
)
from pruner_ms.tvm_compat.paths import as_int, block_of, region_buffer
from pruner_ms.tvm_compat.targets import attrs_of

_EXTENT_KEYS = ("thread_extent", "virtual_thread")
_LOW = "meta_schedule.thread_extent_low_inclusive"
_HIGH = "meta_schedule.thread_extent_high_inclusive"
_WARP = "warp_execution"
_LEAVES = frozenset({"BufferStore", "Evaluate", "Bind"})


@dataclass
class Kernel:
    """One launch: extents by thread tag, bytes by scope."""

    extents: dict[str, int] = field(default_factory=dict)
    shared: int = 0
    local: int = 0

    def of(self, prefix: str) -> int:
        """Product of the extents of the tags with a prefix."""
        return prod(n for tag, n in self.extents.items() if tag.startswith(prefix))


def kernels_of(stmt: Any) -> list[Kernel]:
    """The kernels of a lowered body: every outermost thread extent begins one."""
    kernels: list[Kernel] = []
    _visit(stmt, None, kernels)
    return kernels


def _visit(stmt: Any, kernel: Kernel | None, kernels: list[Kernel]) -> None:
    kind = type(stmt).__name__
    if kind in _LEAVES:
        return
    if kind == "SeqStmt":
        for part in stmt.seq:
            _visit(part, kernel, kernels)
        return
    if kind == "AllocBuffer" and kernel is not None:
        _allocate(kernel, str(stmt.buffer.scope()), stmt.buffer.dtype, stmt.buffer.shape)
    if kind == "Allocate" and kernel is not None:  # before 0.25, with a body
        scope = str(stmt.buffer_var.type_annotation.storage_scope)
        _allocate(kernel, scope, stmt.dtype, stmt.extents)
    if kind == "IfThenElse":
        _visit(stmt.then_case, kernel, kernels)
        if stmt.else_case is not None:
            _visit(stmt.else_case, kernel, kernels)
        return
    if kind == "AttrStmt" and str(stmt.attr_key) in _EXTENT_KEYS:
        if kernel is None:
            kernel = Kernel()
            kernels.append(kernel)
        kernel.extents.setdefault(str(stmt.node.thread_tag), as_int(stmt.value))
    body = getattr(stmt, "body", None)
    if body is not None:
        _visit(body, kernel, kernels)


def _allocate(kernel: Kernel, scope: str, dtype: Any, shape: Sequence[Any]) -> None:
    size = bytes_of(str(dtype)) * prod(as_int(extent) for extent in shape)
    if scope.startswith("shared"):
        kernel.shared += size
    elif scope == "local":
        kernel.local += size


def threads_allowed(stmt: Any, warp: int, threads: tuple[int, ...] = (1, 1, 1)) -> bool:
    """Whether the threads of every block are within the bounds of its annotations.

    Parameters
    ----------
    stmt
        A body with blocks.
    warp
        Threads of a warp: the extent of threadIdx.x below a block with `warp_execution`.
    threads
        Extents of threadIdx.x, .y, .z around the body.
    """
    kind = type(stmt).__name__
    if kind in _LEAVES:
        return True
    if kind == "SeqStmt":
        return all(threads_allowed(part, warp, threads) for part in stmt.seq)
    if kind == "For" and stmt.thread_binding is not None:
        tag = str(stmt.thread_binding.thread_tag)
        if tag.startswith("threadIdx."):
            axis = "xyz".index(tag[-1])
            threads = (*threads[:axis], as_int(stmt.extent), *threads[axis + 1 :])
    elif kind.endswith("BlockRealize"):
        block = block_of(stmt)
        notes = block.annotations
        if len(notes) > 0:
            if _WARP in notes:
                threads = (warp, *threads[1:])
            if _LOW in notes and _HIGH in notes:
                count = prod(threads)
                if not as_int(notes[_LOW]) <= count <= as_int(notes[_HIGH]):
                    return False
        return threads_allowed(block.body, warp, threads)
    elif kind == "IfThenElse":
        other = stmt.else_case
        return threads_allowed(stmt.then_case, warp, threads) and (
            other is None or threads_allowed(other, warp, threads)
        )
    body = getattr(stmt, "body", None)
    return body is None or threads_allowed(body, warp, threads)


def _versions(before: Mapping[str, list[int]], after: Mapping[str, list[int]]) -> int:
    """Versions of a buffer in the pipeline: the extent of a new outermost dimension."""
    most = 1
    for name, shape in after.items():
        if name in before and len(shape) == len(before[name]) + 1:
            most = max(most, shape[0])
    return most


def staged(stmt: Any) -> dict[str, list[int]]:
    """Shapes of the shared buffers that the blocks of a body allocate, by name."""
    shapes: dict[str, list[int]] = {}

    def visit(node: Any) -> None:
        kind = type(node).__name__
        if kind in _LEAVES:
            return
        if kind == "SeqStmt":
            for part in node.seq:
                visit(part)
            return
        if kind.endswith("BlockRealize"):
            block = block_of(node)
            for buffer in block.alloc_buffers:
                if str(buffer.scope()).startswith("shared"):
                    shapes[str(buffer.name)] = [as_int(extent) for extent in buffer.shape]
            visit(block.body)
            return
        for name in ("body", "then_case", "else_case"):
            child = getattr(node, name, None)
            if child is not None:
                visit(child)

    visit(stmt)
    return shapes


def vthreads_of(leaves: Sequence[LeafBlock]) -> int:
    """Virtual threads of the kernel with the most."""
    by_kernel: dict[Any, dict[str, int]] = {}
    for leaf in leaves:
        if leaf.loops:
            tags = by_kernel.setdefault(leaf.loops[0].var, {})
            tags.update({f.tag: f.extent for f in leaf.loops if f.kind == LoopKind.VTHREAD})
    return max((prod(tags.values()) for tags in by_kernel.values()), default=1)


def _fragments(leaves: Sequence[LeafBlock]) -> bool:
    """Whether a statement accesses memory of tensor instructions, before or after tensorization.

    Such programs are built under another configuration (`config_for`).
    """
    return any(
        str(region_buffer(region).scope()).startswith(FRAGMENT_SCOPES)
        for leaf in leaves
        for region in (*leaf.block.reads, *leaf.block.writes)
    )


def facts(func: Any, compacted: Any, leaves: Sequence[LeafBlock], target: Any) -> GpuFacts:
    """Facts and validity of a schedule.

    Parameters
    ----------
    func
        The scheduled function.
    compacted
        Its module after CompactBufferAllocation.
    leaves
        The statements there.
    target
        The task's target.
    """
    warp = int(attrs_of(target).get("thread_warp_size", 1))  # type: ignore[call-overload]
    allowed = threads_allowed(func.body, warp)
    stages = 1
    config = config_for(target, _fragments(leaves))
    tensorized = any(leaf.tensorized for leaf in leaves)
    try:
        pipelined = advance(compacted, VERIFY_PASSES, COMPACTED, PIPELINED)
        if any(loop.pipelined for leaf in leaves for loop in leaf.loops):
            stages = _versions(*(staged(mod["main"].body) for mod in (compacted, pipelined)))
        with with_config(config):
            lowered = advance(pipelined, VERIFY_PASSES, PIPELINED)
        checked = lowered
        if config and not tensorized:  # the postprocessor runs before, without the configuration
            checked = advance(pipelined, VERIFY_PASSES, PIPELINED)
    except Exception:
        return _facts([-1, vthreads_of(leaves), -1, -1, -1, -1], False, -1)
    kernels = kernels_of(lowered["main"].body)
    figures = [
        max((k.of("threadIdx") for k in kernels), default=1),
        vthreads_of(leaves),
        max((k.of("blockIdx") for k in kernels), default=1),
        max((k.shared for k in kernels), default=0),
        max((k.local for k in kernels), default=0),
        len(kernels),
    ]
    return _facts(figures, allowed and gpu_code_accepted(checked, target), stages)


def _facts(figures: Sequence[int], valid: bool, stages: int) -> GpuFacts:
    threads, vthreads, blocks, shared, local, kernels, steps = (
        np.array([n], np.int64) for n in (*figures, stages)
    )
    verdict = np.array([valid])
    return GpuFacts(threads, vthreads, blocks, shared, local, verdict, steps, kernels=kernels)
