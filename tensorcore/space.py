"""`space="tensorcore"`: tensorised designs of every instruction beside those for CUDA cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tensorcore.rule import PIPELINES, TensorCoreTiling
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import ms


def tensorcore_space(
    rows: Sequence[Instruction] | None = None, pipelines: Sequence[int] = PIPELINES
) -> Any:
    """A space generator for NVIDIA GPUs, usable with any search strategy.

    Parameters
    ----------
    rows
        Instructions to be offered; None: all that the target has.
    pipelines
        Stages of software pipelines of the `wmma` designs; 0 is none.
    """
    import_intrinsics()
    custom, *others = ms.schedule_rule.ScheduleRule.create("cuda")
    return ms.space_generator.PostOrderApply(
        sch_rules=[custom, TensorCoreTiling(rows, pipelines), *others],
        postprocs=list(ms.postproc.Postproc.create("cuda-tensorcore")),
        mutator_probs=dict(ms.mutator.Mutator.create("cuda-tensorcore")),
    )
