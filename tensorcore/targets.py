"""Which targets have TensorCores."""

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
"""What design spaces need to know of a target."""

FIRST_ARCH = min(arch_number(arch) for arch in RATES)
"""First architecture with TensorCores."""


UNASKED = 48 * 1024
"""Bytes of shared memory that every GPU gives a block without being asked; what TVM's tags and
`Target.from_device` say of each."""


def opted_in(target: Any) -> Any:
    """The target with all shared memory that a block can ask for when it is launched.

    Tensorised kernels ask for it (TVM does so for "shared.dyn"); TVM's own targets stop at 48 KiB.
    A target whose figure was chosen by somebody, and one of an unknown architecture, stay as they
    are. In a pipeline of your own: `target = pruner_ms.tensorcore.opted_in(target)`.

    Parameters
    ----------
    target
        A TVM `Target`.
    """
    attrs = attrs_of(target)
    row = ARCHS.get(re.sub(r"[af]$", "", str(attrs.get("arch", ""))))
    if attrs["kind"] != "cuda" or row is None or attrs.get(SHARED) != UNASKED:
        return target
    return with_attribute(target, SHARED, row.block_kib * 1024)


def units_of(target: Any) -> int:
    """SMs of a target's device; those of an A100 where it is not known."""
    try:
        return hardware_for(attrs_of(target), use_host=False).units
    except TargetError:
        return hardware_named("a100").units


def has_tensor_cores(target: Any) -> bool:
    """Whether a target is an NVIDIA GPU with TensorCores."""
    attrs = attrs_of(target)
    return attrs["kind"] == "cuda" and arch_number(str(attrs.get("arch", ""))) >= FIRST_ARCH


def require_nvidia(target: Any) -> None:
    """Raise a `TargetError` for a target that is no NVIDIA GPU: a design space would be nonsense.

    Older ones get the design spaces of their CUDA cores.
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
    """The target for what a user typed, and whether it is somebody's.

    Without a word it is the device of this machine, and without a device one that has all
    instructions, which is nobody's.

    Raises
    ------
    TargetError
        What was typed is no target, or one without TensorCores.
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
