"""RewriteTensorize and LiftThreadBinding: their effects on the loops around a statement.

Rules: TVM's `meta_schedule/postproc/rewrite_tensorize.cc` and `transform/lift_thread_binding.cc`.
All loops of a kernel on one thread axis become one loop, directly below the innermost loop around
all of them; every statement below that is then inside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.symbolic.index.cuts import Cut
from pruner_ms.symbolic.primitives.state import Block, Loop, State

TENSORIZE = "meta_schedule.auto_tensorize"
TENSORIZE_INIT = "meta_schedule.auto_tensorize_init"
WARP_INTRINSICS = ("mma_init_", "mma_load_")
"""Intrinsics whose body is a loop over the threads of a warp (`tensor_intrin/cuda.py`)."""

_STEPS = re.compile(r"mma_sync_m\d+n\d+k(?P<deep>\d+)_\w+_by_k(?P<each>\d+)")
"""Names of products deeper than one instruction (from `tensorcore.registration`)."""


def intrinsic(block: Block) -> str:
    """Name of the intrinsic that replaces a block's body, "" for none."""
    return str(block.notes.get(TENSORIZE_INIT if block.init else TENSORIZE, ""))


def steps_of(block: Block) -> int:
    """Instructions of an iteration, in sequence on the same accumulators."""
    match = _STEPS.fullmatch(intrinsic(block)) if block.reduction else None
    return 1 if match is None else int(match["deep"]) // int(match["each"])


def rewrite_tensorize(state: State) -> None:
    """RewriteTensorize: some intrinsics contain a loop over a warp's threads."""
    for block in state.blocks:
        if intrinsic(block).startswith(WARP_INTRINSICS):
            warp = Loop((), state.target.warp)
            warp.tag = "threadIdx.x"
            warp.annotated = True
            block.path = [*block.path, warp]
            block.mask = [*block.mask, True]


def lift_threads(state: State) -> None:
    """LiftThreadBinding over every kernel."""
    kernels: dict[Loop, list[Block]] = {}
    for block in state.blocks:
        if block.path and block.path[0].tag:
            kernels.setdefault(block.path[0], []).append(block)
    for blocks in kernels.values():
        tags = {loop.tag: None for block in blocks for loop in block.path if loop.tag}
        for tag in sorted(tags):
            _lift(state, blocks, tag)


def _lift(state: State, blocks: Sequence[Block], tag: str) -> None:
    """Merge the loops on one axis into one loop."""
    above: list[list[Loop]] = []
    loops: dict[Loop, None] = {}
    for block in blocks:
        for p, loop in enumerate(block.path):
            if loop.tag == tag:
                loops[loop] = None
                above.append(block.path[: p + 1])
    if len(loops) < 2:
        return
    depth = _common(above)
    if depth == 0:
        raise UnsupportedTrace(f"{tag} is bound at positions without a common loop")
    last = above[0][depth - 1]
    one = Loop(tuple(leaf for loop in loops for leaf in loop.leaves), next(iter(loops)).extent)
    one.groups = tuple(loop.leaves for loop in loops)
    one.tag = tag
    one.annotated = True
    for loop in loops:
        state.support_only(loop.extent == one.extent)
    for block in blocks:
        if last in block.path:
            _replace(block, loops, one, last)


def _around(tag: str, other: str) -> bool:
    """Whether a loop that is lifted to another one ends up around it.

    Both are created there, the one with the longer tag first, and so inside.
    """
    return other.startswith("threadIdx") and tag < other


def _common(paths: Sequence[Sequence[Loop]]) -> int:
    """Number of outermost loops that several paths share."""
    depth = 0
    for together in zip(*paths, strict=False):
        if any(loop is not together[0] for loop in together):
            break
        depth += 1
    return depth


def _replace(block: Block, loops: Mapping[Loop, None], one: Loop, last: Loop) -> None:
    """Remove loops from a block's path, and insert one below another."""
    pairs = list(zip(block.path, block.mask, strict=True))
    if any(loop in loops and present is not True for loop, present in pairs):
        raise UnsupportedTrace(f"block {block.name} is bound to threads in some rows only")
    entries = [(loop, present) for loop, present in pairs if loop not in loops]
    place = next(p for p, (loop, _) in enumerate(entries) if loop is last)
    entries.insert(place if _around(one.tag, last.tag) else place + 1, (one, True))
    block.path = [loop for loop, _ in entries]
    block.mask = [present for _, present in entries]
    block.cuts = tuple(
        _moved(cut, loops, one) if any(part in loops for part in cut.loops) else cut
        for cut in block.cuts
    )


def _moved(cut: Cut, loops: Mapping[Loop, None], one: Loop) -> Cut:
    """A cut in which some parts are replaced by another loop."""
    parts = [one if part in loops else part for part in cut.loops]
    return Cut(cut.leaves, cut.total, parts, cut.extents, cut.bindings)
