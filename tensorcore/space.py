"""`space="tensorcore"`: tensorised designs of every instruction, and those for CUDA cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from pruner_ms.tensorcore.intrinsics import Instruction
from pruner_ms.tensorcore.rule import TensorCoreTiling
from pruner_ms.tensorcore.tiling import PIPELINES
from pruner_ms.tensorcore.verdicts import BlockVerdicts
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import ms


class TensorCoreSpace(ms.space_generator.PostOrderApply):
    """A space generator for NVIDIA GPUs, usable with any search strategy.

    Stock's rules for CUDA cores, with `TensorCoreTiling` before them, and inlining more than once:
    see `_inlined_again`.

    Parameters
    ----------
    rows
        Instructions to offer; None: all that the target has.
    pipelines
        Stages of software pipelines of the `wmma` designs; 0 is none.
    only
        Whether a block that can be tensorised is not offered for CUDA cores.
    seen
        List to which verdicts on each block are added when design spaces are generated.
    allow_tf32
        Whether float32 products may be computed as tf32: each operand loses thirteen bits of its
        fraction, for a relative error of about a thousandth.
    """

    def __init__(
        self,
        rows: Sequence[Instruction] | None = None,
        pipelines: Sequence[int] = PIPELINES,
        only: bool = False,
        seen: list[BlockVerdicts] | None = None,
        allow_tf32: bool = False,
    ) -> None:
        import_intrinsics()
        custom, *others = ms.schedule_rule.ScheduleRule.create("cuda")
        ours = TensorCoreTiling(rows, pipelines, only, seen, allow_tf32)
        super().__init__(
            sch_rules=[custom, ours, *_inlined_again(others)],
            postprocs=list(ms.postproc.Postproc.create("cuda-tensorcore")),
            mutator_probs=dict(ms.mutator.Mutator.create("cuda-tensorcore")),
        )


def _inlined_again(rules: Sequence[Any]) -> Iterator[Any]:
    """The rules, with AutoInline applied to every block three times.

    It begins with the last block. One that reads a result twice, x * sigmoid(x), has two producers
    then, and stays a kernel of its own after one of them was inlined into it; the second time it is
    inlined into the product's copy. The third time only restores the order of the designs, which
    every rule reverses.
    """
    for rule in rules:
        yield from repeat(rule, 3 if type(rule).__name__ == "AutoInline" else 1)


class TensorCoreOnlySpace(TensorCoreSpace):
    """`space="tensorcore-only"`: CUDA cores only for blocks that cannot be tensorised.

    Parameters
    ----------
    rows, pipelines, seen, allow_tf32
        As of `TensorCoreSpace`.
    """

    def __init__(
        self,
        rows: Sequence[Instruction] | None = None,
        pipelines: Sequence[int] = PIPELINES,
        seen: list[BlockVerdicts] | None = None,
        allow_tf32: bool = False,
    ) -> None:
        super().__init__(rows, pipelines, True, seen, allow_tf32)


class TF32Space(TensorCoreSpace):
    """`space="tensorcore-tf32"`: float32 products as tf32, too."""

    def __init__(self) -> None:
        super().__init__(allow_tf32=True)


class TF32OnlySpace(TensorCoreOnlySpace):
    """`space="tensorcore-only-tf32"`: both."""

    def __init__(self) -> None:
        super().__init__(allow_tf32=True)
