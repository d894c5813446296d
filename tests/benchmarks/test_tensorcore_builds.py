"""Candidates without a GPU are compiled as TVM compiles them."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import tensorcore_builds
from pruner_ms.tvm_compat.paths import VERSION, nvcc


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.skipif(not VERSION.startswith("0.27."), reason="the driver's library is for 0.27")
def test_the_compiler_is_asked_in_a_plain_shell(tmp_path):
    output = tmp_path / "builds.json"
    asked = {"workloads": "gemm:256x256x256:f16", "archs": "sm_80", "rows": "1"}
    options = [part for name, value in asked.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "benchmarks.tensorcore_builds", *options]
    command += ["--designs", "mma_sync_m16n8k16", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    (run,) = json.loads(output.read_text())["runs"]
    for design in run["designs"]:
        (built,) = design["built"]
        assert "product" in built["code"] and built["kilobytes"] > 5 and built["registers"] > 32


def built(registers, spilled=0, static=0):
    return {"registers": registers, "spilled_bytes": spilled, "static_shared": static}


def test_what_the_compiler_said_is_held_against_the_draft():
    mma = {
        "design": "mma_sync_m16n8k16_f16f16f32 ahead 2",
        "drafted": {
            "registers": [40, 300, 200, 90],
            "shared": [0] * 4,
            "limit": [255, 255, 128, 255],
        },
        "built": [built(32), built(255, 4000), built(128, 300), {"error": "refused"}],
    }
    cores = {
        "design": "CUDA cores",
        "drafted": {"registers": [300, 60, 50], "shared": [1024, 2048, 512]},
        "built": [built(254, 0, 1024), built(60, 0, 2080), built(64, 8, 1024)],
    }
    families = tensorcore_builds.agreement([{"designs": [mma]}, {"designs": [cores]}])
    assert families == {
        "mma": {
            "asked": 4,
            "built": 3,
            "registers_rank": 1.0,
            "spilling": 2,
            "spilling_foreseen": 1.0,
            "spilling_imagined": 0.0,
        },
        "CUDA": {
            "asked": 3,
            "built": 3,
            "registers_rank": 0.5,
            "spilling": 0,
            "spilling_imagined": 0.5,
            "shared_alike": 0.667,
        },
    }


@pytest.mark.skipif(not VERSION.startswith("0.27."), reason="others compile otherwise")
def test_the_flags_are_tvms(monkeypatch):
    for name in ("TVM_CUDA_PTXAS_REG_LEVEL", "TVM_CUDA_PTXAS_EXTRA_OPTS"):
        monkeypatch.delenv(name, raising=False)
    commands = []

    def run(*command):
        commands.append([str(part) for part in command])
        Path(command[command.index("-o") + 1]).write_text("made")
        return "said"

    monkeypatch.setattr(tensorcore_builds, "_run", run)
    compiler = tensorcore_builds.Compiler("sm_80")
    assert compiler("code") == b"made" and (compiler.ptx, compiler.said) == ("made", "said")
    first, second = commands
    source = inspect.getsource(nvcc._compile_cuda_nvcc)
    flags = re.findall(r'"(-O3|-U__[^"]*|--expt[^"]*|--use_fast_math)"', source)
    assert len(flags) >= 10 and set(flags) <= set(first)
    assert set(nvcc._ptxas_option_flags()) <= set(second)
    assert first[0] == "nvcc" and second[0] == "ptxas"
    assert "-arch=sm_80" in first and "-arch=sm_80" in second
