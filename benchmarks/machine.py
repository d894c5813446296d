"""What a benchmark's numbers were measured on: no name of a host or a person."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_QUIET: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 30}
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "pruner-ms", "torch", "xgboost-cpu")


def fingerprint() -> dict[str, object]:
    """Processor, cores, memory (bytes), GPU, kernel, Python, and versions of the packages used.

    The GPU (model and driver) is there where nvidia-smi is. Hosts of virtual machines shorten the
    processor's name until generations share it; family and model tell them apart (x86, Linux).
    """
    from pruner_ms.hardware.nvidia import gpu_said

    gpu = gpu_said()
    family, model = _cpu_said("cpu family"), _cpu_said("model")
    return {
        "cpu": _cpu_said("model name") or platform.processor(),
        **({"generation": f"family {family}, model {model}"} if family and model else {}),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        **({"gpu": gpu} if gpu else {}),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: release for name in _PACKAGES if (release := _version(name))},
    }


def command_line() -> str:
    """The command this process was started with, without paths of this machine."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    name = (
        f"-m {spec.name.removesuffix('.__main__')}" if spec is not None else Path(sys.argv[0]).name
    )
    return " ".join(["python", name, *sys.argv[1:]])


def commit() -> str | None:
    """The commit of the source tree, with a "+" where files of it were changed since."""
    tree = Path(__file__).resolve().parents[1]
    git = ["git", "-C", str(tree)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=False, **_QUIET)
        code = ["--", "benchmarks/*.py", "integration", "pruner_ms", "tensorcore"]
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", *code], check=False, **_QUIET)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if head.returncode else head.stdout.strip() + "+" * bool(changed.returncode)


def digest_of(path: str | None) -> str | None:
    """The first twelve digits of a file's SHA-256."""
    if path is None:
        return None
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_said(name: str) -> str | None:
    """What the kernel says of the first processor under a name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    named = (line.split(":", 1) for line in lines if ":" in line)
    return next((text.strip() for key, text in named if key.strip() == name), None)
