"""The untuned function of a task as a schedule, so that it can be measured, stored and compiled.

On a CPU that schedule does nothing. On a GPU, where a function without threads cannot run, it is
TVM's default one (DLight), which a network that nobody has tuned is compiled with.
"""

from __future__ import annotations

import logging
from typing import Any

from pruner_ms.tvm_compat.marks import UNTUNED
from pruner_ms.tvm_compat.paths import (
    IS_S_TIR,
    Schedule,
    _first,
    module_pass,
    plain,
    prim_func,
)
from pruner_ms.tvm_compat.targets import is_gpu

log = logging.getLogger(__name__)


def default_rules() -> tuple[Any, ...]:
    """TVM's default schedules for GPUs, those that are tried first before the others."""
    gpu = _first("tvm.s_tir.dlight", "tvm.dlight").gpu
    return gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback()


def default_pass() -> Any:
    """The pass that gives the functions of a module their default schedules for a GPU."""
    scheduled = _first("tvm.s_tir.dlight", "tvm.dlight").ApplyDefaultSchedule(*default_rules())
    # TVM's writes into the module that it is given: a task would have a schedule from then on
    return module_pass(lambda mod, _context: scheduled(mod.clone()), "default_schedule")


def untuned(mod: Any, target: Any) -> Any | None:
    """A schedule of a task's function as it is without tuning, its trace marked as such.

    Parameters
    ----------
    mod
        Module of the function, under the name `main`.
    target
        A TVM `Target`.

    Returns
    -------
    Schedule or None
        None: on a GPU, TVM has no default schedule for it.
    """
    schedule = Schedule(mod, error_render_level="none")
    candidates, probabilities = UNTUNED[1]
    schedule.sample_categorical(candidates, probabilities, 0)
    if not is_gpu(target):
        return schedule
    try:
        default = _by_default(prim_func(mod), target)
        if default is not None:
            default.trace.apply_to_schedule(schedule, remove_postproc=False)
            return schedule
    except Exception as error:  # rules raise whatever they raise, for a function they misread
        log.info("TVM gives a function no default schedule", exc_info=error)
    return None


def _by_default(func: Any, target: Any) -> Any | None:
    if not IS_S_TIR:  # nobody has tried whether the traces of those of older versions replay
        return None
    with target:
        for rule in default_rules():
            result = rule.apply(func, target, False)
            if result is not None:
                return result[0] if isinstance(result, list) else result
    return None


def is_untuned(trace: Any) -> bool:
    """Whether a TVM `Trace` is that of an untuned function."""
    instructions = trace.insts
    if not len(instructions):
        return False
    return (str(instructions[0].kind.name), plain(instructions[0].attrs)) == UNTUNED
