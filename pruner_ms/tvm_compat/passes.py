"""Passes and their configuration, by TVM version and kind of target."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from pruner_ms.errors import TargetError
from pruner_ms.hardware.arch import FIRST_ASYNC, arch_number
from pruner_ms.tvm_compat import vector_math
from pruner_ms.tvm_compat.paths import (
    IS_S_TIR,
    VERSION,
    IRModule,
    PassContext,
    _first,
    as_int,
    free_parameters,
    release_of,
)
from pruner_ms.tvm_compat.targets import attrs_of

TENSOR_MARKS = ("m16n8k8", "auto_tensorize", "wmma.", "ldmatrix", "mma_sync")
"""Text in a module's JSON that only tensorised CUDA programs have."""

MERGE_ONCE = "tirx.merge_static_smem"
"""Option that leaves shared memory to MergeSharedMemoryAllocations: StorageRewrite reuses none."""


ASYNC_STAGES = "software_pipeline_async_stages"
"""Annotation of a loop whose copies a software pipeline lets run ahead."""

ASYNC_COPY = "tirx.use_async_copy"
"""Option that makes `cp.async` of the copies that a software pipeline lets run ahead."""


@dataclass(frozen=True)
class PassRow:
    """One pass configuration that a version needs.

    Attributes
    ----------
    since
        First TVM version concerned: those after it are, too, until one is seen that is not.
    kind
        Kind of target concerned.
    tensorized
        Whether only programs that use tensor instructions need it.
    config
        What `PassContext(config=...)` gets.
    why
        What goes wrong without it.
    mark
        Text in the JSON of the programs that suffer; empty: any.
    first_arch
        First CUDA architecture that it is for; the ones before cannot build with it.
    """

    since: tuple[int, int]
    kind: str
    tensorized: bool
    config: Mapping[str, Any]
    why: str
    mark: str = ""
    first_arch: int = 0

    def fits(self, kind: str, version: str, arch: str) -> bool:
        """Whether it is for a kind of target, a TVM version, an architecture ("": not known)."""
        new_enough = not arch or arch_number(arch) >= self.first_arch
        return self.kind == kind and release_of(version) >= self.since and new_enough


PASS_ROWS = (
    PassRow(
        since=(0, 26),
        kind="cuda",
        tensorized=True,
        config=MappingProxyType({MERGE_ONCE: True}),
        why="shared buffers of different dtypes share storage, and lowering wmma f16 -> f32 fails",
    ),
    PassRow(
        since=(0, 26),
        kind="cuda",
        tensorized=True,
        config=MappingProxyType({ASYNC_COPY: True}),
        why="copies that a software pipeline lets run ahead stay loads and stores, which wait",
        mark=ASYNC_STAGES,
        first_arch=FIRST_ASYNC,
    ),
)


def uses_tensor_instructions(text: str) -> bool:
    """Whether a module's JSON (`tvm.ir.save_json`) names a tensor instruction or its scopes."""
    return any(mark in text for mark in TENSOR_MARKS)


def default_pass_config(
    kind: str, tensorized: bool, version: str = VERSION, arch: str = ""
) -> dict[str, Any]:
    """Pass configuration for a program, to be used when it is tuned and when it is compiled.

    Parameters
    ----------
    kind
        Kind of the target: "llvm", "cuda".
    tensorized
        Whether the program uses tensor instructions (`uses_tensor_instructions`).
    version
        TVM's version string.
    arch
        CUDA architecture of the target ("sm_80"); empty: one that has everything.
    """
    config: dict[str, Any] = {}
    for row in PASS_ROWS:
        if row.fits(kind, version, arch) and row.tensorized <= tensorized:
            config.update(row.config)
    return config


def config_for(target: Any, tensorized: bool) -> dict[str, Any]:
    """`default_pass_config` of a TVM `Target`, and what vector code of exp needs if it asks."""
    arch = str(attrs_of(target).get("arch", ""))
    config = default_pass_config(str(target.kind.name), tensorized, arch=arch)
    return config | vector_math.config_of(target)


def drop_layout_rewrite(mod: Any) -> Any:
    """Remove the blocks that rewrite weight layouts, without touching any constant (as stock).

    The one argument is called `skip_tensor_rewrite` from 0.22 on, `skip_ndarray_rewrite` before.
    """
    transform = _first("tvm.s_tir.transform", "tvm.tir.transform")
    return transform.RemoveWeightLayoutRewriteBlock(True)(mod)


def without_rewriting(func: Any) -> Any:
    """`drop_layout_rewrite` for one scheduled function; only an empty block stays of each."""
    if not free_parameters(func):
        return func
    return drop_layout_rewrite(IRModule({"main": func}))["main"]


_TO_COMPACTION = (
    "s_tir.LowerCrossThreadReduction",
    "s_tir.LowerInitBlock",
    "s_tir.PlanAndUpdateBufferAllocationLocation",
    "s_tir.ConvertBlocksToOpaque",
    "s_tir.LiftThreadBinding",
    "s_tir.ManifestSharedMemoryLocalStage",
    "s_tir.CompactBufferAllocation",
)
"""How every lowering begins: afterwards buffers have the size that is needed."""

_SIMPLIFY = "StmtSimplify"
BLOCK_SIMPLIFY = f"s_tir.{_SIMPLIFY}"
"""Simplifies while there are blocks; up to 0.26 that is the one for all programs, "tirx."."""

_FLATTENING = (
    "s_tir.LowerOpaqueBlock",
    "tirx.FlattenBuffer",
    "tirx.BF16ComputeLegalize",
    "tirx.NarrowDataType",
)
_VIRTUAL_THREADS = (
    "tirx.VectorizeLoop",
    "s_tir.InjectVirtualThread",
    "s_tir.InjectDoubleBuffer",
    "tirx.StorageRewrite",
)

VERIFY_PASSES: tuple[str, ...] = (
    *_TO_COMPACTION,
    BLOCK_SIMPLIFY,
    "s_tir.LowerAutoCopy",
    "s_tir.UnifyThreadBinding",
    "s_tir.LowerMatchBuffer",
    "s_tir.InjectSoftwarePipeline",
    *_FLATTENING,
    f"tirx.{_SIMPLIFY}",
    *_VIRTUAL_THREADS,
    "s_tir.MergeSharedMemoryAllocations",
    "tirx.LowerIntrin",
)
"""What the postprocessor VerifyGPUCode runs (`postproc/verify_gpu_code.cc`)."""

_CANONICAL = ("s_tir.CanonicalizeLoop",) if IS_S_TIR else ()
_PERMUTED = ("s_tir.AnnotateIrregularLoop",) if IS_S_TIR else (BLOCK_SIMPLIFY,)
"""What follows InjectPermutedLayout: before `s_tir`, it leaves its indices to be simplified."""

_FLAT = () if IS_S_TIR else (f"tirx.{_SIMPLIFY}",)
"""What follows the flattening: before `s_tir`, a simplification."""

UNROLL_PASSES: tuple[str, ...] = (
    *_CANONICAL,
    *_TO_COMPACTION,
    "s_tir.LowerAutoCopy",
    "s_tir.UnifyThreadBinding",
    "s_tir.LowerMatchBuffer",
    BLOCK_SIMPLIFY,
    "s_tir.InjectPermutedLayout",
    *_PERMUTED,
    "s_tir.InjectSoftwarePipeline",
    "s_tir.TransformMmaBufferLayout",
    *_FLATTENING,
    *_FLAT,
    "s_tir.LoopPartition",
    *_VIRTUAL_THREADS,
    "s_tir.HoistIfThenElse",
    "tirx.UnrollLoop",
)
"""The default pipeline of a build (`s_tir/pipeline.py`; 0.17: `driver/driver_api.cc`) up to
UnrollLoop."""

REDUCED, COMPACTED, PIPELINED = (
    _TO_COMPACTION[0],
    _TO_COMPACTION[-1],
    "s_tir.InjectSoftwarePipeline",
)
"""Stages of `VERIFY_PASSES`, by the pass that ends each."""

_ARGUMENTS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {"tirx.VectorizeLoop": (True,), "tirx.NarrowDataType": (32,)}
)

_VERIFY_LIMITS: Mapping[str, int] = MappingProxyType({"max_vthread": 8, "max_vector_bytes": 16})
"""What the postprocessor demands of every target."""


def _pass(name: str) -> Any:
    room, short = name.split(".")
    rooms = (room, "tirx", "tir") if name == BLOCK_SIMPLIFY else (room, "tir")
    paths = [f"tvm.{place}.transform:{short}" for place in rooms]
    if short == _SIMPLIFY:
        paths.append("tvm.tir.transform:Simplify")  # its name up to 0.24
    factory = _first(*paths)
    return factory(*_ARGUMENTS.get(name, ()))


@lru_cache(maxsize=16)
def _sequence(names: tuple[str, ...]) -> Any:
    sequential = _first("tvm.transform:Sequential", "tvm.ir.transform:Sequential")
    return sequential([_pass(name) for name in names])


def with_config(config: Mapping[str, Any]) -> Any:
    """The current pass context with some configuration more, as a context manager."""
    if not config:
        return nullcontext()
    current = PassContext.current()
    return PassContext(
        opt_level=current.opt_level,
        required_pass=list(getattr(current, "required_pass", None) or ()),
        disabled_pass=list(getattr(current, "disabled_pass", None) or ()),
        config={**dict(current.config), **config},
        instruments=list(current.instruments),
    )


def lowerable(func: Any, target: Any) -> Any:
    """A scheduled function as the module that the passes start from."""
    func = func.with_attr("global_symbol", "main").with_attr("target", target)
    return IRModule({"main": func.with_attr("tirx.noalias" if IS_S_TIR else "tir.noalias", True)})


def advance(
    mod: Any, passes: tuple[str, ...], after: str | None = None, until: str | None = None
) -> Any:
    """Run a part of a list of passes on a module of `lowerable`.

    Parameters
    ----------
    after, until
        The pass that was the last to run, and the one that is to be the last now; None for the
        beginning and the end.

    Raises
    ------
    Exception
        Whatever a pass throws: TVM has no common class for that.
    """
    first = 0 if after is None else passes.index(after) + 1
    last = len(passes) if until is None else passes.index(until) + 1
    return _sequence(passes[first:last])(mod)


def gpu_code_accepted(mod: Any, target: Any) -> bool:
    """`VerifyGPUCode`'s verdict on a module after `VERIFY_PASSES`.

    Raises
    ------
    TargetError
        The target does not say how much shared memory or how many threads a block may have.
    """
    attrs = attrs_of(target)
    limits = dict(_VERIFY_LIMITS)
    for name in ("max_shared_memory_per_block", "max_threads_per_block"):
        if name not in attrs:
            raise TargetError(f"the target has no {name}; add it, as a tag's target has it")
        limits[name] = as_int(attrs[name])
    verify = _first("tvm.s_tir.analysis:verify_gpu_code", "tvm.tir.analysis:verify_gpu_code")
    return bool(verify(mod["main"], limits))
