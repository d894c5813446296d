"""Candidates are linked without the compiler, and by TVM where that does not do."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tvm")

from pruner_ms.trials import link
from pruner_ms.trials.build_job import default_build, export
from pruner_ms.tvm_compat.paths import IRModule, Target, runtime, te, te_workload

needs_linker = pytest.mark.skipif(shutil.which("ld") is None, reason="no linker")


def objects(folder: Path, source: str, name: str = "lib0.o") -> str:
    """An archive of one object that is made of C."""
    code = folder / "code.c"
    code.write_text(source)
    subprocess.run(["gcc", "-c", "-fPIC", str(code), "-o", str(folder / "code.o")], check=True)
    archive = folder / "candidate.tar"
    with tarfile.open(archive, "w") as out:
        out.add(folder / "code.o", arcname=name)
    return str(archive)


class Loader:
    """TVM's loader as far as libraries go (it binds late); what it was given is noted."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, path: str) -> Any:
        self.asked.append(Path(path).suffix)
        return "by TVM" if path.endswith(".tar") else runtime.load_module(path)


@needs_linker
def test_a_candidate_computes_the_same(tmp_path: Path) -> None:
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(16, 16, 16))})
    target = Target({"kind": "llvm", "num-cores": 1})
    with target:
        path = export(default_build(mod, target, None), tmp_path)
    asked: list[str] = []

    def load_module(name: str) -> Any:
        asked.append(name)
        return runtime.load_module(name)

    built = link.load(path, load_module)
    (library,) = asked
    assert library.endswith(".so") and not Path(library).exists(), "nothing stays behind"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["candidate.tar"]
    assert built.implements_function("main")


@needs_linker
def test_an_open_symbol_goes_tvms_way(tmp_path: Path) -> None:
    loader = Loader()
    source = "extern int not_anywhere(void); int f(void) { return not_anywhere(); }"
    assert link.load(objects(tmp_path, source), loader) == "by TVM"
    assert loader.asked == [".so", ".tar"]


@needs_linker
@pytest.mark.parametrize("name", ["lib0.cc", "../out.o"])
def test_other_archives_go_tvms_way(tmp_path: Path, name: str) -> None:
    loader, inside = Loader(), tmp_path / "inside"
    inside.mkdir()
    assert link.load(objects(inside, "int f(void) { return 3; }", name), loader) == "by TVM"
    assert loader.asked == [".tar"] and not (tmp_path / "out.o").exists()


def test_no_archive_no_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"no archive")
    loader = Loader()
    assert link.load(str(broken), loader) == "by TVM"
    monkeypatch.setattr(link, "_linker", lambda: None)
    assert link.load(str(broken), loader) == "by TVM"
    assert link.linked(str(broken), tmp_path) is None
