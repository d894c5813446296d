"""What `doctor` looks at. Nothing here imports TVM: the self-test does, in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pruner_ms.clock import run
from pruner_ms.errors import PrunerError, TargetError
from pruner_ms.hardware import HardwareSpec, calibrated_host, calibration_file, host_cpu
from pruner_ms.records.workdir import WorkDir, expanded
from pruner_ms.trials.address import Address
from pruner_ms.tvm_compat import cuda_compiler
from pruner_ms.tvm_compat.ffi_pairs import Pair, installed_pair

_PACKAGES = (
    "pruner-ms",
    "apache-tvm",
    "apache-tvm-ffi",
    "numpy",
    "torch",
    "onnx",
    "onnxruntime",
    "xgboost",
    "xgboost-cpu",
    "psutil",
    "cloudpickle",
    "tornado",
)
_NEEDED = ("psutil", "cloudpickle", "tornado")
"""What stock MetaSchedule imports and TVM's wheel does not ask for."""

_SELF_TEST = ("-m", "pruner_ms.session.selftest")
_SELF_TEST_SECONDS = 300.0

Read = Callable[[str], "str | None"]


def read_version(package: str) -> str | None:
    """Version of an installed package, None when it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions(read: Read = read_version) -> dict[str, str | None]:
    """Versions of Python and of the packages that matter."""
    return {"python": platform.python_version(), **{name: read(name) for name in _PACKAGES}}


def pair(read: Read = read_version) -> Pair:
    """The installed TVM and tvm-ffi, judged."""
    return installed_pair(read)


def cpu() -> dict[str, Any]:
    """Cores, vector width, caches of this machine."""
    try:
        spec = host_cpu()
    except TargetError as error:
        return {"error": str(error)}
    core, now = spec.core, calibrated_host()
    return {
        "name": spec.name,
        "cores": spec.units,
        "clock_ghz": round(spec.clock / 1e9, 2),
        "vector": core.isa,
        "vector_bits": core.vector_bytes * 8,
        "caches_kib": [c.size // 1024 for c in core.caches],
        "measured": None if now is spec else _measured(now),
        "calibration_file": str(calibration_file(spec)),
    }


def _measured(row: HardwareSpec) -> dict[str, Any]:
    """The figures of a machine that was measured."""
    caches = [c.bytes_per_cycle * row.clock / 1e9 for c in row.core.caches]
    return {
        "clock_ghz": round(row.clock / 1e9, 2),
        "gflops_per_core": round(row.peak("float32") / row.units / 1e9, 1),
        "cache_gb_per_s": [round(rate, 1) for rate in caches],
        "memory_gb_per_s": [
            round(row.core.memory_bandwidth / 1e9, 1),
            round(row.memory_bandwidth / 1e9, 1),
        ],
    }


def _output(*command: str) -> str | None:
    """What a program prints, None when it is not there or fails."""
    path = shutil.which(command[0])
    if path is None:
        return None
    try:
        done = run([path, *command[1:]], 20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cuda() -> dict[str, Any]:
    """The CUDA toolkit, devices, and what compiles CUDA code, as far as there are any."""
    compiler = _output(cuda_compiler.nvcc() or "nvcc", "--version")
    devices = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    release = next((x.strip() for x in (compiler or "").splitlines() if "release" in x), None)
    return {
        "nvcc": release,
        "devices": (devices or "").splitlines(),
        "toolkits": [str(home) for home in cuda_compiler.named()],
        "compiler": cuda_compiler.compiler(),
    }


def tracker(text: str) -> dict[str, Any]:
    """The servers of an RPC tracker by key; an error where there is none of the key asked for."""
    address = Address.parse(text)
    try:
        # the one check that needs TVM, and only when it is asked for
        from pruner_ms.trials.remote import of_key, servers

        servers_by_key = servers(address.host, address.port)
        of_key(servers_by_key, address)
    except PrunerError as error:
        return {"servers": {}, "error": str(error)}
    return {"servers": {key: asdict(one) for key, one in servers_by_key.items()}, "error": None}


def writing(place: Path) -> dict[str, Any]:
    """Whether a work-dir can be made at a place, whose missing parents would be made, too."""
    try:
        path = expanded(place)
        there = next(one for one in (path, *path.parents) if one.exists())
        free = shutil.disk_usage(there).free
        with tempfile.TemporaryDirectory(prefix=".pruner_ms_doctor_", dir=there) as inner:
            WorkDir(inner).close()
    except (OSError, PrunerError) as error:
        return {"place": str(place), "ok": False, "error": str(error)}
    return {"place": str(place), "ok": True, "free_gb": round(free / 1e9, 1)}


def self_test(judged: Pair, seconds: float = _SELF_TEST_SECONDS) -> dict[str, Any]:
    """Tune a small matrix product in another process; how far it came."""
    if judged.verdict == "bad":
        return {"ok": False, "stage": "not run", "error": judged.message}
    if find_spec("tvm") is None:
        return {"ok": False, "stage": "not run", "error": "there is no TVM in this environment"}
    with tempfile.TemporaryDirectory(prefix="pruner_ms_doctor_") as place:
        command = [sys.executable, *_SELF_TEST, place]
        try:
            done = run(command, seconds)
        except subprocess.TimeoutExpired as error:
            out = error.stdout or b""
            stages = _stages(out.decode() if isinstance(out, bytes) else out)
            return {"ok": False, **stages, "error": f"no answer within {seconds:.0f} s"}
    stages = _stages(done.stdout)
    if done.returncode == 0:
        return {"ok": True, **stages, "error": None}
    return {"ok": False, **stages, "error": _cause(done.returncode, done.stderr, stages)}


def _stages(text: str) -> dict[str, Any]:
    """The facts of all stages, and the name of the last."""
    facts: dict[str, Any] = {"stage": "start"}
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue  # a library's own words
        if isinstance(value, dict) and "stage" in value:
            facts |= value
    return facts


def _cause(code: int, stderr: str, stages: Mapping[str, Any]) -> str:
    if code < 0:
        return f"the process died of {signal.Signals(-code).name} after the stage {stages['stage']}"
    if stages.get("message"):
        return str(stages["message"])
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"the process ended with status {code}"


def problems(facts: Mapping[str, Any]) -> list[str]:
    """Why this environment cannot tune, with cures; empty when it can."""
    reasons = []
    if facts["pair"]["verdict"] == "bad":
        reasons.append(facts["pair"]["message"])
    missing = [name for name in _NEEDED if facts["versions"].get(name) is None]
    if missing and facts["versions"].get("apache-tvm") is not None:
        reasons.append(f"MetaSchedule needs {', '.join(missing)}; pip install {' '.join(missing)}")
    if not facts["write"]["ok"]:
        reasons.append(facts["write"]["error"])
    if facts.get("rpc") is not None and facts["rpc"]["error"] is not None:
        reasons.append(facts["rpc"]["error"])
    reasons += _compiling(facts["cuda"])
    test = facts["self_test"]
    if not test["ok"] and facts["pair"]["verdict"] != "bad":
        cure = "" if find_spec("tvm") else "; pip install 'pruner-ms[tvm]' with a constraints file"
        reasons.append(f"the self-test failed (stage {test['stage']}): {test['error']}{cure}")
    return reasons


def _compiling(cuda: Mapping[str, Any]) -> list[str]:
    """Why no CUDA code can be compiled where there is a GPU or a toolkit, with the cure."""
    there = [*cuda["devices"], *cuda["toolkits"]]
    if cuda["compiler"] is not None or not there:
        return []
    asked = os.environ.get(cuda_compiler.MODE)
    wanted = f" ({cuda_compiler.MODE} asks for {asked})" if asked else ""
    return [
        f"there is {there[0]}, but no compiler of CUDA code{wanted}: put nvcc on PATH, name its "
        f"toolkit's folder in {cuda_compiler.HOMES[0]}, or pip install cuda-bindings"
    ]
