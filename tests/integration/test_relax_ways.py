"""Relax opts in by name: parameters bound or inputs, operators chosen, a database used again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pruner_ms
from pruner_ms import registry
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import ms, tir, tvm
from pruner_ms.tvm_compat.targets import parse_target

nn = pytest.importorskip("tvm.relax.frontend.nn")

NAMES = {
    "strategy": "pruner",
    "cost_model": "random",
    "builder": "persistent",
    "runner": "persistent",
}


class _Net(nn.Module):
    def __init__(self) -> None:
        self.first, self.second = nn.Linear(24, 32), nn.Linear(32, 8)

    def main(self, x: Any) -> Any:
        return self.second(nn.op.relu(self.first(x)))


@pytest.fixture(scope="module")
def net() -> tuple[Any, dict[str, Any], Any]:
    """Fused module, parameters, target."""
    mod, names = _Net().export_tvm({"main": {"x": nn.spec.Tensor((4, 24), "float32")}})
    rng = np.random.default_rng(0)
    device = relax_paths.device_of(parse_target("cpu"))
    params = {
        name: relax_paths.to_device(rng.standard_normal(p.shape).astype("float32"), device)
        for name, p in names
    }
    return mod, params, parse_target("cpu")


def _fused(mod: Any, target: Any) -> Any:
    with target:
        return tvm.relax.get_pipeline("zero")(mod)


def _run(executable: Any, *arrays: Any) -> np.ndarray:
    device = relax_paths.device_of(parse_target("cpu"))
    main = relax_paths.VirtualMachine(executable, device)["main"]
    return np.asarray(main(relax_paths.to_device(arrays[0], device), *arrays[1:]).numpy())


@pytest.mark.heavy
@pytest.mark.parametrize("bound", [True, False], ids=["bound", "inputs"])
def test_parameters_bound_or_not(net: Any, bound: bool, tmp_path: Path) -> None:
    mod, params, target = net
    given, inputs = (params, ()) if bound else ({}, tuple(params.values()))
    # constants are folded into what is tuned: tuned and compiled are the same module
    fused_mod = _fused(relax_paths.bind_params(mod, given) if bound else mod, target)
    database = ms.relax_integration.tune_relax(
        fused_mod, {}, target, str(tmp_path), max_trials_global=8, num_trials_per_iter=2, **NAMES
    )
    tasks = ms.relax_integration.extract_tasks(fused_mod, target)
    assert all(database.has_workload(task.dispatched[0]) for task in tasks)
    with target, database:
        applied = tvm.relax.transform.MetaScheduleApplyDatabase()(fused_mod)
    assert str(applied).count(relax_paths.SCHEDULED_ATTR) >= len(tasks)
    x = np.random.default_rng(1).standard_normal((4, 24)).astype("float32")
    tuned = _run(ms.relax_integration.compile_relax(database, fused_mod, target, {}), x, *inputs)
    plain = _run(tvm.compile(fused_mod, target), x, *inputs)
    np.testing.assert_allclose(tuned, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.heavy
def test_operators_are_chosen_and_nothing_is_measured_twice(net: Any, tmp_path: Path) -> None:
    mod, _, target = net
    pruner_ms.register()
    fused_mod = _fused(mod, target)
    tally = registry.tally()

    def tune(trials: int) -> tuple[Any, int]:
        before = tally.measured
        tuned_database = ms.relax_integration.tune_relax(
            fused_mod,
            {},
            target,
            str(tmp_path),
            max_trials_global=trials,
            num_trials_per_iter=trials,
            op_names=["relu"],
            **NAMES,
        )
        return tuned_database, tally.measured - before

    database, measured = tune(4)
    assert measured == 4
    names = [t.task_name for t in ms.relax_integration.extract_tasks(fused_mod, target)]
    assert sum("relu" in name for name in names) < len(names)
    database, measured = tune(4)
    assert measured == 4
    traces = [str(record.trace) for record in database.get_all_tuning_records()]
    assert len(traces) == len(set(traces)) == 8
    workloads = {ms.utils.shash2hex(r.workload.mod) for r in database.get_all_tuning_records()}
    assert len(workloads) == 1


def test_open_shapes_are_skipped_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    relax, target = tvm.relax, parse_target("cpu")
    tensor = relax.TensorStructInfo if hasattr(relax, "TensorStructInfo") else relax.TensorType
    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor((tir.Var("n", "int64"), 16), "float32"))
    y = relax.Var("y", tensor((24, 16), "float32"))
    weight = relax.const(np.ones((16, 8), "float32"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            both = [builder.emit(relax.op.matmul(one, weight)) for one in (x, y)]
            out = builder.emit_output(tuple(both))
        builder.emit_func_output(out)
    fused_mod = _fused(builder.get(), target)
    # stock fails on the whole module
    database = ms.relax_integration.tune_relax(
        fused_mod, {}, target, str(tmp_path), max_trials_global=4, num_trials_per_iter=2, **NAMES
    )
    assert len(database) >= 1
    assert "is skipped: the shape of " in caplog.text
    library = ms.relax_integration.compile_relax(database, fused_mod, target, {})
    machine = relax_paths.VirtualMachine(library, relax_paths.device_of(target))
    for rows in (3, 5):
        given = [np.ones((n, 16), "float32") for n in (rows, 24)]
        device = relax_paths.device_of(target)
        got = machine["main"](*(relax_paths.to_device(one, device) for one in given))
        assert [part.numpy().shape for part in got] == [(rows, 8), (24, 8)]
        assert all((part.numpy() == 16).all() for part in got)
