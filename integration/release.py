"""A run's library, checked and copied to where it is used."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pruner_ms.errors import ModelFileError, OptionError
from pruner_ms.files import disk_fault, strict_loads, write_json
from pruner_ms.integration.export import LIBRARY, read_metadata, run_exported
from pruner_ms.integration.onnx_file import TensorSpec
from pruner_ms.integration.verify import random_inputs
from pruner_ms.tvm_compat.threads import VARIABLE


@dataclass(frozen=True)
class Released:
    """A copied library.

    Attributes
    ----------
    library, metadata
        The two files.
    size
        Of the library, in bytes.
    checked
        What was done to see that it works, for a person.
    threads
        With how many TVM should run it; None: it is for no CPU, or nobody wrote it down.
    """

    library: Path
    metadata: Path
    size: int
    checked: str
    threads: int | None = None

    def facts(self) -> dict[str, object]:
        """The same as JSON values."""
        return {
            "library": str(self.library),
            "metadata": str(self.metadata),
            "size": self.size,
            "checked": self.checked,
            "threads": self.threads,
        }

    def line(self) -> str:
        """One line for a person."""
        threads = f"; run it with {VARIABLE}={self.threads}" if self.threads else ""
        about = f"about it: {self.metadata}{threads}"
        return f"{self.library}: {self.size:,} bytes, {self.checked}; {about}"


def release(run: Path, out: Path, *, check: bool = True) -> Released:
    """Copy a run's library and its metadata.

    Parameters
    ----------
    run
        Work-dir of `pruner_ms.tune` or `pruner-ms tune`.
    out
        The library, ending in `.so`; what is there is replaced as a whole.
    check
        Run a network's library first, on random inputs, in a process that does not import this
        package. Kernels, and programs for a device that is elsewhere, are copied as they are.

    Raises
    ------
    OptionError
        `out` does not end in `.so`, or is the run's own library.
    ModelFileError
        The run has no library, or it is damaged or does not run.
    WorkDirError
        The file system refuses.
    """
    source = run / LIBRARY
    if out.suffix != ".so":
        raise OptionError(f"{out} does not end in .so; name the library, as in -o {out.name}.so")
    if not source.is_file():
        raise ModelFileError(
            f"{run} holds no {LIBRARY}; repeat the `pruner-ms tune` of this work-dir: it goes on "
            "from what is there and writes one (without --shard, after `pruner-ms db merge`)"
        )
    if out.resolve() == source.resolve():
        raise OptionError(f"{out} is the run's own library; name another file")
    facts, described = read_metadata(source), out.with_suffix(".json")
    if described.exists() and not _ours(described):
        raise OptionError(
            f"{described} would be replaced, and is no metadata of a library; name another file"
        )
    checked = _checked(source, facts) if check else "not run"
    _copy(source, out)
    write_json(described, {**facts, "library": out.name})
    read_metadata(out)
    return Released(out, described, out.stat().st_size, checked, facts.get("threads"))


def _ours(described: Path) -> bool:
    """Whether a file is metadata that `export` wrote."""
    try:
        facts = strict_loads(described.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and {"format", "library", "sha256"} <= set(facts)


def _checked(source: Path, facts: dict[str, Any]) -> str:
    """Run a network's library; what was done."""
    from pruner_ms.integration.local_device import device_present
    from pruner_ms.tvm_compat.paths import Target

    if facts.get("measured_on"):
        return f"not run (it is for the device behind {facts['measured_on']})"
    if not device_present(Target(facts["target"])):
        return "not run (its device is not here)"
    specs = [
        TensorSpec(str(one["name"]), tuple(one["shape"]), str(one["dtype"]))
        for one in facts.get("inputs", ())
    ]
    if facts.get("open_inputs"):
        return f"not run (open dimensions: {', '.join(map(str, facts['open_inputs']))})"
    if facts.get("unsafe"):
        return f"not run ({facts['unsafe']})"
    if not specs:
        return "not run (kernels, not a network)"
    outputs = run_exported(source, random_inputs(specs, np.random.default_rng(0)))
    shapes = ", ".join("x".join(map(str, array.shape)) or "a number" for array in outputs)
    return f"run in a process of its own: {shapes}"


def _copy(source: Path, out: Path) -> None:
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, temporary)
        temporary.replace(out)
    except OSError as error:
        raise disk_fault(out, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
