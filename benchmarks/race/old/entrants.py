"""The old tuners, seen from the race: how they are started, and what they leave.

They run under the Python of `.venv-ansor` (`make ansor`), or of the virtual environment that the
variable PRUNER_MS_ANSOR names. What they leave are shared libraries that the race's own TVM loads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pruner_ms.pools.workloads import Workload

ROOT = Path(__file__).parents[3]
VARIABLE = "PRUNER_MS_ANSOR"

OLD: Mapping[str, str] = MappingProxyType(
    {"ansor": "benchmarks.race.old.ansor", "stock-0.17": "benchmarks.race.old.stock017"}
)
"""Modules by the names of their tuners."""


@dataclass(frozen=True)
class Library:
    """An incumbent of an old tuner.

    Attributes
    ----------
    number
        Of its trial.
    path
        Of the shared library; None: it could not be exported.
    arguments
        Shape and type of each.
    """

    number: int
    path: Path | None
    arguments: tuple[tuple[tuple[int, ...], str], ...]

    def infos(self) -> list[Any]:
        """The arguments as TVM's runners take them."""
        from pruner_ms.tvm_compat.paths import ms

        return [ms.arg_info.TensorInfo(dtype, shape) for shape, dtype in self.arguments]

    def outputs(self, arrays: Sequence[Any]) -> list[Any]:
        """The arguments after one call in this process.

        Parameters
        ----------
        arrays
            numpy arrays, of the shapes and types of the arguments.
        """
        from pruner_ms.tvm_compat.paths import as_tensor, runtime

        tensors = [as_tensor(array) for array in arrays]
        runtime.load_module(str(self.path))["main"](*tensors)
        return [one.numpy() for one in tensors]


def python() -> Path:
    """The Python of the environment; where there is none, a sentence ends the program."""
    folder = Path(os.environ.get(VARIABLE) or ROOT / ".venv-ansor")
    path = folder / "bin" / "python"
    if not path.exists():
        raise SystemExit(
            f"{path} is not there: run `make ansor`, or name its virtual environment in {VARIABLE}"
        )
    return path


def job_of(job: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    """A worker's job; the old side cannot look workloads up, so it is told function and shape.

    Parameters
    ----------
    job
        `target_json`, `seed`, `trials`, `batch`, `folder`; the rest is left out.
    """
    settings = {key: job[key] for key in ("target_json", "seed", "trials", "batch", "folder")}
    operator = {"function": workload.function, "shape": workload.shape, "dtype": workload.dtype}
    return {**settings, **operator}


def command(
    tuner: str, job: Mapping[str, Any], workload: Workload
) -> tuple[list[str], dict[str, str]]:
    """What `turns.Player` is given: the command, and environment variables.

    Parameters
    ----------
    tuner
        A name of `OLD`.
    """
    arguments = [str(python()), "-m", OLD[tuner], json.dumps(job_of(job, workload))]
    cores = str(job["target_json"]["num-cores"])
    return arguments, {"TVM_NUM_THREADS": cores, "PYTHONPATH": str(ROOT)}


def libraries(folder: Path, said: Sequence[Mapping[str, Any]]) -> list[Library]:
    """The incumbents of an old tuner, from what it said."""
    return [
        Library(
            one["i"],
            folder / one["library"] if one["library"] else None,
            tuple((tuple(shape), dtype) for shape, dtype in one["args"]),
        )
        for one in said
        if one["k"] == "best"
    ]
