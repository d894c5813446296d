"""Workloads of the race: names of the pools' table, or specs (`pruner_ms.pools.specs`)."""

from __future__ import annotations

from dataclasses import replace

from pruner_ms.errors import OptionError
from pruner_ms.pools.specs import workload_of_spec
from pruner_ms.pools.workloads import Workload

TEN = (
    "gmm_512",
    "gmm_1024",
    "gmm_128x768x3072",
    "c2d_56_64",
    "c2d_14_256",
    "cbr_28_128",
    "dep_112_32",
    "tbg_128_12_64",
    "sfm_512",
    "nrm_1024",
)
"""The workloads of the pools on CPU cores."""


def workload_of(text: str) -> Workload:
    """A workload by its name or spec; what is neither ends the program with a sentence."""
    try:
        return workload_of_spec(text)
    except OptionError as error:
        raise SystemExit(str(error)) from error


def on_target(workload: Workload, target: str) -> Workload:
    """The workload with the generator of design spaces that a name of a target stands for."""
    tensor = target == "cuda-tensorcore"
    return replace(workload, space="cuda-tensorcore" if tensor else "post-order-apply")
