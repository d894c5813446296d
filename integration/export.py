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

from pruner_ms.clock import run
from pruner_ms.errors import EnvironmentFault, ModelFileError
from pruner_ms.files import disk_fault, strict_loads, write_json
from pruner_ms.integration.inputs import as_numpy_own, numpy_dtype
from pruner_ms.integration.onnx_file import TensorSpec
from pruner_ms.tvm_compat.paths import get_global_func, plain
from pruner_ms.tvm_compat.threads import VARIABLE, cores_of, threads_for

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
    names = [str(name) for name in held["dtypes"]]
    if not all(hasattr(np, name) for name in names):
        import ml_dtypes  # with it, numpy knows bfloat16 and float8 by name
    arrays = [held[f"arr_{i}"].view(name) for i, name in enumerate(names)]
outputs = machine["main"](*[make(array, device) for array in arrays])

def leaves(value):
    return [value] if hasattr(value, "numpy") else [x for part in value for x in leaves(part)]

outputs = [output.numpy() for output in leaves(outputs)]
assert "pruner_ms" not in sys.modules
names = [str(output.dtype) for output in outputs]
bits = [o if o.dtype.isbuiltin == 1 else o.view(f"i{o.dtype.itemsize}") for o in outputs]
np.savez(result, *bits, dtypes=np.array(names, str))
"""
"""What a user's program does with an exported library.

In a file of arrays, a dtype that numpy lacks is stored as integers of the same bits, with its name.
"""


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
    """Metadata of a library; `threads` is how many TVM should run it on (None: it is for no CPU).

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
        "threads": cores_of(target),
        "inputs": [asdict(spec) for spec in inputs],
        "outputs": [asdict(spec) for spec in outputs],
        "versions": versions(),
        **facts,
    }


def versions() -> dict[str, str]:
    """Versions of the packages that a library comes from."""
    return {name: number for name in _PACKAGES if (number := _version(name))}


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
        There is no C++ compiler to link with, or it fails, as this machine's own compiler does on
        a library for another machine.
    """
    described = path.with_suffix(".json")
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.so")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        _link(executable, temporary, path, metadata)
        digest, size = _digest(temporary), temporary.stat().st_size
        temporary.replace(path)
    except OSError as error:
        raise disk_fault(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    facts = {"format": FORMAT, "library": path.name, "sha256": digest, **metadata}
    write_json(described, facts)
    return Exported(path, described, size)


def _link(executable: Any, temporary: Path, path: Path, metadata: Mapping[str, object]) -> None:
    """Write the library to a file that is there; TVM starts the compiler."""
    try:
        with _without_scope_warnings():
            executable.export_library(str(temporary))
    except Exception as error:
        # a compiler that is not there, may not be run, or of which TVM finds none at all
        about_it = (FileNotFoundError, PermissionError)
        if isinstance(error, OSError) and not isinstance(error, about_it):
            raise  # a full disk
        raise EnvironmentFault(
            f"TVM cannot link {path}: {_reason(error)}; {_compiler_advice(metadata)}"
        ) from error


_ABOUT_LINKING = ("Command line:", "collect2:", "Compilation error")
"""Lines of a failed link that do not say why."""


def _reason(error: Exception) -> str:
    """The last line of an error that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(_ABOUT_LINKING)]
    return (said or lines or ["no reason given"])[-1]


def _compiler_advice(metadata: Mapping[str, object]) -> str:
    """What to do about a failed link: TVM takes the compiler of the variable CXX, else g++."""
    target = metadata.get("target")
    attributes = target if isinstance(target, Mapping) else {}
    host = attributes.get("host")
    triple = str((host if isinstance(host, Mapping) else attributes).get("mtriple") or "")
    triple_of = get_global_func("target.llvm_get_system_triple", True)
    own_triple = "" if triple_of is None else str(triple_of())
    if not triple or not own_triple or _platform(triple) == _platform(own_triple):
        return "put a C++ compiler (g++) on PATH, or name one in the variable CXX"
    return (
        f"the library is for {triple}, and this machine is {own_triple}: name a cross compiler in "
        f"the variable CXX, such as {triple}-g++"
    )


def _platform(triple: str) -> tuple[str, bool]:
    """Architecture of a triple, and whether the system is Linux."""
    return triple.partition("-")[0], "linux" in triple


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
        The library does not load, does not run or does not end; the message ends with what it said.
    """
    facts = read_metadata(path)
    kind = str(facts.get("target", {}).get("kind", "llvm"))
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
        dtypes = np.array([str(array.dtype) for array in inputs], str)
        np.savez(source, *map(as_numpy_own, inputs), dtypes=dtypes)
        arguments = [str(path.resolve()), kind, str(source), str(result)]
        try:
            threads = {VARIABLE: str(threads_for(facts.get("threads")))}
            command = [sys.executable, "-c", _RUN, *arguments]
            done = run(command, timeout, env={**os.environ, **threads})
        except subprocess.TimeoutExpired as error:
            raise ModelFileError(
                f"{path} does not end: it was stopped after {timeout:g} s"
            ) from error
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise ModelFileError(f"{path} does not run by itself: {said}")
        with np.load(result, allow_pickle=False) as held:
            names = map(str, held["dtypes"])
            return [held[f"arr_{i}"].view(numpy_dtype(name)) for i, name in enumerate(names)]
