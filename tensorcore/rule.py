"""`TensorCoreTiling`: a schedule rule that offers every way of tensorising a block, and none.

Stock MetaSchedule's rule for `wmma` hides what comes after it: once it matches, neither `mma` nor
CUDA cores are tried. This rule returns, of each block, a design for every instruction that fits it
and every depth of the software pipeline, and the block untouched, which the rules behind it tile
for CUDA cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS, Instruction
from pruner_ms.tensorcore.registration import mma_group, wmma_group
from pruner_ms.tvm_compat.paths import ScheduleError, derived_object, ms
from pruner_ms.tvm_compat.schedules import get_block, has_block
from pruner_ms.tvm_compat.targets import attrs_of

STRUCTURE = "SSSRRSRS"
"""Loops of a product: spatial ones bound to blocks (two) and to warps, the sums' two outer parts,
a warp's tiles of instructions around the sums' inner part."""

BINDS = ("blockIdx.y", "blockIdx.x", "threadIdx.y")
INNERMOST = 4
"""Most instructions side by side in the innermost loop; stock's."""

VECTORS = (1, 2, 3, 4, 8, 16)
"""Elements that a thread may copy at once; stock's."""

PIPELINES = (0, 2, 3)
"""Stages by which copies into shared memory run ahead; 0 is no pipeline. Stock's for CUDA cores."""


def tiling(groups: Sequence[dict[str, str]], *, write_scope: bool, pipelined: bool) -> Any:
    """Stock's rule for groups of intrinsics.

    Parameters
    ----------
    write_scope
        Whether sums go through shared memory (`wmma`), not straight to global memory (`mma`).
    pipelined
        Whether the rule annotates a software pipeline itself.
    """
    reuse = ms.schedule_rule.ReuseType
    return ms.schedule_rule.MultiLevelTilingTensorCore(
        list(groups),
        structure=STRUCTURE,
        tile_binds=list(BINDS),
        max_innermost_factor=INNERMOST,
        vector_load_lens=list(VECTORS),
        reuse_read=reuse("must", [4], "shared.dyn"),
        reuse_write=reuse("must" if write_scope else "no", [2], "shared.dyn"),
        use_software_pipeline=pipelined,
    )


def tiled_name(block: str) -> str:
    """Name of a block of instructions made of a block."""
    return f"{block}_o"


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
    loops = found.get_loops(get_block(found, block))
    outer = next(loop for loop in loops if found.get(loop).thread_binding is None)
    # the body is: copy A, copy B, multiply
    found.annotate(outer, "software_pipeline_stage", [0, 0, stages])
    found.annotate(outer, "software_pipeline_order", [0, 1, 2])
    found.annotate(outer, "software_pipeline_async_stages", [0])
    return found


class _TensorCoreTiling(ms.schedule_rule.PyScheduleRule):
    """Every way of tensorising a block, and the block itself.

    Parameters
    ----------
    rows
        Instructions to be offered; None: all that the target has.
    pipelines
        Stages of software pipelines of the `wmma` designs; 0 is none.
    """

    def __init__(
        self, rows: Sequence[Instruction] | None = None, pipelines: Sequence[int] = PIPELINES
    ) -> None:
        super().__init__()
        self.rows, self.pipelines = rows, tuple(pipelines)
        self._wmma: list[Any] = []
        self._mma: list[Any] = []

    def _initialize_with_tune_context(self, context: Any) -> None:
        arch = str(attrs_of(context.target).get("arch", ""))
        given = INSTRUCTIONS.values() if self.rows is None else self.rows
        rows = [row for row in given if row.rate(arch) > 0 and not row.tf32]
        self._wmma = [
            tiling([wmma_group(row, trans_b=turned)], write_scope=True, pipelined=False)
            for row in rows
            if row.family == "wmma"
            for turned in (False, True)
        ]
        self._mma = [
            tiling([group], write_scope=False, pipelined=True)
            for row in rows
            if (group := mma_group(row)) is not None
        ]
        for rule in (*self._wmma, *self._mma):
            rule._initialize_with_tune_context(context)

    def apply(self, sch: Any, block: Any) -> list[Any]:
        """All designs of a block, in the order of the table of instructions."""
        name = str(sch.get(block).name_hint)
        found = []
        for rule in self._wmma:
            for design in _tensorised(rule, sch, block, name):
                found += [
                    pipeline(design, tiled_name(name), n) if n else design for n in self.pipelines
                ]
        for rule in self._mma:
            found += _tensorised(rule, sch, block, name)
        return [*found, sch]

    def clone(self) -> Any:
        """A rule of the same options."""
        return TensorCoreTiling(self.rows, self.pipelines)


def _tensorised(rule: Any, sch: Any, block: Any, name: str) -> list[Any]:
    """What a rule makes of a block; nothing where it leaves it as it is, or cannot split it."""
    try:
        designs = list(rule.apply(sch, block))
    except ScheduleError:
        return []
    return [design for design in designs if has_block(design, tiled_name(name))]


TensorCoreTiling = derived_object(_TensorCoreTiling)
