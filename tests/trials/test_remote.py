"""Servers of an RPC tracker on the loopback: found, used at once, and one killed."""

from __future__ import annotations

import re
import time

import psutil
import pytest

from pruner_ms.errors import EnvironmentFault, OptionError
from pruner_ms.trials.address import Address
from pruner_ms.trials.remote import RemoteRunner, lost, require_servers, servers
from tests.support import rpc
from tests.support.rpc import HOST, free_port, kill

MEASURING = 0.8
"""Seconds of a measurement, at the middle of which its server is killed."""


def children(server):
    """A server serves each session in a process of its own."""
    return {one.pid for one in psutil.Process(server.pid).children(recursive=True)}


@pytest.fixture
def lab():
    """An address of a tracker, and a function that starts servers and waits for them."""
    with rpc.lab() as rpc_lab:
        yield rpc_lab.address(), rpc_lab.serve


@pytest.mark.parametrize("text", ["", "host", "host:1", "host:0/k", "host:99999/k", "host:1/a b"])
def test_an_address_is_written_host_port_key(text):
    with pytest.raises(OptionError, match=re.escape("HOST:PORT/KEY")):
        Address.parse(text)


def test_an_address_is_read_as_it_is_written():
    assert str(Address.parse("box.lan:9190/jetson-1")) == "box.lan:9190/jetson-1"
    assert Address.parse("fe80::1:9190/k") == Address("fe80::1", 9190, "k")


def test_a_tracker_that_is_not_there_is_told_at_once():
    start = time.monotonic()
    with pytest.raises(EnvironmentFault, match="no RPC tracker at 127"):
        RemoteRunner(Address(HOST, free_port(), "cpu"))
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("said", "gone"),
    [
        ("RPCRunner: An exception occurred\n[Errno 104] Connection reset by peer", True),
        ("tvm.error.RPCError: Channel closes before we get needed bytes", True),
        ("RuntimeError: Cannot request cpu after 5 retry, last_error:...", True),
        (
            "tvm.error.InternalError: Check failed: (code == RPCCode::kReturn) is false: code=1",
            True,
        ),
        ("RPCRunner: An exception occurred\nSubprocess terminated", True),
        (
            "RPCSessionTimeoutError: Your 30.0s session has expired, try to increase it\n"
            "During handling of the above exception, another exception occurred:\n"
            "tvm.error.InternalError: Channel closes before we get needed bytes",
            False,
        ),
        ("RPCRunner: Timeout, killed after 30 seconds", False),
        ('File "rpc.cc", line 0, in tvm::Broken pipe()\nRPCError: CUDA: out of memory', False),
        ("CUDAError: an illegal memory access was encountered", False),
        ("InternalError: Check failed: (a == b) is false", False),
    ],
)
def test_a_lost_server_is_told_from_a_bad_candidate(said, gone):
    assert lost(said) == gone
    assert not lost(None)


@pytest.mark.heavy
def test_a_server_that_dies_costs_one_more_try_and_nothing_else(lab, tmp_path):
    from tvm import te

    from pruner_ms.tvm_compat.paths import Target, derived_object, ms, te_workload

    address, serve = lab
    first, second = serve("cpu", 2)
    with pytest.raises(EnvironmentFault, match=r"knows no server 'gpu' \(cpu\)"):
        require_servers(Address(address.host, address.port, "gpu"))
    cpu_servers = servers(address.host, address.port)["cpu"]
    assert (len(cpu_servers.places), cpu_servers.free, cpu_servers.waiting) == (2, 2, 0)

    killed = []

    @derived_object
    class Killing(ms.runner.PyRunner):
        """Kills a server while a batch is under way."""

        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def run(self, runner_inputs):
            idle = children(first) if not killed else set()
            futures = self.inner.run(runner_inputs)
            if not killed:
                end = time.monotonic() + rpc.SECONDS
                while children(first) <= idle and time.monotonic() < end:
                    time.sleep(0.01)
                time.sleep(MEASURING / 2)
                killed.append(first)
                kill(first)
            return futures

    mod = te.create_prim_func(te_workload.matmul(128, 128, 128))
    target = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})
    slowly = ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=int(1e3 * MEASURING))
    remote = RemoteRunner(address, timeout_sec=30.0, evaluator_config=slowly)
    parts = {"strategy": "replay-trace", "cost_model": "random", "builder": "persistent"}
    database = ms.tune_tir(
        mod, target, str(tmp_path), 4, num_trials_per_iter=4, runner=Killing(remote), **parts
    )
    assert killed and remote.retried == 1
    latencies = [list(r.run_secs) for r in database.get_all_tuning_records()]
    assert len(latencies) == 4 and all(0 < v < 1 for secs in latencies for v in map(float, secs))
    assert second.poll() is None
    kill(second)
    with pytest.raises(EnvironmentFault, match="knows no server 'cpu'"):
        RemoteRunner(address)
