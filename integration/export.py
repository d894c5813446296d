"""The way out: `model.so`, which TVM loads without this package, and `model.json` about it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import EnvironmentFault, ModelFileError
from pruner_ms.integration.onnx_file import TensorSpec
from pruner_ms.session.files import disk_fault, strict_loads, write_json
from pruner_ms.tvm_compat.paths import plain

FORMAT = 1
"""Version of the metadata file."""

LIBRARY = "model.so"
"""Its name in a work-dir."""

_PACKAGES = ("pruner-ms", "apache-tvm", "apache-tvm-ffi")

_SCOPE_WARNING = b"Warning: Scope Saving:"

_RUN = """
import sys
import numpy as np
import tvm
from tvm import relax

library, kind, source, result = sys.argv[1:]
device = tvm.device("cpu" if kind in ("llvm", "c") else kind, 0)
machine = relax.VirtualMachine(tvm.runtime.load_module(library), device)
make = getattr(tvm.runtime, "tensor", None) or tvm.nd.array
with np.load(source, allow_pickle=False) as held:
    arrays = [make(held[f"arr_{i}"], device) for i in range(len(held.files))]
outputs = machine["main"](*arrays)
outputs = [outputs] if hasattr(outputs, "numpy") else list(outputs)
assert "pruner_ms" not in sys.modules
np.savez(result, *[output.numpy() for output in outputs])
"""
"""What a user's program does with an exported library."""


@dataclass(frozen=True)
class Exported:
    """The two files, and the size of the library in bytes."""

    library: Path
    metadata: Path
    size: int


def describe(
    target: Any,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    **facts: object,
) -> dict[str, object]:
    """Metadata of a library.

    Parameters
    ----------
    target
        A TVM `Target`.
    inputs, outputs
        Of `main`, in order.
    facts
        More that is known, as JSON values: model_hash, latency_before (seconds), ...
    """
    return {
        "target": plain(target.export()),
        "inputs": [asdict(spec) for spec in inputs],
        "outputs": [asdict(spec) for spec in outputs],
        "versions": versions(),
        **facts,
    }


def versions() -> dict[str, str]:
    """Versions of the packages that a library comes from."""
    return {name: found for name in _PACKAGES if (found := _version(name))}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def export(executable: Any, path: Path, metadata: Mapping[str, object]) -> Exported:
    """Write a compiled network and its metadata (the same name, ending in `.json`).

    Parameters
    ----------
    executable
        From `relax.compile_model`.
    path
        The library, ending in `.so`; what is there is replaced as a whole.
    metadata
        JSON values, from `describe`; format, file name and SHA-256 of the library are added.

    Raises
    ------
    WorkDirError
        The file system refuses.
    EnvironmentFault
        There is no C++ compiler to link with, or it fails.
    """
    described = path.with_suffix(".json")
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.so")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        with _without_scope_warnings():
            executable.export_library(str(temporary))
        digest, size = _digest(temporary), temporary.stat().st_size
        temporary.replace(path)
    except OSError as error:
        raise disk_fault(path, error) from error
    except RuntimeError as error:
        lines = str(error).strip().splitlines() or ["no reason given"]
        raise EnvironmentFault(
            f"TVM cannot link {path}: {lines[-1]}; put a C++ compiler (g++) on PATH, "
            "or name one in the variable CXX"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    facts = {"format": FORMAT, "library": path.name, "sha256": digest, **metadata}
    write_json(described, facts)
    return Exported(path, described, size)


@contextmanager
def _without_scope_warnings() -> Iterator[None]:
    """Drop the line that TVM's C++ prints on stderr for each constant; others come at the end."""
    sys.stderr.flush()
    held = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(held, 2)
            os.close(held)
            said.seek(0)
            os.write(2, b"".join(line for line in said if _SCOPE_WARNING not in line))


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of an exported library, checked against the library.

    Parameters
    ----------
    path
        The library.

    Raises
    ------
    ModelFileError
        One of the files is missing, damaged, or belongs to another library.
    """
    described = path.with_suffix(".json")
    for needed in (path, described):
        if not needed.is_file():
            raise ModelFileError(f"{needed} does not exist; export the library again")
    try:
        facts = strict_loads(described.read_bytes())
    except ValueError as error:
        raise ModelFileError(f"{described} is damaged ({error}); export again") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ModelFileError(f"{described} is not format {FORMAT}; export again with this version")
    if facts.get("sha256") != _digest(path):
        raise ModelFileError(f"{path} is not the library that {described.name} describes")
    return facts


def run_exported(
    path: Path, inputs: Sequence[npt.NDArray[Any]], timeout: float = 600.0
) -> list[npt.NDArray[Any]]:
    """Run an exported library in a process of its own, which does not import this package.

    Parameters
    ----------
    path
        The library; `model.json` lies beside it.
    inputs
        Arrays, as the metadata lists them.
    timeout
        Seconds until the process is ended.

    Raises
    ------
    ModelFileError
        The library does not load or does not run; the message ends with what it said.
    """
    kind = str(read_metadata(path).get("target", {}).get("kind", "llvm"))
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
        np.savez(source, *inputs)
        arguments = [str(path.resolve()), kind, str(source), str(result)]
        done = subprocess.run(
            [sys.executable, "-c", _RUN, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise ModelFileError(f"{path} does not run by itself: {said}")
        with np.load(result, allow_pickle=False) as held:
            return [held[f"arr_{i}"] for i in range(len(held.files))]
