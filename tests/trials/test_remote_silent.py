"""Trackers and servers that say nothing: nobody waits for ever, and no candidate is blamed."""

from __future__ import annotations

import socket
import struct
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from pruner_ms.errors import EnvironmentFault
from pruner_ms.trials import remote
from pruner_ms.trials.address import Address
from pruner_ms.trials.remote import (
    RemoteRunner,
    RetriedFuture,
    end_pool,
    is_remote,
    retrying,
    servers,
)
from pruner_ms.tvm_compat.paths import ms
from tests.support.rpc import HOST

TIMEOUT = "RPCRunner: Timeout, killed after 1 seconds"
RESET = "RPCRunner: An exception occurred\n[Errno 104] Connection reset by peer"
UNSERVED = "RPCRunner: An exception occurred\nRuntimeError: Cannot request cpu after 5 retry"
EXPIRED = (
    "RPCRunner: An exception occurred\nRPCSessionTimeoutError: Your 30.0s session has expired\n"
    "InternalError: Channel closes before we get needed bytes"
)
CANDIDATE = ms.runner.RunnerInput("no such artifact.tar", "cpu", [])


def _answer(sock, queue):
    """What a tracker says to one caller; a server is asked for in vain."""
    from tvm.rpc import base

    with sock, suppress(OSError):
        base.recvall(sock, 4)
        sock.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        while True:
            if base.recvjson(sock)[0] == base.TrackerCode.SUMMARY:
                info = [{"key": "server:cpu", "addr": [HOST, 1]}]
                told = {"server_info": info, "queue_info": {"cpu": queue}}
                base.sendjson(sock, [base.TrackerCode.SUCCESS, told])


@contextmanager
def tracker(queue):
    """The address of a tracker that has one server and never gives it away; None: it is silent."""
    with socket.create_server((HOST, 0)) as listener:

        def serve():
            held = []
            with suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    held.append(sock)
                    if queue is not None:
                        threading.Thread(target=_answer, args=(sock, queue), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield Address(HOST, listener.getsockname()[1], "cpu")
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for a caller, as `close` does not


def future(*messages):
    """Futures of results with these errors, as `RemoteRunner` makes them of a runner's."""
    made = [SimpleNamespace(result=lambda m=m: SimpleNamespace(error_msg=m)) for m in messages]
    return SimpleNamespace(run=lambda inputs: [made.pop(0) for _ in inputs])


def begun(runner, candidate=CANDIDATE):
    """The futures of one candidate; called through TVM, errors would lose their class."""
    return [one._inst for one in runner._inst.run([candidate])]


def result_of(inner, queue):
    with tracker(queue) as address:
        (measurement,) = begun(RemoteRunner(address, inner=inner))
        return measurement.result()


def test_a_silent_tracker_is_told_as_one_that_is_not_there(monkeypatch):
    monkeypatch.setattr(remote, "CONNECT_SECONDS", 0.3)
    start = time.monotonic()
    with tracker(None) as at, pytest.raises(EnvironmentFault, match=r"nothing was said for 0\.3 s"):
        servers(at.host, at.port)
    assert time.monotonic() - start < 5


@pytest.mark.heavy
def test_a_candidate_that_no_server_takes_is_given_up_and_not_blamed(monkeypatch):
    with tracker({"free": 0, "pending": 1}) as address:
        monkeypatch.setattr(remote, "CONNECT_SECONDS", 2.0)
        runner = RemoteRunner(address, timeout_sec=2.0)
        (measurement,) = begun(runner)
        start = time.monotonic()
        with pytest.raises(EnvironmentFault, match=r"none of the 1 servers of .* takes"):
            measurement.result()
        assert time.monotonic() - start < 60


@pytest.mark.parametrize("queue", [{"free": 1, "pending": 0}, {"free": 0, "pending": 0}])
def test_a_candidate_whose_server_fell_silent_is_a_timeout(queue):
    assert result_of(future(TIMEOUT), queue).error_msg == TIMEOUT


def test_a_candidate_that_loses_two_servers_is_to_blame_where_servers_are_left():
    assert result_of(future(RESET, RESET), {"free": 1, "pending": 0}).error_msg == RESET
    assert result_of(future(RESET, None), {"free": 1, "pending": 0}).error_msg is None


def test_servers_that_cannot_be_had_are_no_fault_of_the_candidate():
    with pytest.raises(EnvironmentFault, match="takes a candidate"):
        result_of(future(RESET, UNSERVED), {"free": 0, "pending": 0})


def test_a_tracker_that_is_gone_is_no_fault_of_the_candidate():
    with tracker({"free": 1, "pending": 0}) as address:
        (measurement,) = begun(RemoteRunner(address, inner=future(RESET)))
    with pytest.raises(EnvironmentFault, match="no RPC tracker"):
        measurement.result()


def test_tvm_s_own_remote_runner_is_treated_like_ours(monkeypatch):
    class Stock:
        """TVM's, without the connection."""

        rpc_config = SimpleNamespace(tracker_host=HOST, tracker_port=9190, tracker_key="cpu")

    monkeypatch.setattr(remote.ms.runner, "RPCRunner", Stock)
    made = retrying(Stock())
    assert made.address == Address(HOST, 9190, "cpu") and is_remote(made) and is_remote(Stock())
    local = SimpleNamespace()
    assert retrying(local) is local and not is_remote(local)
    assert is_remote("rpc") and not is_remote("local") and not is_remote(None)


def test_a_candidate_that_ran_over_its_time_is_not_begun_again():
    # there is one future: a second try would find none
    assert result_of(future(EXPIRED), {"free": 1, "pending": 0}).error_msg == EXPIRED


@pytest.mark.parametrize(
    ("said", "has_result"), [(None, True), (EXPIRED, True), (RESET, False), (TIMEOUT, False)]
)
def test_a_result_is_there_where_no_server_may_be_to_blame(said, has_result):
    first = SimpleNamespace(done=lambda: True, result=lambda: SimpleNamespace(error_msg=said))
    assert RetriedFuture(first, None)._inst.done() is has_result
    first.done = lambda: False
    assert not RetriedFuture(first, None)._inst.done()


@pytest.mark.heavy
def test_closed_it_begins_nothing_more_and_nobody_waits_for_it():
    with tracker({"free": 0, "pending": 1}) as address:
        runner = RemoteRunner(address)
        waiting = [one._inst._first.future for one in runner._inst.run([CANDIDATE] * 3)]
        start = time.monotonic()
        runner.close()
        runner.close()
        assert time.monotonic() - start < 10
        assert all(one.done() for one in waiting)
        assert sum(one.cancelled() for one in waiting) >= 2  # one may have been under way
        # the interpreter joins them at its end
        threads = runner._inst._inner.pool._threadpool._threads
        assert threads and not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("own", [False, True])
def test_workers_of_a_runner_that_the_user_made_are_kept(monkeypatch, own):
    ended = []
    monkeypatch.setattr(remote, "end_pool", ended.append)
    queued = Future()
    inner = SimpleNamespace(run=lambda inputs: [SimpleNamespace(future=queued)], pool="the pool")
    runner = RemoteRunner(Address(HOST, 1, "cpu"), inner=inner, owns_inner=own)
    begun(runner)
    runner.close()
    assert queued.cancelled()
    assert ended == (["the pool"] if own else [])


@pytest.mark.parametrize("pool", [None, SimpleNamespace(), SimpleNamespace(_worker_map={})])
def test_a_pool_of_another_make_is_left_alone(pool):
    end_pool(pool)
