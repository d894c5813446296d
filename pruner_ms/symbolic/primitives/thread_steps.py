"""Fuse, Bind, Split of fused loops, and the annotations that CUDA's postprocessors act on.

Rules: TVM's `schedule/primitive/loop_transformation.cc`, `for_kind.cc`, `annotate.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.primitives.operands import loop_operand, loop_operands
from pruner_ms.symbolic.primitives.state import Block, Fetch, Loop, State
from pruner_ms.symbolic.primitives.trace import Inst
from pruner_ms.symbolic.rows import Mask, Num, both, ceiling, certain, either, negate, times


def holders(state: State, loop: Loop) -> list[Block]:
    """Blocks below a loop."""
    return [block for block in state.blocks if loop in block.path]


def fuse(state: State, inst: Inst) -> None:
    """Fuse: neighbouring loops become one."""
    state.slots[inst.outputs[0]] = fuse_loops(state, loop_operands(state, inst))


def fuse_loops(state: State, loops: Sequence[Loop]) -> Loop:
    """Replace neighbouring loops by one over all their leaves."""
    extent: Num = 1
    for loop in loops:
        extent = times(extent, loop.extent)
    fused = Loop(tuple(leaf for loop in loops for leaf in loop.leaves), extent)
    fused.shared = loops[-1].shared
    fused.fused = True
    for block in holders(state, loops[0]):
        first = block.path.index(loops[0])
        if block.path[first : first + len(loops)] != list(loops) or block.cuts:
            raise UnsupportedTrace(f"block {block.name} is below only some of the fused loops")
        block.path[first : first + len(loops)] = [fused]
        block.mask[first : first + len(loops)] = [block.mask[first]]
        if first < block.joined:
            block.joined -= len(loops) - 1
    return fused


def bind(state: State, inst: Inst) -> None:
    """Bind: a loop runs over a thread axis."""
    bind_loop(state, loop_operand(state, inst.inputs[0]), str(inst.attrs[0]))


def bind_loop(state: State, loop: Loop, tag: str) -> None:
    """Bind a loop to a thread tag."""
    loop.tag = tag
    loop.annotated = True
    state.threads[tag] = loop.extent


@dataclass(frozen=True)
class Part:
    """One part of a split loop.

    Attributes
    ----------
    extent
        Iterations.
    tag
        Thread tag, "" for none.
    vector
        Rows in which it is vectorized.
    exists
        Rows in which there is a loop for it.
    """

    extent: Num
    tag: str = ""
    vector: Mask = False
    exists: Mask = True


def cut_loop(state: State, block: Block, position: int, parts: Sequence[Part]) -> list[Loop]:
    """Replace a loop over one block by its parts, the most significant first.

    If an outer loop is already bound to a part's thread axis, the part is that loop:
    LiftThreadBinding moves it there at lowering.
    """
    old = block.path[position]
    if len(holders(state, old)) != 1 or any(set(c.leaves) & set(old.leaves) for c in block.cuts):
        raise UnsupportedTrace(f"a split loop of block {block.name} is shared with other blocks")
    outer = {loop.tag: loop for loop in block.path[:position] if loop.tag}
    loops: list[Loop] = []
    path: list[Loop] = []
    masks: list[Mask] = []
    for part in parts:
        loop = outer.get(part.tag)
        if loop is None:
            loop = Loop(old.leaves, part.extent)
            loop.vectorized = part.vector
            path.append(loop)
            masks.append(both(block.mask[position], part.exists))
            if part.tag:
                bind_loop(state, loop, part.tag)
        elif not certain(loop.extent == part.extent):
            raise UnsupportedTrace(f"{part.tag} has several extents around block {block.name}")
        loops.append(loop)
    path[-1].shared = old.shared
    block.path[position : position + 1] = path
    block.mask[position : position + 1] = masks
    bindings = [block.env[key] for key, _ in block.iters]
    cut = Cut(old.leaves, old.extent, loops, [part.extent for part in parts], bindings)
    block.cuts = (*block.cuts, cut)
    block.guarded = either(block.guarded, cut.guarded)
    if block.bounded:  # beyond the end the simplified divisions differ
        state.support_only(negate(cut.guarded))
    return loops


def split_fused(state: State, loop: Loop, factors: Sequence[Num | None]) -> list[Loop]:
    """Split a loop of several leaves, or one that the factors may not divide."""
    blocks = holders(state, loop)
    if len(blocks) != 1 or factors[0] is not None or any(f is None for f in factors[1:]):
        raise UnsupportedTrace("Split of a fused loop over several blocks")
    inner = [f for f in factors[1:] if f is not None]
    product: Num = 1
    for factor in inner:
        product = times(product, factor)
    outer = ceiling(loop.extent, product)
    block = blocks[0]
    parts = [Part(extent) for extent in (outer, *inner)]
    return cut_loop(state, block, block.path.index(loop), parts)


def _limit(state: State, target: Any, key: str, content: Any) -> None:
    _noted_block(target, key).notes[key] = content


def _warp(state: State, target: Any, key: str, content: Any) -> None:
    _limit(state, target, key, content)
    state.threads["threadIdx.x"] = state.target.warp


def _fetch(state: State, target: Any, key: str, content: Any) -> None:
    threads = (state.threads.get("threadIdx.x"), state.threads.get("threadIdx.y"))
    state.fetches.append(Fetch(_noted_block(target, key), content, threads))


def _pipeline(state: State, target: Any, key: str, content: Any) -> None:
    if not isinstance(target, Loop):
        raise UnsupportedTrace(f"Annotate of a block with {key}")
    target.annotated = True
    target.notes[key] = tuple(content) if isinstance(content, tuple | list) else content


def _noted_block(target: Any, key: str) -> Block:
    if not isinstance(target, Block):
        raise UnsupportedTrace(f"Annotate of something other than a block with {key}")
    return target


AUTO_COPY = "auto_copy"
"""Annotation of the blocks that ReadAt and WriteAt make."""

STAGES = "software_pipeline_stage"
LOW = "meta_schedule.thread_extent_low_inclusive"
HIGH = "meta_schedule.thread_extent_high_inclusive"
ASYNC = "software_pipeline_async_stages"

NOTES: Mapping[str, Callable[[State, Any, str, Any], None]] = {
    LOW: _limit,
    HIGH: _limit,
    "meta_schedule.cooperative_fetch": _fetch,
    "meta_schedule.auto_tensorize": _limit,
    "meta_schedule.auto_tensorize_init": _limit,
    "permuted_layout": _limit,
    "vector_bytes": _limit,
    "warp_execution": _warp,
    STAGES: _pipeline,
    "software_pipeline_order": _pipeline,
    ASYNC: _pipeline,
}
"""Annotation -> function that applies it to a program on a GPU."""
