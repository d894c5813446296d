"""A scheduled module as TVM gives it to its CUDA code generator."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import tvm

from pruner_ms.tvm_compat.passes import config_for, uses_tensor_instructions, with_config
from pruner_ms.tvm_compat.paths import save_json
from tests.support.kernel import Grid, Instruction
from tests.support.kernel_ops import KERNEL_INSTRUCTIONS


def kernels(mod: Any, target: Any, config: Mapping[str, Any] | None = None) -> list[Any]:
    """Device functions of a scheduled module, in the order of their calls; TVM 0.26 on.

    Parameters
    ----------
    config
        Of the passes; None: what the program is built with.
    """
    building = importlib.import_module("tvm.tirx.build")
    pipeline, _, finish = tvm.tirx.get_tir_pipeline("s_tir")
    mod = tvm.tirx.transform.BindTarget(target.with_host("llvm"))(mod)
    if config is None:
        config = config_for(target, uses_tensor_instructions(save_json(mod)))
    with with_config(config):
        _, devices = building.split_host_device_mods(pipeline(mod))
        return [func for part in devices.values() for func in finish()(part).functions.values()]


def run(
    func: Any,
    arrays: Mapping[str, npt.NDArray[Any]],
    instructions: Mapping[str, Instruction] = KERNEL_INSTRUCTIONS,
) -> None:
    """Run a device function.

    Parameters
    ----------
    arrays
        Arguments of the scheduled function by the names of their buffers; changed in place.
    instructions
        What they do.

    Raises
    ------
    Hazard
        The kernel does what only luck makes right.
    """
    names = [str(getattr(p, "name_hint", None) or p.name).removesuffix("_ptr") for p in func.params]
    Grid(func, [arrays[name].reshape(-1) for name in names], instructions).run()
