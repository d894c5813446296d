"""`pruner_ms.tune` where tuned schedules fail after the tuning: a library is left all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pruner_ms
from pruner_ms.errors import EnvironmentFault, UnsupportedOperatorError
from pruner_ms.tvm_compat.untuned import is_untuned

from .small_run import LLVM, options


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Let the first records that are tried become something else; what was tried is returned."""
    from pruner_ms.integration import finish

    true = finish.replayed

    def change(count: int, change_of: Callable[[Any], Any]) -> list[Any]:
        tried: list[Any] = []

        def replay(record: Any) -> Any:
            tried.append(record)
            mod = true(record)
            return change_of(mod) if len(tried) <= count else mod

        monkeypatch.setattr(finish, "replayed", replay)
        return tried

    return change


@pytest.fixture
def slowest(matmul: Any) -> Any:
    """A runner in which the untuned kernel is the slowest: by its hash, each TVM's, it may win."""
    from pruner_ms.session.parts import normalized
    from pruner_ms.testing.fakes import FakeRunner, hash_latency
    from pruner_ms.tvm_compat.paths import module_key

    plain = module_key(normalized(matmul))
    return FakeRunner(
        lambda mod: 0.02 if module_key(mod) == plain else hash_latency(mod), seconds=0.0
    )


def product(factor: float, wide: int = 16) -> Any:
    """A module that multiplies two matrices, and the result by a number."""
    from pruner_ms.session.parts import normalized
    from pruner_ms.tvm_compat.paths import te

    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, wide), name="B")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((16, wide), lambda i, j: te.sum(factor * a[i, k] * b[k, j], axis=k), name="C")
    return normalized(te.create_prim_func([a, b, c]))


def halved(_mod: Any) -> Any:
    """What a schedule with lost loops would do."""
    return product(0.5)


def uncompilable(_mod: Any) -> Any:
    """A CPU has no thread index."""
    from pruner_ms.tvm_compat.paths import Schedule
    from pruner_ms.tvm_compat.schedules import get_block

    schedule = Schedule(product(1.0))
    schedule.bind(schedule.get_loops(get_block(schedule, "C"))[0], "threadIdx.x")
    return schedule.mod


def unreadable(_mod: Any) -> Any:
    """A trace that this TVM does not take."""
    raise KeyError("no such instruction")


def equal(library: Any) -> bool:
    """Whether a library's kernel multiplies 16 x 16 matrices."""
    from pruner_ms.tvm_compat import relax_paths
    from pruner_ms.tvm_compat.targets import parse_target

    a, b = np.random.default_rng(0).random((2, 16, 16), dtype=np.float32)
    device = relax_paths.device_of(parse_target(LLVM))
    tensors = [relax_paths.to_device(x, device) for x in (a, b, np.zeros_like(a))]
    relax_paths.load_module(str(library))["main"](*tensors)
    return bool(np.allclose(tensors[2].numpy(), a @ b, rtol=1e-5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (halved, "output 2 is wrong in 256 of 256 elements"),
        (uncompilable, ""),
        (unreadable, "it cannot be replayed ('no such instruction')"),
    ],
)
def test_the_next_best_schedule_is_taken(
    matmul: Any, tmp_path: Path, replayed: Any, slowest: Any, change: Any, words: str
) -> None:
    tried = replayed(1, change)
    result = pruner_ms.tune(matmul, work_dir=tmp_path, **options(runner=slowest))
    seconds = [float(record.run_secs[0]) for record in tried]
    assert len(tried) == 2 and seconds == sorted(seconds)
    assert result.latencies() == {"main": seconds[1]}
    assert result.summary["status"] == "complete" and result.left == {}
    (note,) = (n for n in result.notes if n.startswith("main: 1 of its schedules are not used"))
    assert words in note
    assert [(check.name, check.ok) for check in result.checks] == [("main", True)]
    assert equal(result.library)


@pytest.mark.parametrize("change", [halved, unreadable])
def test_a_task_whose_schedules_are_wrong_stays_untuned(
    matmul: Any, tmp_path: Path, replayed: Any, change: Any
) -> None:
    from pruner_ms.integration.finish import TRIES

    tried = replayed(99, change)
    result = pruner_ms.tune(matmul, work_dir=tmp_path, **options())
    assert len(tried) == (TRIES if change is halved else 7)  # the untuned one, too
    assert (result.best, result.latencies(), result.checks) == ({}, {}, [])
    assert list(result.left) == ["main"]
    assert f"main is left untuned: {result.left['main']}" in result.notes
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("untuned", None)
    assert summary["tasks"][0]["untuned"] == result.left["main"]
    assert summary["trials"]["total"] == 6
    assert json.loads((tmp_path / "model.json").read_text())["untuned"] == result.left
    assert equal(result.library)


def test_every_record_may_be_verified_and_the_wrong_ones_are_not_used(
    matmul: Any, tmp_path: Path, replayed: Any, slowest: Any
) -> None:
    tried = replayed(4, halved)
    result = pruner_ms.tune(matmul, work_dir=tmp_path, verify="all", **options(runner=slowest))
    assert [is_untuned(one.trace) for one in tried] == [False] * 6 + [True]
    assert [check.ok for check in result.checks] == [True] * 3
    assert result.latencies() == {"main": float(tried[4].run_secs[0])}
    assert any("main: 4 of its schedules are not used" in note for note in result.notes)
    assert equal(result.library)


@pytest.mark.parametrize("verify", ["off", "best"])
def test_a_kernel_that_does_not_compile_with_the_others_is_left_untuned(
    matmul: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: str
) -> None:
    from pruner_ms.integration import program
    from pruner_ms.tvm_compat.paths import IRModule, te, te_workload

    wide = te.create_prim_func(te_workload.matmul(16, 64, 16))
    mod = IRModule(
        {
            "main": matmul.with_attr("global_symbol", "main"),
            "wide": wide.with_attr("global_symbol", "wide"),
        }
    )
    true = program.replayed

    def replay(record: Any) -> Any:
        mod = true(record)
        return mod if "64" in str(record.workload.mod) else uncompilable(mod)

    monkeypatch.setattr(program, "replayed", replay)
    # what compiles alone and not together takes all of them with it
    result = pruner_ms.tune(mod, work_dir=tmp_path / "together", verify=verify, **options())
    assert result.summary["status"] == "untuned" and equal(result.library)
    assert any("with its schedules TVM does not compile it" in note for note in result.notes)
    # what does not compile alone is the only one
    from pruner_ms.integration import finish

    monkeypatch.setattr(finish, "replayed", replay)
    result = pruner_ms.tune(mod, work_dir=tmp_path / "alone", verify=verify, **options())
    assert result.summary["status"] == "partly untuned" and list(result.left) == ["main"]
    assert list(result.best) == ["wide"] and equal(result.library)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["wrong", "raises", "timing"])
def test_a_network_that_fails_as_a_whole_is_left_untuned(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    from pruner_ms.integration import program
    from pruner_ms.integration.export import run_exported

    # untuned when it is loaded, untuned again, tuned
    true, ran = program.run_model, [0]

    def run(*arguments: Any, **more: Any) -> Any:
        outputs = true(*arguments, **more)
        ran[0] += 1
        if ran[0] == 3 and what == "raises":
            raise MemoryError("no room for the tuned network")
        return [x * 2 for x in outputs] if ran[0] == 3 and what == "wrong" else outputs

    def timed(*arguments: Any) -> Any:
        raise ZeroDivisionError("a clock that stands still")

    monkeypatch.setattr(program, "run_model", run)
    if what == "timing":
        monkeypatch.setattr(program, "compare_timing", timed)
    result = pruner_ms.tune(str(tiny), work_dir=tmp_path, **options())
    words = {"wrong": "output 0 is wrong", "raises": "no room", "timing": "stands still"}[what]
    assert any(n.startswith("the library is untuned") and words in n for n in result.notes)
    assert result.summary["status"] == "untuned" and set(result.left) == {
        task.name for task in result.tasks
    }
    assert (result.best, result.network) == ({}, None)
    assert {(c.name, c.ok) for c in result.checks} == {("network, untuned and onnxruntime", True)}
    x = np.ones((24, 32), np.float32)
    (out,) = run_exported(result.library, [x])
    np.testing.assert_allclose(out.sum(1), 1, rtol=1e-5)


def test_an_untuned_network_that_differs_from_its_reference_is_no_library(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import verify

    true = verify.onnxruntime_outputs

    def other(*arguments: Any) -> Any:
        outputs, why = true(*arguments)
        return [x + 1 for x in outputs or ()], why

    monkeypatch.setattr(verify, "onnxruntime_outputs", other)
    words = r"makes another network of tiny: output 0 .*network, untuned and onnxruntime"
    with pytest.raises(UnsupportedOperatorError, match=words):
        pruner_ms.tune(str(tiny), work_dir=tmp_path, **options())
    assert not (tmp_path / "model.so").exists()


def test_a_reference_that_raises_is_not_compared_with(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import verify

    def raises(*arguments: Any) -> Any:
        raise AttributeError("an onnxruntime of another age")

    monkeypatch.setattr(verify, "onnxruntime_outputs", raises)
    result = pruner_ms.tune(str(tiny), work_dir=tmp_path, **options())
    assert result.library is not None and result.network is not None
    assert result.checks[-1].ok and "of another age" in result.checks[-1].message


def test_what_tvm_compiles_in_no_way_is_said(
    matmul: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration import program

    def fails(*arguments: Any) -> Any:
        raise ValueError("no back end")

    monkeypatch.setattr(program, "compiled", fails)
    with pytest.raises(EnvironmentFault, match="tuned or not"):
        pruner_ms.tune(matmul, work_dir=tmp_path, **options())
    assert json.loads((tmp_path / "summary.json").read_text())["status"] == "not finished"


def test_a_program_without_a_design_space_is_left_untuned(tmp_path: Path) -> None:
    from pruner_ms.tvm_compat.script import parsed

    # C = C / 2 + A B, as BLAS has it: TVM's rules raise
    func = parsed(
        """@T.prim_func
def main(A: T.Buffer((16, 16)), B: T.Buffer((16, 16)), C: T.Buffer((16, 16))):
    S = T.alloc_buffer((16, 16))
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("S"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                S[vi, vj] = T.float32(0)
            S[vi, vj] = S[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(16, 16):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = C[vi, vj] * T.float32(0.5) + S[vi, vj]
"""
    )
    result = pruner_ms.tune(func, work_dir=tmp_path, **options())
    assert result.summary["status"] == "untuned" and list(result.left) == ["main"]
    assert equal(result.library)


def test_private_functions_are_tuned(matmul: Any, tmp_path: Path) -> None:
    from pruner_ms.tvm_compat.paths import IRModule

    mod = IRModule({name: matmul.without_attr("global_symbol") for name in ("main", "other")})
    result = pruner_ms.tune(mod, work_dir=tmp_path, **options(trials=2))
    assert result.best and equal(result.library)
