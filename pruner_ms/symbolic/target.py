"""Limits of a target that the closed form needs, read once from TVM's `Target`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pruner_ms.errors import UnsupportedTrace
from pruner_ms.tvm_compat.targets import attrs_of

MAX_VECTOR_BYTES = 16
"""Bytes of a vector that VerifyGPUCode accepts (`postproc/verify_gpu_code.cc`)."""


@dataclass(frozen=True)
class TargetLimits:
    """Limits of a target.

    Attributes
    ----------
    kind
        TVM's kind of target: "llvm", "cuda".
    max_threads
        Threads of a block; 0 on a CPU.
    max_shared
        Bytes of shared memory of a block; 0 on a CPU.
    warp
        Threads of a warp; 0 on a CPU.
    arch
        Of a GPU, e.g. "sm_80"; empty if the target has none.
    """

    kind: str
    max_threads: int = 0
    max_shared: int = 0
    warp: int = 0
    arch: str = ""

    @property
    def gpu(self) -> bool:
        """Whether it has threads and shared memory."""
        return self.max_threads > 0


CPU = TargetLimits("llvm")
"""A target without limits."""

_KEYS = ("max_threads_per_block", "max_shared_memory_per_block", "thread_warp_size")


def read_limits(target: Any) -> TargetLimits:
    """Limits of a TVM target.

    Raises
    ------
    UnsupportedTrace
        A GPU target lacks one of the attributes that the postprocessors need.
    """
    attrs = attrs_of(target)
    kind = str(attrs["kind"])
    if kind == "llvm":
        return CPU
    missing = [key for key in _KEYS if not isinstance(attrs.get(key), int)]
    if missing:
        raise UnsupportedTrace(f"the target {kind} has no {', '.join(missing)}")
    threads, shared, warp = (attrs[key] for key in _KEYS)
    block, memory, lanes = (int(str(v)) for v in (threads, shared, warp))
    return TargetLimits(kind, block, memory, lanes, str(attrs.get("arch", "")))
