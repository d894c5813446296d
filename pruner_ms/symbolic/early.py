"""What running a design space may leave out; found once, when the space is compiled.

Small spaces need no 64-bit numbers. On a GPU most random rows have a number of threads that the
annotations of a block forbid, which is known long before the last instruction has run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from pruner_ms.symbolic.gpu_memory import bounded, threads_of
from pruner_ms.symbolic.parse import Template
from pruner_ms.symbolic.state import Block, Loop, State

SMALL = 1 << 25
"""Elements of every buffer, and iterations of every block's spatial and of its reduction loops, up
to which all numbers of a run fit into 32 bits: strides, extents of fused loops, bytes of what a
block of threads holds. No number of a run is a product of spatial and reduction loops."""


def small(template: Template, state: State) -> bool:
    """Whether 32-bit numbers do for a design space, looking at a state after its instructions."""
    extents = [
        [extent for extent, reduction in block.loops if reduction is kind]
        for block in template.blocks
        for kind in (False, True)
    ]
    extents += [
        [int(np.max(extent)) for extent in access.buffer.shape]
        for block in state.blocks
        for access in (*block.reads, *block.writes)
    ]
    return all(prod(several) <= SMALL for several in extents)


Demands = list[tuple[Block, list[Loop]]]


def _demands(state: State) -> Demands:
    return [
        (block, [loop for loop in block.path if loop.tag.startswith("threadIdx")])
        for block in bounded(state)
    ]


def demanded_after(
    state: State,
    steps: Sequence[Callable[[State], None]],
    postprocs: Sequence[Callable[[State], None]],
) -> int:
    """Instructions after which the threads that blocks demand are known for good; 0 for never.

    Parameters
    ----------
    state
        Before the first instruction, on a few rows; it is used up.
    steps, postprocs
        The instructions and the postprocessors of its design space.
    """
    history: list[Demands] = []
    for step in steps:
        step(state)
        history.append(_demands(state))
    if not history or not history[-1]:
        return 0
    count = len(history)
    while count > 1 and history[count - 2] == history[-1]:
        count -= 1
    before = [threads_of(block) for block, _ in history[-1]]
    for postproc in postprocs:
        postproc(state)
    after = [threads_of(block) for block in bounded(state)]
    kept = all(any(np.array_equal(a, b) for b in before) for a in after)
    return count if kept and after else 0
