"""The best schedules of each task are run again, in turns, and the fastest there comes first."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import pruner_ms
from pruner_ms.integration import finals
from pruner_ms.integration.finals import FINALISTS, Racer, finalists, order, settled
from pruner_ms.integration.records import Ranked
from pruner_ms.integration.relax import TaskInfo
from pruner_ms.tvm_compat.paths import IRModule, Schedule, Target, ms, te, te_workload
from pruner_ms.tvm_compat.schedules import get_block
from pruner_ms.tvm_compat.untuned import untuned as untuned_schedule

CPU = Target({"kind": "llvm", "num-cores": 2})


def test_turns_that_are_slow_for_all_decide_nothing():
    own = np.array([1.2, 1.0, 1.1])
    turns = np.array([1.0, 3.0, 1.5, 0.9])
    assert order(turns[:, None] * own) == [1, 2, 0]


def test_one_lucky_turn_decides_nothing():
    seconds = np.tile([1.0, 1.1], (5, 1))
    seconds[2, 1] = 0.2
    assert order(seconds) == [0, 1]


def test_what_fails_comes_last():
    seconds = np.tile([1.0, 2.0, 3.0], (3, 1))
    seconds[1, 0] = np.nan
    assert order(seconds) == [1, 2, 0]
    assert order(np.full((3, 2), np.nan)) == [0, 1]


def record(seconds, mod=None, unroll=None):
    """A record of a product; `unroll` turns its loops inside out."""
    mod = mod or IRModule({"main": te.create_prim_func(te_workload.matmul(64, 64, 64))})
    schedule = Schedule(mod)
    if unroll is not None:
        i, j, k = schedule.get_loops(get_block(schedule, "C"))
        schedule.reorder(*((k, i, j) if unroll else (j, i, k)))
        schedule.vectorize(j if unroll else schedule.split(i, [None, 1])[1])
    args = ms.arg_info.ArgInfo.from_entry_func(mod, remove_preproc=True)
    workload = ms.database.Workload(mod)
    return ms.database.TuningRecord(schedule.trace, workload, [seconds], CPU, args)


def records(*seconds):
    return [record(one, unroll=False) for one in sorted(seconds)]


def test_the_few_that_are_nearly_the_fastest_are_run_again():
    several = records(*(1.0 + 0.05 * i for i in range(12)))
    assert finalists(several) == several[:FINALISTS]
    assert finalists(records(1.0, *(2.0 + i for i in range(11))))[1:] == []


def test_of_few_trials_none_was_lucky():
    assert finalists(records(*(1.0 + 0.01 * i for i in range(8)))) == []


def test_where_the_untuned_function_is_the_fastest_there_is_nothing_to_see():
    several = records(*(2.0 + 0.01 * i for i in range(12)))
    mod = several[0].workload.mod
    trace = untuned_schedule(mod, CPU).trace
    untuned = ms.database.TuningRecord(trace, several[0].workload, [1.0], CPU, [])
    assert finalists([untuned, *several]) == []
    assert untuned not in finalists([several[0], untuned, *several[1:]])


def task(key, weight=1):
    return TaskInfo(key, weight, 1.0, None, key)


def test_the_fastest_in_turns_comes_first_and_no_record_is_lost():
    several = records(*(1.0 + 0.01 * i for i in range(14)))
    told = []

    def race(some):
        told.append(list(some))
        return np.tile([3.0, 2.0, 1.0, 4.0], (5, 1))

    settled_records = settled([task("a")], Ranked({"a": several}), race, lambda: True).records["a"]
    assert [several.index(one) for one in settled_records] == [2, 1, 0, 3, *range(4, 14)]
    assert told == [several[:4]]


def test_the_heaviest_come_first_while_there_is_time_and_the_lightest_not_at_all():
    several = records(*(1.0 + 0.01 * i for i in range(14)))
    ranked = Ranked({"light": several[:], "heavy": several[:], "none": several[:]})
    tasks = [task("light", 1), task("heavy", 1000), task("none", 0)]
    raced = []

    def race(some):
        raced.append(len(some))
        return np.ones((3, len(some)))

    settled(tasks, ranked, race, lambda: True)
    assert len(raced) == 1  # a thousandth of the network
    raced.clear()
    settled(tasks, ranked, race, lambda: False)
    assert raced == []


def test_schedules_are_run_for_real():
    fast, slow = record(1.0, unroll=True), record(0.9, unroll=False)
    broken = SimpleNamespace(workload=fast.workload, trace=None)
    with Racer(CPU) as race:
        seconds = race([slow, fast])
        assert seconds.shape == (finals._TURNS, 2) and (seconds > 0).all()
        assert order(seconds) == [1, 0]
        assert np.isnan(race([fast, broken])).all()


def test_where_they_cannot_be_run_the_order_of_the_trials_stays(tmp_path, monkeypatch):
    from pruner_ms.integration import pipeline

    def broken(target):
        raise OSError("no worker starts")

    monkeypatch.setattr(pipeline, "Racer", broken)
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(32, 32, 32))})
    result = pruner_ms.tune(mod, target="cpu", trials=4, work_dir=tmp_path, cost_model="none")
    assert "the best schedules were not measured again: no worker starts" in result.notes
    assert result.library is not None and len(result.records.records) == 1


def test_a_run_has_finals(tmp_path, monkeypatch):
    monkeypatch.setattr(finals, "_FEWEST_RECORDS", 2)
    monkeypatch.setattr(finals, "_WITHIN", 1e9)
    raced = []

    def last_first(seconds):
        raced.append(seconds.shape)
        return list(reversed(range(seconds.shape[1])))

    monkeypatch.setattr(finals, "order", last_first)
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(32, 32, 32))})
    result = pruner_ms.tune(mod, target="cpu", trials=6, work_dir=tmp_path, cost_model="none")
    assert raced and result.seconds["finals"] > 0
    (chosen,) = result.records.records.values()
    fastest = min(
        float(one.run_secs[0]) for one in result.database.get_all_tuning_records() if one.run_secs
    )
    assert float(chosen.run_secs[0]) > fastest
