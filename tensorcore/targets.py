"""Targets: which have TensorCores, and how much shared memory their blocks can use."""

from __future__ import annotations

import re
from typing import Any

from pruner_ms.errors import TargetError
from pruner_ms.hardware import hardware_for, hardware_named
from pruner_ms.hardware.arch import arch_number
from pruner_ms.hardware.gpus import ARCHS
from pruner_ms.tensorcore.intrinsics import RATES
from pruner_ms.tvm_compat.targets import attrs_of, parse_target, with_attribute

NEWEST = "nvidia/nvidia-h100"
"""Tag of a target that has all instructions of the table."""

SHARED = "max_shared_memory_per_block"
LIMITS = ("max_threads_per_block", SHARED, "thread_warp_size")
"""Attributes of a target that design spaces need."""

FIRST_ARCH = min(arch_number(arch) for arch in RATES)
"""First architecture with TensorCores."""


DEFAULT_SHARED = 48 * 1024
"""Bytes of shared memory of a block without opt-in; the limit in TVM's tags and
`Target.from_device`."""


def opted_in(target: Any) -> Any:
    """The target with all shared memory that a block can opt in to at launch.

    Tensorised kernels opt in (TVM does so for "shared.dyn"); TVM's targets stop at 48 KiB. A target
    with another limit, and one of an unknown architecture, are returned as they are. In your own
    pipeline: `target = pruner_ms.tensorcore.opted_in(target)`.

    Parameters
    ----------
    target
        A TVM `Target`.
    """
    attrs = attrs_of(target)
    row = ARCHS.get(re.sub(r"[af]$", "", str(attrs.get("arch", ""))))
    if attrs["kind"] != "cuda" or row is None or attrs.get(SHARED) != DEFAULT_SHARED:
        return target
    return with_attribute(target, SHARED, row.block_kib * 1024)


def units_of(target: Any) -> int:
    """SMs of a target's device; those of an A100 if it is unknown."""
    try:
        return hardware_for(attrs_of(target), use_host=False).units
    except TargetError:
        return hardware_named("a100").units


def has_tensor_cores(target: Any) -> bool:
    """Whether a target is an NVIDIA GPU with TensorCores."""
    attrs = attrs_of(target)
    return attrs["kind"] == "cuda" and arch_number(str(attrs.get("arch", ""))) >= FIRST_ARCH


def require_nvidia(target: Any) -> None:
    """Raise a `TargetError` for a target that is not an NVIDIA GPU.

    Older NVIDIA GPUs get the design spaces of their CUDA cores.
    """
    kind = attrs_of(target)["kind"]
    if kind != "cuda":
        raise TargetError(
            f"the design spaces of TensorCores are for NVIDIA GPUs, not for the target kind "
            f"{kind!r}; leave space='tensorcore' out, or give a target such as nvidia/nvidia-a100"
        )


def require_tensor_cores(target: Any) -> None:
    """Raise a `TargetError` for a target without TensorCores."""
    if not has_tensor_cores(target):
        attrs = attrs_of(target)
        what = " ".join(str(attrs[name]) for name in ("kind", "arch") if name in attrs)
        raise TargetError(
            f"the target {what} has no TensorCores, which NVIDIA GPUs have from sm_{FIRST_ARCH} "
            "on; give one such as nvidia/nvidia-a100"
        )


def target_of(text: str | None) -> tuple[Any, bool]:
    """The target that a user named, and whether it is a real device's.

    None is the device of this machine or, without one, `NEWEST`, for which the second value is
    False.

    Raises
    ------
    TargetError
        The text is not a target, or one without TensorCores.
    """
    if text is None:
        try:
            target = parse_target("cuda")
        except TargetError:
            return parse_target(NEWEST), False
    else:
        target = parse_target(text)
    require_tensor_cores(target)
    lacking = [name for name in LIMITS if name not in attrs_of(target)]
    if lacking:
        raise TargetError(
            f"the target {text} has no {', '.join(lacking)}; use a tag such as nvidia/nvidia-a100, "
            f'or add them: "max_threads_per_block": 1024, "thread_warp_size": 32, ...'
        )
    return target, True
