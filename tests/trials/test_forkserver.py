"""Workers forked off one process; that they behave as others do is in test_pool, test_orphans."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import psutil
import pytest

pytest.importorskip("tvm")

from pruner_ms.errors import EnvironmentFault
from pruner_ms.trials import forkserver
from pruner_ms.trials.builder import PersistentBuilder
from pruner_ms.trials.jobs import Answer
from pruner_ms.trials.pool import Pool
from pruner_ms.trials.runner import PersistentRunner
from tests.trials.conftest import alive, fakes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux only")


@pytest.fixture(autouse=True)
def _own_nursery(monkeypatch):
    """What one test makes fail is not held against the next."""
    monkeypatch.setattr(forkserver, "_shared_server", forkserver._Shared())


def one(pool, *job):
    (result,) = pool.map([list(job)])
    return result.value


def wait_for(true, seconds=10.0):
    end = time.monotonic() + seconds
    while not (answer := true()) and time.monotonic() < end:
        time.sleep(0.02)
    assert answer


def test_two_pools_have_one_nursery_that_imports_tvm_and_not_torch(make_pool):
    first, second = make_pool(preloaded=True), make_pool(preloaded=True)
    assert one(first, "parent") == one(second, "parent") != os.getpid()
    assert one(first, "imported", "tvm") and not one(first, "imported", "torch")
    assert one(make_pool(), "parent") == os.getpid()
    assert not one(make_pool(), "imported", "tvm")


def test_workers_of_builder_and_runner_are_forked_unless_user_code_runs():
    pools = [PersistentBuilder().pool, PersistentRunner().pool]
    theirs = PersistentBuilder(initializer=os.getpid).pool
    assert [pool.options.preloaded for pool in (*pools, theirs)] == [True, True, False]
    for pool in (*pools, theirs):
        pool.close()


def test_the_nursery_ends_with_the_last_pool(make_pool):
    pool = make_pool(preloaded=True)
    above = one(pool, "parent")
    assert psutil.pid_exists(above)
    pool.close()
    assert not psutil.pid_exists(above)
    assert one(make_pool(preloaded=True), "parent") != above


def test_variables_of_the_moment_reach_a_worker(make_pool, monkeypatch):
    monkeypatch.setenv("PRUNER_MS_BEFORE", "1")
    held = make_pool(preloaded=True)
    above = one(held, "parent")
    monkeypatch.setenv("PRUNER_MS_AFTER", "2")
    monkeypatch.delenv("PRUNER_MS_BEFORE")
    pool = make_pool(preloaded=True)
    assert one(pool, "parent") == above
    assert one(held, "variable", "PRUNER_MS_BEFORE") == "1"
    assert one(pool, "variable", "PRUNER_MS_BEFORE") is None
    assert one(pool, "variable", "PRUNER_MS_AFTER") == "2"
    assert one(pool, "variable", "TMPDIR") == str(pool.home / "tmp")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="TVM starts no more threads than processors")
def test_tvm_starts_the_threads_that_are_asked_for_when_a_worker_is_born(make_pool, monkeypatch):
    def factory():
        from pruner_ms.tvm_compat.paths import get_global_func

        return lambda: int(get_global_func("runtime.NumThreads")())

    held, counts = make_pool(preloaded=True), []
    one(held, "pid")
    for threads in ("1", "2"):
        monkeypatch.setenv("TVM_NUM_THREADS", threads)
        pool = Pool(factory, (), held.options)
        counts.append(one(pool))
        pool.close()
    assert counts == [1, 2]


def test_temporary_files_go_where_the_pool_is(make_pool):
    def factory():
        import tempfile

        return tempfile.gettempdir

    pool = Pool(factory, (), make_pool(preloaded=True).options)
    assert one(pool) == str(pool.home / "tmp")
    pool.close()


def test_relative_paths_are_those_of_the_moment(make_pool, monkeypatch, tmp_path):
    def factory():
        return os.getcwd

    held = make_pool(preloaded=True)
    one(held, "pid")
    monkeypatch.chdir(tmp_path)
    pool = Pool(factory, (), held.options)
    assert one(pool) == str(tmp_path)
    pool.close()


def test_what_forks_has_one_thread(make_pool):
    """A lock that another thread holds at a fork would stay held in the worker for ever."""
    assert one(make_pool(preloaded=True), "threads") == 1


@pytest.mark.heavy
def test_a_killed_nursery_takes_its_workers_along_and_their_jobs_are_done_again(make_pool):
    pool = make_pool(max_workers=1, preloaded=True)
    above, first = one(pool, "parent"), one(pool, "pid")
    timer = threading.Timer(0.5, os.kill, (above, signal.SIGKILL))
    timer.start()
    assert pool.map([["sleep", 2.0], ["parent"]]) == [Answer(None), Answer(os.getpid())]
    wait_for(lambda: not alive(first))


@pytest.mark.parametrize(
    "boot",
    [
        "raise SystemExit(3)",
        # no process to be had, however often it is asked
        forkserver._BOOT.replace(
            "from pruner_ms.trials.forking", "import os; os.fork = lambda: open('/no/such/file'); "
            "from pruner_ms.trials.forking"
        ),
    ],
    ids=["ends", "cannot fork"],
)  # fmt: skip
def test_a_nursery_that_has_no_workers_to_give_is_no_failure(make_pool, monkeypatch, boot):
    monkeypatch.setattr(forkserver, "_BOOT", boot)
    pool = make_pool(max_workers=4, preloaded=True)
    pool.warm_up()
    assert pool.map([["parent"]] * 8) == [Answer(os.getpid())] * 8


def test_a_nursery_that_is_stopped_is_given_up(make_pool, monkeypatch):
    held = make_pool(max_workers=1, preloaded=True)
    above = one(held, "parent")
    os.kill(above, signal.SIGSTOP)
    try:
        monkeypatch.setattr("pruner_ms.trials.process._START_SECONDS", 1.0)
        pool = make_pool(max_workers=1, preloaded=True)
        pool.warm_up()
        monkeypatch.setattr("pruner_ms.trials.process._START_SECONDS", 60.0)
        assert one(pool, "parent") == os.getpid()
    finally:
        os.kill(above, signal.SIGCONT)


def test_a_pool_that_is_forgotten_while_another_listens(make_pool):
    """Its finalizer runs wherever the collector does, also inside the handle on the nursery."""
    pool = make_pool(preloaded=True)
    one(pool, "pid")
    (held,) = pool._fork_servers
    held._socket = _Dropping(held._socket, [Pool(fakes.make_factory(), (), pool.options)])
    one(held._socket.pools[0], "pid")
    held._socket.armed = True
    assert one(pool, "echo", 3) == 3
    assert held._socket.pools == []


class _Dropping:
    """A socket at which the last reference to a pool is lost when it is read."""

    def __init__(self, sock, pools):
        self.sock, self.pools, self.armed = sock, pools, False

    def recv(self, *args):
        if self.armed:
            self.pools.clear()
        return self.sock.recv(*args)

    def __getattr__(self, name):
        return getattr(self.sock, name)


def test_a_setup_that_raises_is_told_as_ever(make_pool):
    def bad_factory():
        raise LookupError("no function of that name")

    pool = Pool(bad_factory, (), make_pool(preloaded=True).options)
    with pytest.raises(EnvironmentFault, match="no function of that name"):
        pool.map([[]])
    pool.close()


def test_a_worker_is_replaced_in_no_time(make_pool):
    pool = make_pool(max_workers=1, preloaded=True)
    first = one(pool, "pid")
    start = time.perf_counter()
    pool.map([["exit"]])
    assert one(pool, "pid") != first
    assert time.perf_counter() - start < 1.0


def test_workers_asked_for_before_the_nursery_is_ready_come_all(make_pool):
    pool = make_pool(max_workers=24, preloaded=True)
    pool.warm_up()
    answers = pool.map([["sleep", 0.2]] * 24 + [["parent"]] * 24)
    parents = {answer.value for answer in answers[24:]}
    assert len(parents) == 1 and os.getpid() not in parents
    assert len(pool.pids()) == 24


def test_closing_before_a_worker_is_born_leaves_nothing(make_pool):
    held = make_pool(max_workers=1, preloaded=True)
    above = psutil.Process(one(held, "parent"))
    pool = make_pool(max_workers=3, preloaded=True)
    above.suspend()
    try:
        pool.warm_up()
        pool.close()
    finally:
        above.resume()
    wait_for(lambda: all(forkserver.shared().has_status_of(number) for number in (1, 2, 3)), 60.0)
    assert [child.pid for child in above.children()] == held.pids()


def test_two_threads_with_a_pool_each(make_pool):
    pools = [make_pool(preloaded=True) for _ in range(4)]
    replies = {}

    def use(i):
        replies[i] = [one(pools[i], "echo", n) for n in range(20)] + [one(pools[i], "parent")]

    threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answers[:-1] for answers in replies.values()] == [list(range(20))] * 4
    assert len({answers[-1] for answers in replies.values()}) == 1
