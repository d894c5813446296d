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


LATE, LATE_ORDER = 3, [0, 3, 2, 1, 4]
"""Steps by which copies run ahead of which those of B are late, and where copying A and B and the
three parts of the inner pipeline are in a step: B is copied before the last products. With both
factors' copies there, TVM waits for too few (PopulateWaitCounts takes each for a group of its own,
and they become one)."""


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


def postpone(schedule: Any, block: str) -> Any:
    """A copy of a pipelined `mma` schedule that copies B late in a step.

    Copied first, both factors come between a step's first products and a barrier, and loads wait
    for that: the longest run of instructions without a product is 53 of a step's 262 in the best
    kernel that an H200 has shown of 4096x4096x4096, and 13 of 267 if B is copied late. For large
    products, as few warps have nothing else to do meanwhile; no device has timed it yet.

    Parameters
    ----------
    block
        Name of the block of instructions.
    """
    found = deepen(schedule, block, LATE)
    outer = _outer(found, block)
    found.unannotate(outer, ORDER)
    found.annotate(outer, ORDER, LATE_ORDER)
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


def variants(
    design: Any, row: Instruction, tiled: str, depths: Sequence[int], late: bool = False
) -> list[Any]:
    """A design with copies ahead by each of some depths.

    Parameters
    ----------
    tiled
        Name of its block of instructions.
    late
        Whether one more `mma` design copies B late.
    """
    if row.family == "mma":
        further = [deepen(design, tiled, n) for n in depths if n > MMA_AHEAD]
        return [design, *further, *([postpone(design, tiled)] if late and further else [])]
    if row.operands == "bfloat16":
        align(design, tiled)
    return [pipeline(design, tiled, n) if n else design for n in depths]
