"""Operators, targets and exported kernels in TVM 0.17; imported only in its environment.

An exported library has two entries: `race_kernel` for 0.17, and `main` for the runtimes of 0.25
and later, which `bridge.cc` adds. So one process times kernels of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.meta_schedule.testing import te_workload

from benchmarks.race.old.target import old_target

KERNEL = "race_kernel"
_BRIDGE = Path(__file__).parent / "bridge.cc"
_OUT_DTYPES = {"float32": "float32", "float16": "float32", "int8": "int32"}


def operator(function: str, dtype: str, *shape: int) -> list[Any]:
    """Tensors of an operator of `te_workload`, arguments first, the result last."""
    types = {"in_dtype": dtype, "out_dtype": _OUT_DTYPES[dtype]} if dtype != "float32" else {}
    return list(getattr(te_workload, function)(*shape, **types))


def target_of(config: dict[str, Any]) -> Any:
    """The target of the race in the old TVM."""
    plain = tvm.target.Target({"kind": "llvm"})
    names = [str(name) for name in tvm.target.codegen.llvm_get_cpu_archlist(plain)]
    return tvm.target.Target(old_target(config, names))


def export(built: Any, path: Path) -> None:
    """Write a built module whose kernel is called `race_kernel` as a shared library."""
    built.export_library(str(path), options=[str(_BRIDGE), "-O2", "-fPIC"])


def described(arguments: Sequence[Any]) -> list[tuple[list[int], str]]:
    """Shapes and types of tensors or of what MetaSchedule says of arguments."""
    return [([int(n) for n in one.shape], str(one.dtype)) for one in arguments]
