"""Workers that the system does not give: a sentence, nothing left open, and fewer of them do."""

from __future__ import annotations

import errno
import importlib
import os

import pytest

from pruner_ms.errors import EnvironmentFault
from pruner_ms.trials import process
from pruner_ms.tvm_compat import processors


def refused(*_):
    raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


def test_no_worker_at_all_is_one_clear_error_and_leaves_nothing_open(make_pool, monkeypatch):
    pool = make_pool()
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(process, "_started", refused)
    for use in (pool.warm_up, lambda: pool.map([["pid"]])):
        with pytest.raises(
            EnvironmentFault, match=r"Resource temporarily unavailable; raise.*ulimit"
        ):
            use()
    assert sorted(os.listdir("/proc/self/fd")) == sorted(before)
    monkeypatch.undo()
    assert pool.map([["echo", 1]])[0].value == 1


def test_pipes_that_run_out_are_closed_again(make_pool, monkeypatch):
    pool, real, made = make_pool(), os.pipe, []

    def one():
        if made:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(1)
        return real()

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(process.os, "pipe", one)
    with pytest.raises(EnvironmentFault, match="Too many open files"):
        pool.warm_up()
    monkeypatch.undo()
    assert sorted(os.listdir("/proc/self/fd")) == sorted(before)


def test_fewer_workers_do_where_the_system_gives_no_more(make_pool, monkeypatch):
    tries, real = [], process._started

    def once(*args):
        tries.append(1)
        return real(*args) if len(tries) == 1 else refused()

    monkeypatch.setattr(process, "_started", once)
    pool = make_pool(max_workers=3)
    assert [r.value for r in pool.map([["echo", i] for i in range(6)])] == list(range(6))
    assert len(pool.pids()) == 1 < len(tries)
    pool.warm_up()
    assert len(pool.pids()) == 1


def test_workers_are_as_many_as_processors_that_may_be_used(monkeypatch):
    from pruner_ms.trials.builder import PersistentBuilder

    # put back as it was: read again, it is one processor where TVM has bound this thread by now
    monkeypatch.setattr(processors, "_AT_IMPORT", processors._AT_IMPORT)
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda pid: {3, 5, 7})
    monkeypatch.setattr(processors.os, "cpu_count", lambda: 64)
    importlib.reload(processors)
    assert processors.usable() == 3
    builder = PersistentBuilder()
    assert builder.pool.options.max_workers == 3
    builder.close()
    monkeypatch.delattr(processors.os, "sched_getaffinity")
    assert processors.usable() == 3, "TVM binds the thread later: the start counts"
    importlib.reload(processors)
    assert processors.usable() == 64
    with processors.all_usable():
        pass
