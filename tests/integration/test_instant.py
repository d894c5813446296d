"""`effort="instant"`: a library without a trial."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import pruner_ms
from pruner_ms.errors import OptionError
from pruner_ms.integration.instant import drafted
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import load
from pruner_ms.integration.records import Ranked
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import IRModule, Target, te, te_workload

CPU = Target({"kind": "llvm", "num-cores": 2})
QUIET = {"cost_model": "none"}


def product(n=64):
    return IRModule({"main": te.create_prim_func(te_workload.matmul(n, n, n))})


def test_nothing_is_measured_and_the_library_is_scheduled_and_right(tmp_path):
    result = pruner_ms.tune(product(), CPU, work_dir=tmp_path, effort="instant", **QUIET)
    (record,) = result.records.records.values()
    assert len(record.trace.insts) > 5
    assert result.database is None and not (tmp_path / "database_tuning_record.json").exists()
    assert [(check.name, check.ok) for check in result.checks] == [("main", True)]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["trials"]["total"] == 0 and summary["options"]["effort"] == "instant"
    assert summary["tasks"][0]["delivered"] == "tuned" and summary["tasks"][0]["best_s"] is None
    a, b = np.random.default_rng(0).random((2, 64, 64), dtype=np.float32)
    device = relax_paths.device_of(CPU)
    tensors = [relax_paths.to_device(x, device) for x in (a, b, np.zeros_like(a))]
    relax_paths.load_module(str(result.library))["main"](*tensors)
    np.testing.assert_allclose(tensors[2].numpy(), a @ b, rtol=1e-4)


@pytest.mark.heavy
def test_it_is_what_a_search_measures_first(tmp_path):
    options = {"work_dir": tmp_path / "tuned", "trials": 1, "seed": 3, **QUIET}
    instant = pruner_ms.tune(
        product(), CPU, work_dir=tmp_path / "instant", effort="instant", seed=3, **QUIET
    )
    pruner_ms.tune(product(), CPU, **options)
    lines = (tmp_path / "tuned" / "database_tuning_record.json").read_text().splitlines()
    first = [json.loads(line)[1][0] for line in lines]
    (record,) = instant.records.records.values()
    chosen = json.loads(json.dumps(_plain(record.trace.as_json())))
    assert [one[0] for one in chosen[0]] in [[one[0] for one in trace[0]] for trace in first]


def _plain(value):
    from pruner_ms.tvm_compat.paths import plain

    return plain(value)


def test_what_was_measured_before_is_used(tmp_path):
    tuned = pruner_ms.tune(product(), CPU, work_dir=tmp_path, trials=4, **QUIET)
    again = pruner_ms.tune(product(), CPU, work_dir=tmp_path, effort="instant", **QUIET)
    assert again.latencies() == tuned.latencies()


@pytest.mark.parametrize(
    "option",
    [{"trials": 8}, {"time": "1m"}, {"patience": 2}, {"rpc": "127.0.0.1:9190/cpu"}],
    ids=lambda option: next(iter(option)),
)
def test_what_belongs_to_measuring_is_refused(option):
    (name,) = option
    with pytest.raises(OptionError, match=f"{name}=.*instant.*measures nothing"):
        TuneOptions(effort="instant", **option)


def test_only_our_strategy_has_a_draft():
    with pytest.raises(OptionError, match=r"evolutionary.*only pruner"):
        TuneOptions(effort="instant", strategy="evolutionary")


def test_one_bad_task_is_left_and_the_others_are_drafted(monkeypatch):
    mod = IRModule(
        {
            name: te.create_prim_func(te_workload.matmul(n, n, n)).with_attr("global_symbol", name)
            for name, n in (("first", 16), ("second", 32))
        }
    )
    options = TuneOptions(effort="instant", **QUIET)
    program = load(mod, CPU, options, None)
    from pruner_ms.integration import instant

    first = instant._first

    def failing(task, *args):
        if task.name == "first":
            raise RuntimeError("no way")
        return first(task, *args)

    monkeypatch.setattr(instant, "_first", failing)
    config = options.config(2, CPU)
    session, ranked = drafted(program.tasks, CPU, config, Ranked({}), threading.Event())
    assert session.failures == {"first": "it cannot be drafted (no way)"}
    assert len(ranked.records) == 1


def test_stopped_it_drafts_no_more():
    stop = threading.Event()
    stop.set()
    options = TuneOptions(effort="instant", **QUIET)
    program = load(product(), CPU, options, None)
    session, ranked = drafted(program.tasks, CPU, options.config(1, CPU), Ranked({}), stop)
    assert session.interrupted and ranked.records == {}
