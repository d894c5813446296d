"""Passes and their configuration, by TVM version and kind of target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from pruner_ms.tvm_compat.paths import VERSION, IRModule, _first

TENSOR_MARKS = ("m16n8k8", "auto_tensorize", "wmma.", "ldmatrix", "mma_sync")
"""Text in a module's JSON that only tensorised CUDA programs have."""


@dataclass(frozen=True)
class PassRow:
    """One pass configuration that a version needs.

    Attributes
    ----------
    versions
        Prefixes of the TVM versions concerned.
    kind
        Kind of target concerned.
    tensorized
        Whether only programs that use tensor instructions need it.
    config
        What `PassContext(config=...)` gets.
    why
        What goes wrong without it.
    """

    versions: tuple[str, ...]
    kind: str
    tensorized: bool
    config: Mapping[str, Any]
    why: str


PASS_ROWS = (
    PassRow(
        versions=("0.26.", "0.27."),
        kind="cuda",
        tensorized=True,
        config=MappingProxyType({"tirx.merge_static_smem": True}),
        why="shared buffers of different dtypes share storage, and lowering wmma f16 -> f32 fails",
    ),
)


def uses_tensor_instructions(text: str) -> bool:
    """Whether a module's JSON (`tvm.ir.save_json`) names a tensor instruction or its scopes."""
    return any(mark in text for mark in TENSOR_MARKS)


def default_pass_config(kind: str, tensorized: bool, version: str = VERSION) -> dict[str, Any]:
    """Pass configuration for a program, to be used when it is tuned and when it is compiled.

    Parameters
    ----------
    kind
        Kind of the target: "llvm", "cuda".
    tensorized
        Whether the program uses tensor instructions (`uses_tensor_instructions`).
    version
        TVM's version string.
    """
    found: dict[str, Any] = {}
    for row in PASS_ROWS:
        if row.kind == kind and version.startswith(row.versions) and row.tensorized <= tensorized:
            found.update(row.config)
    return found


def drop_layout_rewrite(mod: Any) -> Any:
    """Remove the blocks that rewrite weight layouts, without touching any constant (as stock).

    The one argument is called `skip_tensor_rewrite` from 0.22 on, `skip_ndarray_rewrite` before.
    """
    transform = _first("tvm.s_tir.transform", "tvm.tir.transform")
    return transform.RemoveWeightLayoutRewriteBlock(True)(mod)


_COMPACTION = (
    "LowerCrossThreadReduction",
    "LowerInitBlock",
    "PlanAndUpdateBufferAllocationLocation",
    "ConvertBlocksToOpaque",
    "LiftThreadBinding",
    "ManifestSharedMemoryLocalStage",
    "CompactBufferAllocation",
)
"""The head of `VerifyGPUCode`'s list (`postproc/verify_gpu_code.cc`), up to compaction."""


@lru_cache(maxsize=1)
def _compaction() -> Any:
    transform = _first("tvm.s_tir.transform", "tvm.tir.transform")
    sequential = _first("tvm.transform:Sequential", "tvm.ir.transform:Sequential")
    return sequential([getattr(transform, name)() for name in _COMPACTION])


def compacted(func: Any) -> Any:
    """A scheduled function with opaque blocks and buffers of the size that is needed."""
    mod = IRModule({"main": func.with_attr("global_symbol", "main")})
    return _compaction()(mod)["main"]
