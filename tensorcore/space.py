"""`space="tensorcore"`: tensorised designs of every instruction beside those for CUDA cores."""

from __future__ import annotations

from collections.abc import Sequence

from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tensorcore.rule import PIPELINES, TensorCoreTiling
from pruner_ms.tensorcore.verdicts import Looked
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import ms


class TensorCoreSpace(ms.space_generator.PostOrderApply):
    """A space generator for NVIDIA GPUs, usable with any search strategy.

    Stock's rules for CUDA cores, with `TensorCoreTiling` before them.

    Parameters
    ----------
    rows
        Instructions to be offered; None: all that the target has.
    pipelines
        Stages of software pipelines of the `wmma` designs; 0 is none.
    only
        Whether a block that can be tensorised is not offered for CUDA cores.
    seen
        Gets what was seen of each block when design spaces are generated.
    """

    def __init__(
        self,
        rows: Sequence[Instruction] | None = None,
        pipelines: Sequence[int] = PIPELINES,
        only: bool = False,
        seen: list[Looked] | None = None,
    ) -> None:
        import_intrinsics()
        custom, *others = ms.schedule_rule.ScheduleRule.create("cuda")
        super().__init__(
            sch_rules=[custom, TensorCoreTiling(rows, pipelines, only, seen), *others],
            postprocs=list(ms.postproc.Postproc.create("cuda-tensorcore")),
            mutator_probs=dict(ms.mutator.Mutator.create("cuda-tensorcore")),
        )


class TensorCoreOnlySpace(TensorCoreSpace):
    """`space="tensorcore-only"`: CUDA cores only for blocks that cannot be tensorised.

    Parameters
    ----------
    rows, pipelines, seen
        As of `TensorCoreSpace`.
    """

    def __init__(
        self,
        rows: Sequence[Instruction] | None = None,
        pipelines: Sequence[int] = PIPELINES,
        seen: list[Looked] | None = None,
    ) -> None:
        super().__init__(rows, pipelines, True, seen)
