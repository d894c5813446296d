"""Blocks of a schedule by name, whatever the version calls them."""

from __future__ import annotations

from typing import Any

from pruner_ms.tvm_compat.exprs import dtype_of
from pruner_ms.tvm_compat.paths import (
    InternalError,
    ScheduleError,
    prim_func,
    schedule_analysis,
    schedule_transform,
)


def get_block(schedule: Any, name: str) -> Any:
    """The block of a name in the schedule's `main`; a `ScheduleError` where there is none."""
    get = getattr(schedule, "get_sblock", None) or schedule.get_block
    return get(name)


def has_block(schedule: Any, name: str) -> bool:
    """Whether there is a block of that name; the schedule stays as it is."""
    try:
        get_block(schedule.copy(), name)
    except ScheduleError:
        return False
    return True


def is_for_wide_loops(error: Exception) -> bool:
    """Whether TVM refuses because loops count in 64 bits: 0.25 and 0.26 copy tiles by 32 bits."""
    return "is narrower than that of `min` or `extent`" in str(error)


def arguments_of(schedule: Any) -> list[Any]:
    """What the function of a schedule takes: buffers, and what else there is."""
    func = prim_func(schedule.mod)
    mapped = dict(func.buffer_map) if hasattr(func, "buffer_map") else {}
    return [mapped.get(parameter, parameter) for parameter in func.params]


def mapping_of(schedule: Any, block: Any, description: Any) -> Any | None:
    """How a block maps to the description of a tensor intrinsic; None if it does not."""
    return schedule_analysis.get_auto_tensorize_mapping_info(schedule, block, description)


def tile_by(schedule: Any, block: Any, intrinsic: str) -> Any | None:
    """Split a block's loops into tiles of an intrinsic; the outermost loop of one, or None."""
    try:
        return schedule_transform.tile_with_tensor_intrin(schedule, block, intrinsic)
    except InternalError:  # it has variables without a loop
        return None


def index_dtype(block: Any) -> str:
    """Type of a block's iteration variables."""
    return dtype_of(block.iter_vars[0].var)
