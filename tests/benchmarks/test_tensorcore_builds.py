"""Candidates without a GPU are compiled as TVM compiles them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from benchmarks import tensorcore_builds
from pruner_ms.tvm_compat.paths import VERSION, nvcc


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
