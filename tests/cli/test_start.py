"""Starting the command costs little and imports neither TVM nor torch."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from pruner_ms.cli.app import app

_LOADED = """
import sys
import pruner_ms.cli
heavy = {"tvm", "tvm_ffi", "torch", "onnx", "numpy.testing", "rich.live"} & set(sys.modules)
sys.exit(f"imported: {sorted(heavy)}" if heavy else 0)
"""

_RUN = """
import sys
from pruner_ms.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
assert "tvm" in sys.modules and "torch" not in sys.modules
"""


def cpu_seconds(*command: str) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def test_help_starts_in_half_a_second() -> None:
    # CPU seconds, the least of three: the machine may be busy with something else
    runs = [cpu_seconds(sys.executable, "-m", "pruner_ms", "--help") for _ in range(3)]
    assert min(seconds for seconds, _ in runs) < 0.5
    for name in ("tune", "report", "doctor"):
        assert name in runs[0][1]


def test_importing_the_command_line_imports_nothing_heavy() -> None:
    subprocess.run([sys.executable, "-c", _LOADED], check=True)


def test_every_command_has_help() -> None:
    names = [command.callback.__name__ for command in app.registered_commands if command.callback]
    assert names == [
        "tune",
        "report",
        "explain",
        "export",
        "compare",
        "polish",
        "run",
        "doctor",
        "train",
        "tensorcore",
    ]
    for name in names:
        done = CliRunner().invoke(app, [name, "--help"])
        assert done.exit_code == 0 and "Usage: " in done.stdout
        # what a script prints is its own affair
        assert "--json" in done.stdout or name == "run"


@pytest.mark.heavy
def test_what_needs_the_compiler_alone_imports_no_torch() -> None:
    pytest.importorskip("tvm")
    words = ["tensorcore", "gemm:64x64x64:float16", "--target", "nvidia/nvidia-a100"]
    subprocess.run([sys.executable, "-c", _RUN, *words], check=True, stdout=subprocess.DEVNULL)
