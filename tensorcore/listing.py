"""Which blocks of a function can be tensorised, by which instructions, and why the rest cannot."""

from __future__ import annotations

from typing import Any

from pruner_ms.tensorcore.rule import TensorCoreTiling
from pruner_ms.tensorcore.verdicts import BlockVerdicts, with_architectures
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import TuneContext, ms
from pruner_ms.tvm_compat.targets import attrs_of


def products(mod: Any, target: Any, allow_tf32: bool = False) -> tuple[BlockVerdicts, ...]:
    """The blocks of a function that add up products, with a verdict on each instruction.

    They are listed as the rule gets them: before their producers are inlined. All designs are
    counted, with every pipeline depth and with split reductions.

    Parameters
    ----------
    mod
        Module of one unscheduled PrimFunc, or the PrimFunc.
    target
        A TVM `Target` with TensorCores.
    allow_tf32
        Whether float32 products may be computed as tf32.

    Returns
    -------
    tuple of BlockVerdicts
        In the order of the design space generator, each block once.
    """
    seen: list[BlockVerdicts] = []
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
    first: dict[str, BlockVerdicts] = {}
    for entry in seen:
        if entry.is_product:
            first.setdefault(entry.block, entry)
    return tuple(with_architectures(entry, arch, allow_tf32) for entry in first.values())


def _only_ours(seen: list[BlockVerdicts], allow_tf32: bool) -> Any:
    """A space generator with our rule only: it comes first, and stock's rules warn of pooling."""
    import_intrinsics()
    ours = TensorCoreTiling(seen=seen, allow_tf32=allow_tf32)
    return ms.space_generator.PostOrderApply(sch_rules=[ours], postprocs=[], mutator_probs={})
