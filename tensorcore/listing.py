"""Which blocks of a function can be tensorised, by which instructions, and why others cannot."""

from __future__ import annotations

from typing import Any

from pruner_ms.tensorcore.rule import TensorCoreTiling
from pruner_ms.tensorcore.verdicts import Looked, with_architectures
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import TuneContext, ms
from pruner_ms.tvm_compat.targets import attrs_of


def products(mod: Any, target: Any, allow_tf32: bool = False) -> tuple[Looked, ...]:
    """The blocks of a function that add up products, and what became of each instruction.

    They are seen as the rule sees them: before what precedes them is inlined. All their designs
    are counted, at every depth of copies that run ahead and with reductions in parts.

    Parameters
    ----------
    mod
        Module of one PrimFunc without a schedule, or the PrimFunc.
    target
        A TVM `Target` with TensorCores.
    allow_tf32
        Whether float32 products may be computed as tf32.

    Returns
    -------
    tuple of Looked
        In the order of the design space generator, each block once.
    """
    seen: list[Looked] = []
    context = TuneContext(
        mod,
        target=target,
        space_generator=_only_ours(seen, allow_tf32),
        search_strategy=None,
        num_threads=1,
        rand_state=1,
    )
    context.generate_design_space()
    arch = str(attrs_of(target)["arch"])
    first: dict[str, Looked] = {}
    for looked in seen:
        if looked.is_product:
            first.setdefault(looked.block, looked)
    return tuple(with_architectures(looked, arch, allow_tf32) for looked in first.values())


def _only_ours(seen: list[Looked], allow_tf32: bool) -> Any:
    """Design spaces by our rule alone: it judges first, and stock's rules warn of pooling."""
    import_intrinsics()
    ours = TensorCoreTiling(seen=seen, allow_tf32=allow_tf32)
    return ms.space_generator.PostOrderApply(sch_rules=[ours], postprocs=[], mutator_probs={})
