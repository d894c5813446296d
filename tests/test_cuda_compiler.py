"""What compiles CUDA code: nvcc where it is there and cuda-bindings is not; who chose is obeyed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pruner_ms
from pruner_ms.cli import checks
from pruner_ms.cli.doctor import examine, lines
from pruner_ms.tensorcore import compiling
from pruner_ms.trials.build_job import BuildSettings, make_handler
from pruner_ms.tvm_compat import cuda_compiler
from pruner_ms.tvm_compat.cuda_compiler import MODE
from pruner_ms.tvm_compat.paths import IS_S_TIR, Target, nvcc

ROOT = Path(__file__).parents[1]
WRITES = '#!/bin/sh\nwhile [ "$1" != "-o" ]; do shift; done\necho built > "$2"\n'
"""As far as TVM is concerned, nvcc."""

A100 = {"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024, "thread_warp_size": 32}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without toolkit, cuda-bindings and anybody's choice; a folder for a toolkit."""
    for name in (MODE, *cuda_compiler.HOMES):
        monkeypatch.setenv(name, "before")  # so that what is set in a test is undone
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(cuda_compiler, "USUAL", tmp_path / "usual")
    monkeypatch.setitem(sys.modules, "cuda", None)
    return tmp_path / "toolkit"


def install(toolkit: Path) -> str:
    """Put nvcc into a toolkit; the folder that it is in."""
    program = toolkit / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    program.write_text(WRITES)
    program.chmod(0o755)
    return str(program.parent)


def install_bindings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cuda" / "bindings").mkdir(parents=True)
    # who imports it is told
    (folder / "cuda" / "bindings" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.delitem(sys.modules, "cuda")
    monkeypatch.syspath_prepend(str(folder))


def test_without_a_toolkit_nothing_is_chosen(machine: Path) -> None:
    cuda_compiler.choose()
    assert MODE not in os.environ and cuda_compiler.compiler() is None


def test_nvcc_is_chosen_where_the_other_cannot_be_used(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", install(machine))
    cuda_compiler.choose()
    assert os.environ[MODE] == "nvcc" == cuda_compiler.compiler()
    assert os.environ["PATH"] == str(machine / "bin"), "it was there"


@pytest.mark.parametrize("home", [*cuda_compiler.HOMES, "usual"])
def test_nvcc_off_the_path_is_put_on_it(
    home: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.environ["PATH"]
    if home == "usual":
        monkeypatch.setattr(cuda_compiler, "USUAL", machine)
    else:
        monkeypatch.setenv(home, str(machine))
    place = install(machine)
    for _ in range(2):
        cuda_compiler.choose()
    assert os.environ["PATH"].split(os.pathsep) == [before, place]


def test_unregistering_takes_the_choice_back(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.environ["PATH"]
    monkeypatch.setenv("CUDA_HOME", str(machine))
    place = install(machine)
    for mine in (False, True):
        pruner_ms.unregister()
        pruner_ms.register()
        assert os.environ[MODE] == "nvcc" and os.environ["PATH"].endswith(place)
        if mine:
            os.environ["PATH"] = "/mine"
        pruner_ms.unregister()
        assert MODE not in os.environ
        assert os.environ["PATH"] == ("/mine" if mine else before)
    pruner_ms.register()


@pytest.mark.parametrize("chosen", ["nvrtc", "nvcc"])
def test_who_has_chosen_is_obeyed(
    chosen: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MODE, chosen)
    monkeypatch.setenv("CUDA_HOME", str(machine))
    install(machine)
    before = os.environ["PATH"]
    cuda_compiler.choose()
    assert (os.environ[MODE], os.environ["PATH"]) == (chosen, before)
    assert cuda_compiler.compiler() == (None if chosen == "nvrtc" else "nvcc")


def test_cuda_bindings_are_left_to_tvm_and_not_imported(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", install(machine))
    install_bindings(machine.parent / "packages", monkeypatch)
    cuda_compiler.choose()
    assert MODE not in os.environ and cuda_compiler.compiler() == "nvrtc"
    assert "cuda" not in sys.modules


def worker() -> None:
    make_handler(BuildSettings(None, None, None, {}))


def user() -> None:
    with compiling(Target(A100)):
        pass


def registered() -> None:
    pruner_ms.unregister()
    pruner_ms.register()


@pytest.mark.parametrize("start", [worker, user, registered])
def test_every_way_into_a_build_chooses(
    start: object, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", install(machine))
    assert callable(start)
    start()
    assert os.environ.get(MODE) == "nvcc"


@pytest.mark.skipif(not IS_S_TIR, reason="nvcc is what TVM took before")
def test_tvm_compiles_by_what_was_chosen(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", install(machine))
    with Target(A100):
        with pytest.raises(RuntimeError, match="NVRTC"):
            nvcc.tvm_callback_cuda_compile("no code")
        cuda_compiler.choose()
        assert bytes(nvcc.tvm_callback_cuda_compile("no code")) == b"built\n"


def test_processes_that_are_started_later_inherit_it(machine: Path) -> None:
    """Among them the workers of stock's builder."""
    code = "import sys; sys.modules['cuda'] = None; import os, pruner_ms; print(os.environ[%r])"
    process = subprocess.run(
        [sys.executable, "-c", code % MODE],
        env={"PATH": install(machine), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout == "nvcc\n", process.stderr


GPU = "NVIDIA H100 PCIe, 550.54"


@pytest.mark.parametrize(
    ("devices", "home", "count"), [(GPU, False, 1), (None, True, 1), (None, False, 0)]
)
def test_doctor_finds_that_nothing_compiles(
    devices: str | None,
    home: bool,
    count: int,
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {"nvidia-smi": devices}
    monkeypatch.setattr(checks, "_output", lambda *command: said.get(command[0]))
    if home:
        monkeypatch.setenv("CUDA_HOME", str(machine))
    problems = checks._compiling(checks.cuda())
    assert len(problems) == count
    assert all("cuda-bindings" in text and "nvcc" in text for text in problems)
    install(machine)
    monkeypatch.setenv("CUDA_HOME", str(machine))
    assert checks._compiling(checks.cuda()) == []


def test_doctor_says_what_compiles(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_output", lambda *command: None)
    monkeypatch.setattr(checks, "self_test", lambda *_: {"ok": False, "stage": "x", "error": "y"})

    def row() -> str:
        text = lines(examine(machine.parent, {}.get))
        return next(line for line in text if line.startswith("CUDA code"))

    assert "nothing here compiles it" in row()
    monkeypatch.setenv("CUDA_HOME", str(machine))
    install(machine)
    assert row().endswith("compiled by nvcc")
    monkeypatch.setenv(MODE, "nvrtc")
    assert "nothing here compiles it" in row()
