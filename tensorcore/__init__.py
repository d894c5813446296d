"""TensorCore support: instruction rows, design spaces, and how tensorised programs are compiled."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


def compiling(target: Any) -> AbstractContextManager[Any]:
    """The pass configuration under which this TVM builds tensorised CUDA kernels right.

    Kernels that were tuned for TensorCores are compiled inside it, as they were when they were
    measured: `with pruner_ms.tensorcore.compiling(target): tvm.compile(mod, target)`. What the
    current `PassContext` says is kept; where a TVM or a target needs nothing, nothing changes. CUDA
    code goes through nvcc where that is there and NVRTC cannot be used (`cuda_compiler.choose`).
    After `pruner_ms.unregister()` no copies run ahead, so that kernels with such copies are slower.

    Parameters
    ----------
    target
        The TVM `Target` that is compiled for.
    """
    from pruner_ms.tvm_compat import cuda_compiler, tensor_builds

    cuda_compiler.choose()
    return tensor_builds.compiling(target)


def opted_in(target: Any) -> Any:
    """The target with all shared memory that a block can ask for when it is launched.

    `pruner-ms tune` and `pruner_ms.tune` do this themselves; see `targets.opted_in`.

    Parameters
    ----------
    target
        The TVM `Target` that is tuned for.
    """
    from pruner_ms.tensorcore import targets

    return targets.opted_in(target)


__all__ = ["compiling", "opted_in"]
