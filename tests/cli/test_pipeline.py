"""`pruner_ms.tune` in Python: what it takes, and what it gives back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pruner_ms
from pruner_ms.errors import (
    InterruptedTuning,
    NoValidScheduleError,
    OptionError,
)

from .small_run import LLVM, options


def test_a_kernel(matmul: Any, tmp_path: Path) -> None:
    result = pruner_ms.tune(matmul, work_dir=tmp_path, **options())
    assert list(result.best) == ["main"]
    assert result.latencies() == {"main": result.tasks[0].best_s}
    assert result.curve[-1].best_s == result.tasks[0].best_s
    assert len(result.database) == 7  # six trials, and the untuned function
    assert result.tasks[0].untuned_s is not None
    assert result.library == tmp_path / "model.so"
    assert result.network is None
    assert [(check.name, check.ok) for check in result.checks] == [("main", True)]
    assert not result.interrupted
    from pruner_ms.tvm_compat import relax_paths

    a, b = np.random.default_rng(0).random((2, 16, 16), dtype=np.float32)
    device = relax_paths.device_of(result.database.get_all_tuning_records()[0].target)
    tensors = [relax_paths.to_device(x, device) for x in (a, b, np.zeros_like(a))]
    relax_paths.load_module(str(result.library))["main"](*tensors)
    np.testing.assert_allclose(tensors[2].numpy(), a @ b, rtol=1e-5)


def test_a_module_of_kernels_chosen_by_name(matmul: Any, tmp_path: Path) -> None:
    from pruner_ms.tvm_compat.paths import IRModule, te, te_workload

    wide = te.create_prim_func(te_workload.matmul(16, 64, 16))
    mod = IRModule(
        {
            "small": matmul.with_attr("global_symbol", "small"),
            "wide": wide.with_attr("global_symbol", "wide"),
        }
    )
    both = pruner_ms.tune(mod, work_dir=tmp_path / "both", **options())
    assert set(both.best) == {"small", "wide"}
    assert both.program.name == "wide"
    # one name alone, as a text, is not a sequence of characters
    one = pruner_ms.tune(mod, work_dir=tmp_path / "one", ops="small", **options())
    assert set(one.best) == {"small"}
    assert [s.name for s in one.program.skipped] == ["wide"]
    from pruner_ms.tvm_compat.relax_paths import load_module

    for result in (both, one):
        library = load_module(str(result.library))
        assert all(library.implements_function(name) for name in ("small", "wide"))


def test_kernels_that_have_a_schedule_are_in_the_library(matmul: Any, tmp_path: Path) -> None:
    from pruner_ms.tvm_compat.paths import IRModule
    from pruner_ms.tvm_compat.relax_paths import SCHEDULED_ATTR, load_module

    done = matmul.with_attr("global_symbol", "done").with_attr(SCHEDULED_ATTR, True)
    mod = IRModule({"small": matmul.with_attr("global_symbol", "small"), "done": done})
    result = pruner_ms.tune(mod, work_dir=tmp_path, **options(trials=2))
    assert [s.name for s in result.program.skipped] == ["done"]
    library = load_module(str(result.library))
    assert all(library.implements_function(name) for name in ("small", "done"))


def test_why_there_is_nothing_to_tune_is_said(matmul: Any, tiny: Path, tmp_path: Path) -> None:
    from pruner_ms.tvm_compat.paths import IRModule
    from pruner_ms.tvm_compat.relax_paths import SCHEDULED_ATTR

    done = matmul.with_attr("global_symbol", "done").with_attr(SCHEDULED_ATTR, True)
    with pytest.raises(OptionError, match="nothing to tune: done: it already has a schedule"):
        pruner_ms.tune(IRModule({"done": done}), work_dir=tmp_path, **options())
    words = r"nothing to tune: the 2 tasks are those of other shards; use at most 2 parts"
    with pytest.raises(OptionError, match=words):
        pruner_ms.tune(str(tiny), work_dir=tmp_path / "run", shard="4/4", **options())


@pytest.mark.heavy
def test_models_of_one_name_do_not_overwrite_each_other(
    matmul: Any, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration.onnx_model import load_model
    from pruner_ms.tvm_compat.paths import IRModule, te, te_workload

    monkeypatch.chdir(tmp_path)
    first = pruner_ms.tune(matmul, **options(trials=2))
    written = first.library.read_bytes()
    other = te.create_prim_func(te_workload.matmul(8, 8, 24)).with_attr("global_symbol", "main")
    with pytest.raises(OptionError, match=r"holds the run of another model.*--work-dir"):
        pruner_ms.tune(other, **options(trials=2))
    assert first.library.read_bytes() == written
    pruner_ms.tune(matmul, **options(trials=3))
    # other kernels of one module are of the same program
    both = IRModule({"main": matmul, "wide": other.with_attr("global_symbol", "wide")})
    monkeypatch.chdir(tmp_path / "runs")
    for name in ("main", "wide"):
        pruner_ms.tune(both, ops=name, work_dir="here", shared=True, **options(trials=2))
    monkeypatch.chdir(tmp_path)
    # a folder that somebody named may hold several
    pruner_ms.tune(other, work_dir="runs/main", **options(trials=2))
    assert first.library.read_bytes() != written
    assert load_model(str(tiny)).name == "tiny"


def test_every_record_can_be_verified(matmul: Any, tmp_path: Path) -> None:
    result = pruner_ms.tune(matmul, work_dir=tmp_path, verify="all", **options(trials=3))
    assert [check.ok for check in result.checks] == [True] * 4  # the untuned function's, too


def test_no_valid_schedule(matmul: Any, tmp_path: Path) -> None:
    from pruner_ms.testing.fakes import FakeBuilder

    with pytest.raises(NoValidScheduleError, match="no valid schedule in 6 trials") as caught:
        pruner_ms.tune(matmul, work_dir=tmp_path, **options(builder=FakeBuilder(1.0)))
    assert caught.value.exit_code == 3
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "no valid schedule"
    assert summary["trials"]["failed"] == 6
    assert summary["library"] == str(tmp_path / "model.so") in str(caught.value)
    assert summary["tasks"][0]["untuned"] == "no valid schedule in 6 trials"
    # the machine may have been at fault: nothing of it is taken for known the next time
    result = pruner_ms.tune(matmul, work_dir=tmp_path, **options(trials=12))
    assert result.best


def test_stopped_before_anything_was_measured(matmul: Any, tmp_path: Path) -> None:
    import threading

    stop = threading.Event()
    stop.set()
    with pytest.raises(InterruptedTuning, match="goes on from here") as caught:
        pruner_ms.tune(matmul, work_dir=tmp_path, stop=stop, **options())
    assert caught.value.exit_code == 130


def test_a_dry_run_writes_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = pruner_ms.tune(str(tiny), LLVM, dry_run=True)
    assert [t.name for t in result.tasks] == ["fused_matmul_relu", "softmax"]
    assert result.best == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.heavy
def test_a_relax_module_and_the_default_work_dir(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pruner_ms.integration.onnx_model import load_model

    monkeypatch.chdir(tmp_path)
    mod = load_model(str(tiny)).mod
    result = pruner_ms.tune(mod, **options(ops=("softmax",)))
    assert result.library == tmp_path / "runs" / "model" / "model.so"
    assert [check.name for check in result.checks] == ["softmax", "network, tuned and untuned"]
    assert all(check.ok for check in result.checks)
    assert result.network is not None
    assert result.network.speedup > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": 3}, "a int cannot be tuned"),
        ({"trails": 3}, "no option 'trails'"),
        ({"shapes": {"x": (1,)}}, "kernels have no inputs to give shapes to"),
        ({"ops": ("nothing",)}, "'nothing', which is part of no task's name; tasks: main"),
        ({"ops": ("",)}, "give parts of task names"),
    ],
)
def test_what_it_does_not_take(
    matmul: Any, tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    given = {"model": matmul, **options(), **arguments}
    with pytest.raises(OptionError, match=words):
        pruner_ms.tune(given.pop("model"), work_dir=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_without_torch_or_xgboost_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from pruner_ms.integration import options as module

    there = {"torch": object(), "xgboost": object()}
    monkeypatch.setattr(module, "find_spec", there.get)
    assert module.TuneOptions().config(1).cost_model == "pacm"
    assert module.TuneOptions(strategy="evolutionary").config(1).cost_model == "xgb"
    assert module.TuneOptions().notes() == []
    there.clear()
    assert module.TuneOptions().config(1).cost_model == "none"
    assert "torch is not installed" in module.TuneOptions().notes()[0]
    assert module.TuneOptions(strategy="evolutionary").config(1).cost_model == "random"
    assert module.TuneOptions(effort="quick").config(10).budget.trials == 160


def test_a_strategy_that_is_an_object_of_ours_gets_what_its_name_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pruner_ms.integration import options as module
    from pruner_ms.tvm_compat.paths import Target, ms

    there = {"torch": object()}
    monkeypatch.setattr(module, "find_spec", there.get)
    ours = module.TuneOptions(strategy=pruner_ms.PrunerSearch(steps=1))
    assert ours.config(1).cost_model == "pacm"
    named = module.TuneOptions().config(1, Target(LLVM)).cost_model
    assert ours.config(1, Target(LLVM)).cost_model == named
    stock = module.TuneOptions(strategy=ms.search_strategy.ReplayTrace())
    assert stock.config(1).cost_model == "random"
    there.clear()
    assert ours.config(1).cost_model == "none"
    assert ours.notes() == module.TuneOptions().notes() != stock.notes()


def test_a_run_starts_from_packaged_weights_unless_it_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from pruner_ms.integration.options import TuneOptions
    from pruner_ms.model import packaged
    from pruner_ms.tvm_compat.paths import Target

    def chosen(target: Any = LLVM, **said: Any) -> Any:
        options = TuneOptions(**said)
        model = options.config(1, Target(target)).cost_model
        assert options.facts(Target(target))["cost_model"] == model
        return model

    assert chosen() == "moa-pacm"
    cuda = {"kind": "cuda", "arch": "sm_61", "max_threads_per_block": 1024}
    assert chosen(cuda) == "pacm", "there are none for it"
    assert chosen(weights="none") == chosen(weights="packaged") == "pacm"
    assert chosen(model_mode="online") == chosen(cost_model="pacm") == "pacm"
    assert chosen(strategy="evolutionary") != "moa-pacm"
    with pruner_ms.defaults(weights="none"):
        assert chosen() == "pacm", "that is what holds for a model by name"
    assert chosen() == "moa-pacm"
    monkeypatch.setattr(packaged, "FOLDER", tmp_path)
    assert chosen() == "pacm"


@pytest.mark.parametrize("shard", [None, "1/1"])
def test_what_was_measured_elsewhere_is_not_run_here(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: str | None
) -> None:
    from pruner_ms.integration import pipeline, verify
    from pruner_ms.integration.release import release
    from pruner_ms.report.tables import network_line, verification_line

    def crash(*arguments: object) -> None:
        raise AssertionError("another machine's instructions were run here")

    given = options()
    fake = given.pop("runner")
    monkeypatch.setattr(pipeline, "RemoteRunner", lambda address: fake)
    monkeypatch.setattr(verify, "_run", crash)
    result = pruner_ms.tune(
        str(tiny), rpc="127.0.0.1:9190/board", work_dir=tmp_path / "run", shard=shard, **given
    )
    said = [note for note in result.notes if "remote device" in note]
    assert len(said) == 1 and "nothing was run, verified or timed here" in said[0]
    assert (result.checks, result.network) == ([], None)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["network"], summary["verification"]) == (None, None)
    assert network_line(summary["network"]) == verification_line(summary["verification"]) == ""
    if shard is not None:
        return
    facts = json.loads((tmp_path / "run" / "model.json").read_text())
    assert facts["latency_before"] is facts["latency_after"] is None
    assert facts["verified"] == []
    told = release(tmp_path / "run", tmp_path / "out.so").checked
    assert told == "not run (it is for the device behind 127.0.0.1:9190/board)"


def test_names_of_operators_are_texts() -> None:
    from pruner_ms.integration.options import TuneOptions

    assert TuneOptions(ops="conv2d").ops == ("conv2d",)  # type: ignore[arg-type]
    assert TuneOptions(ops=["a", "b"]).ops == ("a", "b")  # type: ignore[arg-type]
    assert TuneOptions().ops is None
    for wrong in (3, (3,), ("",)):
        with pytest.raises(OptionError, match="give parts of task names"):
            TuneOptions(ops=wrong)  # type: ignore[arg-type]
