"""How far a schedule's copies run ahead, and how its tiles lie in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tensorcore.tiling import ALIGNED
from pruner_ms.tvm_compat.paths import as_int
from pruner_ms.tvm_compat.schedules import get_block

STAGE, ORDER = "software_pipeline_stage", "software_pipeline_order"
"""Marks of a loop: by how much its statements run ahead, and in which order they are written."""

MMA_AHEAD = 2
"""Steps by which copies run ahead in the `mma` designs of stock's rule, and in ours at first."""


def _outer(schedule: Any, block: str) -> Any:
    """The outer loop over the sums around a block: the first that is not bound to threads."""
    loops = schedule.get_loops(get_block(schedule, block))
    return next(loop for loop in loops if schedule.get(loop).thread_binding is None)


def pipeline(schedule: Any, block: str, stages: int) -> Any:
    """A copy of a tensorised schedule in which copies into shared memory run ahead asynchronously.

    Parameters
    ----------
    block
        Name of the block of instructions.
    stages
        By how many steps of the outer loop over the sums they run ahead.
    """
    found = schedule.copy()
    outer = _outer(found, block)
    # the body is: copy A, copy B, multiply
    found.annotate(outer, STAGE, [0, 0, stages])
    found.annotate(outer, ORDER, [0, 1, 2])
    found.annotate(outer, "software_pipeline_async_stages", [0])
    return found


def deepen(schedule: Any, block: str, stages: int) -> Any:
    """A copy of a pipelined `mma` schedule in which copies into shared memory run ahead further.

    Parameters
    ----------
    block
        Name of the block of instructions.
    stages
        By how many steps of the outer loop over the sums they run ahead.
    """
    found = schedule.copy()
    outer = _outer(found, block)
    before = [as_int(stage) for stage in found.get(outer).annotations[STAGE]]
    later = stages - before[-1]
    found.unannotate(outer, STAGE)
    found.annotate(outer, STAGE, [stage + later if stage else 0 for stage in before])
    return found


def align(schedule: Any, block: str) -> None:
    """Give rows of tiles in shared memory an odd pitch, as stock's rule does for float16.

    Parameters
    ----------
    block
        Name of the block of instructions.
    """
    for fragment in schedule.get_producers(get_block(schedule, block)):
        for tile in schedule.get_producers(fragment):
            schedule.storage_align(tile, 0, axis=-2, factor=ALIGNED, offset=ALIGNED // 4)


def variants(design: Any, row: Instruction, tiled: str, depths: Sequence[int]) -> list[Any]:
    """A design with copies ahead by each of some depths.

    Parameters
    ----------
    tiled
        Name of its block of instructions.
    """
    if row.family == "mma":
        return [design, *(deepen(design, tiled, n) for n in depths if n > MMA_AHEAD)]
    if row.operands == "bfloat16":
        align(design, tiled)
    return [pipeline(design, tiled, n) if n else design for n in depths]
