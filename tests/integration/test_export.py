"""An exported library runs without this package, and its metadata belongs to it."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from pruner_ms.errors import EnvironmentFault, ModelFileError, WorkDirError
from pruner_ms.integration.export import (
    _without_scope_warnings,
    describe,
    export,
    read_metadata,
    run_exported,
)
from pruner_ms.integration.relax import build_scheduled, run_model
from pruner_ms.integration.verify import random_inputs
from pruner_ms.tvm_compat.paths import IRModule, Target, te


@pytest.fixture(scope="module")
def exported(net, target, tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / "sub" / "model.so"
    facts = describe(
        target, net.loaded.inputs, net.loaded.outputs, model_hash="abc", latency_after=1e-3
    )
    return export(net.plain, path, facts)


@pytest.mark.heavy
def test_the_library_runs_in_a_process_without_this_package(exported, net, target):
    inputs = random_inputs(net.loaded.inputs, np.random.default_rng(0))
    alone = run_exported(exported.library, inputs)
    assert np.array_equal(alone[0], run_model(net.plain, target, inputs)[0])


def test_the_metadata_says_what_it_is(exported, net):
    facts = read_metadata(exported.library)
    assert facts["target"]["mcpu"] == "x86-64-v3"
    assert facts["inputs"] == [{"name": "x", "shape": [1, 3, 12, 12], "dtype": "float32"}]
    assert facts["outputs"] == [{"name": "y", "shape": [1, 24], "dtype": "float32"}]
    assert facts["model_hash"] == "abc"
    assert facts["latency_after"] == 1e-3
    assert "apache-tvm" in facts["versions"]
    assert exported.size == exported.library.stat().st_size
    assert [p.name for p in sorted(exported.library.parent.iterdir())] == ["model.json", "model.so"]


def test_another_library_under_the_metadata_is_refused(exported, tmp_path):
    library = tmp_path / "model.so"
    library.write_bytes(exported.library.read_bytes() + b"\0")
    with pytest.raises(ModelFileError, match=r"model\.json does not exist"):
        read_metadata(library)
    facts = json.loads(exported.metadata.read_text())
    (tmp_path / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ModelFileError, match=r"is not the library that model\.json describes"):
        read_metadata(library)
    (tmp_path / "model.json").write_text(json.dumps({**facts, "format": 99}))
    with pytest.raises(ModelFileError, match="is not format 1"):
        read_metadata(library)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(ModelFileError, match="is damaged"):
        read_metadata(library)


def test_where_nothing_can_be_written_is_named(net, target, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WorkDirError, match=r"cannot write .*file.*model\.so"):
        export(net.plain, tmp_path / "file" / "model.so", describe(target, (), ()))


def test_what_others_print_while_linking_is_kept(capfd):
    with _without_scope_warnings():
        os.write(2, b"[1] x.cc:1: Warning: Scope Saving:\nsomething else\n")
    assert capfd.readouterr().err == "something else\n"


def test_a_library_that_does_not_end_is_refused(exported, net):
    inputs = random_inputs(net.loaded.inputs, np.random.default_rng(0))
    with pytest.raises(ModelFileError, match=r"model\.so does not end: it was stopped after 0\.01"):
        run_exported(exported.library, inputs, timeout=0.01)


def small(target):
    data = te.placeholder((4,), name="A")
    func = te.create_prim_func([data, te.compute((4,), lambda i: data[i] + 1.0, name="B")])
    return build_scheduled(IRModule({"add": func.with_attr("global_symbol", "add")}), target)


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError, TypeError])
def test_a_compiler_that_is_not_there_is_no_fault_of_the_disk(error, target, tmp_path):
    class Unlinkable:
        def export_library(self, _path):
            raise error(2, "No such file or directory: 'aarch64-linux-gnu-g++'")

    with pytest.raises(
        EnvironmentFault, match=r"TVM cannot link .*aarch64-linux-gnu-g\+\+"
    ) as caught:
        export(Unlinkable(), tmp_path / "model.so", describe(target, (), ()))
    assert not isinstance(caught.value, WorkDirError)
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_of_that_name_that_is_missing(target, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler-g++")
    with pytest.raises(EnvironmentFault, match="TVM cannot link"):
        export(small(target), tmp_path / "model.so", describe(target, (), ()))


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", None])
def test_a_failed_link_names_the_compiler_that_is_needed(triple, tmp_path, monkeypatch):
    config = {"kind": "llvm", "num-cores": 2}
    target = Target({**config, "mtriple": triple} if triple else config)
    built = small(target)
    if triple is None:
        monkeypatch.setenv("CXX", "false")
    with pytest.raises(EnvironmentFault) as caught:
        export(built, tmp_path / "model.so", describe(target, (), ()))
    cross = f"the library is for {triple}, and this machine is"
    told = str(caught.value)
    assert (cross in told) == (f"such as {triple}-g++" in told) == (triple is not None)
    assert ("put a C++ compiler (g++) on PATH" in told) == (triple is None)
    assert triple is None or "Command line" not in told
    assert not (tmp_path / "model.so").exists()
