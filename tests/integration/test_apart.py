"""Schedules that are tried in a process apart: what they do there is no matter to this one."""

from __future__ import annotations

import os

import pytest

from pruner_ms.errors import EnvironmentFault
from pruner_ms.integration import apart, program
from pruner_ms.integration.options import TuneOptions
from pruner_ms.tvm_compat.paths import IRModule
from pruner_ms.tvm_compat.script import parsed

PLAIN = """@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((16,))):
    for i in range(16):
        with T.sblock("B"):
            vi = T.axis.spatial(16, i)
            T.reads(A[vi])
            T.writes(B[vi])
            B[vi] = A[vi] + T.float32(1)
"""
STORE = "            B[vi] = A[vi] + T.float32(1)\n"

BAD = {
    "crash": ('T.evaluate(T.call_extern("int32", "abort"))', "the worker was ended by SIGABRT"),
    "endless": ('T.evaluate(T.call_extern("int32", "sleep", 60))', "killed after"),
    "wrong": ("B[vi] = T.float32(0)", "output 1 is wrong in 16 of 16"),
    "unknown": (
        'T.evaluate(T.call_packed("nobody.knows.this", A[vi]))',
        "nobody.knows.this",
    ),
}


@pytest.fixture(scope="module")
def tasks(target):
    return program.load(parsed(PLAIN), target, TuneOptions(), None).tasks


def module_of(line):
    text = PLAIN.replace(STORE, STORE + f"            {line}\n") if line else PLAIN
    return IRModule({"main": parsed(text).with_attr("global_symbol", "main")})


def test_what_crashes_or_does_not_end_is_found_out(tasks, target, monkeypatch):
    monkeypatch.setattr(apart, "LIMIT_SECONDS", 15.0)
    (task,) = tasks
    with apart.Comparer(target, tasks, 0, False, apart=True) as judge:
        monkeypatch.setattr(apart, "uses_tf32", lambda record: False)
        for line, words in BAD.values():
            check = judge(task, None, module_of(line))
            assert not check.ok and words in check.message, (line, check)
        assert judge(task, None, module_of("")).ok
        (worker,) = judge._pool.pids()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_where_there_is_no_worker_it_is_compared_in_this_process(tasks, target, monkeypatch):
    def none(jobs):
        raise EnvironmentFault("no trial worker can be started")

    with apart.Comparer(target, tasks, 0, False, apart=True) as judge:
        monkeypatch.setattr(apart, "uses_tf32", lambda record: False)
        monkeypatch.setattr(judge._pool, "map", none)
        assert judge(tasks[0], None, module_of("")).ok
        assert "output 1 is wrong" in judge(tasks[0], None, module_of(BAD["wrong"][0])).message


def test_what_raises_in_this_process_ends_nothing(tasks, target, monkeypatch):
    monkeypatch.setattr(apart, "uses_tf32", lambda record: False)
    with apart.Comparer(target, tasks, 0, False, apart=False) as judge:
        check = judge(tasks[0], None, module_of(BAD["unknown"][0]))
        assert not check.ok and "nobody.knows.this" in check.message
