"""TensorCore support: instructions, design spaces, and compilation of tensorised programs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


def compiling(target: Any) -> AbstractContextManager[Any]:
    """The pass configuration under which this TVM builds tensorised CUDA kernels correctly.

    Compile kernels that were tuned for TensorCores inside it, as they were when they were measured:
    `with pruner_ms.tensorcore.compiling(target): tvm.compile(mod, target)`. The settings of the
    current `PassContext` are kept; where a TVM or a target needs nothing, nothing changes. CUDA
    code is compiled by nvcc where that is installed and NVRTC cannot be used
    (`cuda_compiler.choose`). After `pruner_ms.unregister()` copies are not pipelined, so that
    kernels with pipelines are slower.

    Parameters
    ----------
    target
        The TVM `Target` to compile for.
    """
    from pruner_ms.tvm_compat import cuda_compiler, tensor_builds

    cuda_compiler.choose()
    return tensor_builds.compiling(target)


def opted_in(target: Any) -> Any:
    """The target with all shared memory that a block can opt in to at launch.

    `pruner-ms tune` and `pruner_ms.tune` call it; see `targets.opted_in`.

    Parameters
    ----------
    target
        The TVM `Target` to tune for.
    """
    from pruner_ms.tensorcore import targets

    return targets.opted_in(target)


__all__ = ["compiling", "opted_in"]
