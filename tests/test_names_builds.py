"""A build of a tensorised program that lacks this TVM's configuration says so by name."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace

import pytest

import pruner_ms
from pruner_ms.registry import builds
from pruner_ms.registry.patches import Patches
from pruner_ms.search.tasklog import advise
from pruner_ms.tensorcore import compiling
from pruner_ms.tvm_compat import passes, tensor_builds
from pruner_ms.tvm_compat.paths import (
    IS_S_TIR,
    IRModule,
    PassContext,
    Target,
    save_json,
    te,
    te_workload,
)

pytestmark = pytest.mark.skipif(not IS_S_TIR, reason="the options are of 0.24 and later")

A100 = {"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024, "thread_warp_size": 32}


def marked(*marks: str) -> IRModule:
    func = te.create_prim_func(te_workload.matmul(16, 16, 16))
    for n, mark in enumerate(marks):
        func = func.with_attr(f"note{n}", mark)
    return IRModule({"main": func})


class Tirx:
    """What stands for `tvm.tirx`: its `build`, and all else as it is."""

    def __init__(self, fails: bool, real: object) -> None:
        self.real = real
        self.got: list[object] = []

        def build(mod: object, target: object = None, pipeline: object = None) -> str:
            self.got.append(mod)
            if fails:
                raise ValueError("lowering failed")
            return "built"

        self.build = build

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this TVM were 0.27."""
    table = tuple(replace(row, since=(0, 0)) for row in passes.PASS_ROWS)
    monkeypatch.setattr(passes, "PASS_ROWS", table)
    monkeypatch.setattr(tensor_builds, "PASS_ROWS", table)


@pytest.fixture(params=[True, False], ids=["fails", "builds"])
def tirx(request, monkeypatch) -> Iterator[Tirx]:
    fake, patches = Tirx(request.param, sys.modules["tvm.tirx"]), Patches()
    monkeypatch.setitem(sys.modules, "tvm.tirx", fake)
    builds.patch_builds(patches)
    yield fake
    patches.undo()


def told(tirx: Tirx, mod: object, target: object) -> str:
    """What is said of a build: a note on the error, or a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            tirx.build(mod, target=target)
        except ValueError as error:
            notes = getattr(error, "__notes__", [])
            return " ".join([*notes, *(str(w.message) for w in caught)])
    return " ".join(str(w.message) for w in caught)


WMMA, ASYNC = "wmma.accumulator", "software_pipeline_async_stages"


@pytest.mark.usefixtures("rows")
def test_a_tensorised_program_is_told_of(tirx, request):
    fails = "fails" in request.node.name
    target = Target(A100)
    said = told(tirx, marked(WMMA), target)
    assert ("merge_static_smem" in said) is fails
    said = told(tirx, marked(WMMA, ASYNC), target)
    assert "use_async_copy" in said and "compiling(target)" in said
    with compiling(target):
        assert told(tirx, marked(WMMA, ASYNC), target) == ""
    assert told(tirx, marked(WMMA, ASYNC)["main"], target) == said


@pytest.mark.usefixtures("rows")
def test_other_programs_and_targets_are_left_alone(tirx):
    assert told(tirx, marked(), Target(A100)) == ""
    assert told(tirx, marked(WMMA, ASYNC), Target({"kind": "llvm"})) == ""
    assert told(tirx, marked(WMMA, ASYNC), None) == ""


@pytest.mark.usefixtures("rows")
def test_an_architecture_without_asynchronous_copies_is_not_asked_for_them():
    old = Target({**A100, "arch": "sm_75"})
    assert list(passes.config_for(old, True)) == [passes.MERGE_ONCE]
    text = save_json(marked(WMMA, ASYNC))
    assert [row.mark for row in tensor_builds.forgotten(text, old, {})] == [""]
    assert len(tensor_builds.forgotten(text, Target(A100), {})) == 2
    assert tensor_builds.forgotten(text, Target(A100), passes.config_for(Target(A100), True)) == []


@pytest.mark.usefixtures("rows")
def test_compiling_keeps_what_the_context_says():
    with PassContext(opt_level=2, config={"tirx.disable_assert": True}), compiling(Target(A100)):
        current = PassContext.current()
        assert current.opt_level == 2
        assert {k: bool(v) for k, v in dict(current.config).items()} == {
            "tirx.disable_assert": True,
            passes.MERGE_ONCE: True,
            passes.ASYNC_COPY: True,
        }


def test_cuda_cores_copy_as_they_did_when_measured():
    """TVM's asynchronous copies take other elements where a vector has steps in memory."""
    on, cores, tensor = {passes.ASYNC_COPY: True}, marked(ASYNC), marked(WMMA, ASYNC)
    assert tensor_builds.as_measured(cores, {}) is cores
    assert tensor_builds.as_measured(tensor, on) is tensor
    assert ASYNC not in save_json(tensor_builds.as_measured(cores, on))
    both = IRModule({"cores": cores["main"], "tensor": tensor["main"]})
    mod = tensor_builds.as_measured(both, on)
    assert ASYNC not in save_json(mod["cores"]) and ASYNC in save_json(mod["tensor"])
    assert [str(v.name_hint) for v in mod.functions] == [str(v.name_hint) for v in both.functions]


@pytest.mark.usefixtures("rows")
def test_only_copies_that_compiling_would_break_are_left_out(tirx):
    target, cores, tensor = Target(A100), marked(ASYNC), marked(WMMA, ASYNC)
    with PassContext(config={passes.ASYNC_COPY: True}):
        told(tirx, cores, target)
    assert tirx.got[-1] is cores, "that is the user's own wish"
    with compiling(target):
        told(tirx, cores, target)
        told(tirx, tensor, target)
    assert ASYNC not in save_json(tirx.got[-2]) and tirx.got[-1] is tensor
    assert not tensor_builds.inside()


@pytest.mark.usefixtures("rows")
def test_where_no_build_is_watched_no_copies_run_ahead():
    pruner_ms.unregister()
    try:
        with compiling(Target(A100)):
            config = dict(PassContext.current().config)
    finally:
        pruner_ms.register()
    assert passes.ASYNC_COPY not in config and config[passes.MERGE_ONCE]


def test_the_real_build_is_patched_and_put_back():
    pruner_ms.register()
    tirx = sys.modules.get("tvm.tirx")
    if tirx is None:
        pytest.skip("this TVM has no tvm.tirx")
    assert hasattr(tirx.build, "__pruner_ms__")
    pruner_ms.unregister()
    assert not hasattr(tirx.build, "__pruner_ms__")
    pruner_ms.register()


def test_a_search_says_the_cure_of_failed_builds_once(caplog):
    message = (
        f"LocalBuilder: An exception occurred: {tensor_builds.SHARED_DTYPES} the source buffer"
    )
    seen: set[str] = set()
    with caplog.at_level(logging.WARNING):
        advise(logging.getLogger("task"), [None, "another", message, message], seen)
        advise(logging.getLogger("task"), [message], seen)
    (record,) = caplog.records
    assert 'builder="persistent"' in record.message and "compiling(target)" in record.message
