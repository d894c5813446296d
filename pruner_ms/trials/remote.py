"""Measuring through TVM's RPC tracker, with retries on other servers.

The tracker and the servers are TVM's (`python -m tvm.exec.rpc_tracker`, `... rpc_server`), and so
is the runner. Additions: a missing tracker is reported before any work, there are as many
connections as servers, and a candidate whose server died is retried once on another one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from pruner_ms.clock import awake, pauses
from pruner_ms.errors import EnvironmentFault
from pruner_ms.trials.address import Address
from pruner_ms.trials.cores import cores_for
from pruner_ms.trials.failures import expired
from pruner_ms.tvm_compat.paths import connect_tracker, derived_object, ms
from pruner_ms.tvm_compat.threads import use_remotely

# Ending TVM's pool of worker processes without waiting for its queue.
#
# The interpreter joins the pool's threads at its exit: queued jobs would be run then, one after the
# other, each up to its time limit.

_SECONDS = 5.0
"""Time limit for the threads of killed workers to end."""

_PROCESS_POLL_SECONDS = 0.02


def end_pool(pool: Any) -> None:
    """Cancel the queue of a `PopenPoolExecutor`, and kill its workers; harmless twice.

    Its attributes are private (the same in TVM 0.17 to 0.27), so each may be missing. TVM's
    `shutdown` would wait: it closes pipes that a thread is reading.
    """
    threads = getattr(pool, "_threadpool", None)
    if threads is None:
        return
    threads.shutdown(wait=False, cancel_futures=True)
    end = awake() + _SECONDS
    _kill(pool)
    while any(thread.is_alive() for thread in getattr(threads, "_threads", ())):
        if awake() > end:
            return
        time.sleep(_PROCESS_POLL_SECONDS)
        _kill(pool)  # a thread that has just dequeued a candidate starts another worker
    for worker in _workers(pool):
        worker.kill()  # no thread reads any more: closes the pipes and waits for the process


def _workers(pool: Any) -> list[Any]:
    return list(getattr(pool, "_worker_map", {}).values())


def _kill(pool: Any) -> None:
    for worker in _workers(pool):
        process = getattr(worker, "_proc", None)
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()


_log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
"""Time limit for a tracker's answer."""

_POLL_SECONDS = 0.5
_TICK_SECONDS = 0.01

LOST = re.compile(
    r"connection (reset|refused|aborted|closed)|broken pipe|channel closes|end of file"
    r"|cannot request|RPCCode::kReturn\) is false|subprocess terminated",
    re.IGNORECASE,
)
"""Messages of TVM and of the system when the server, or the local process that talks to it, is
gone: not the candidate's fault."""

_FRAME = re.compile(r"tvm::|^\s*File \"|^\s*\d+: ")
"""Lines of a traceback, in which names of functions and files are not messages."""


@dataclass(frozen=True)
class Servers:
    """Servers of one key.

    Attributes
    ----------
    places
        Their addresses.
    free
        Unused ones.
    waiting
        Pending requests.
    """

    places: tuple[str, ...] = ()
    free: int = 0
    waiting: int = 0


def servers(host: str, port: int) -> dict[str, Servers]:
    """The servers that a tracker knows, by key.

    Raises
    ------
    EnvironmentFault
        There is no tracker.
    """
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
        summary = _summary(host, port)
    except (OSError, RuntimeError, ValueError) as error:
        raise EnvironmentFault(
            f"there is no RPC tracker at {host}:{port} ({str(error).splitlines()[0]}); start one "
            f"with python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port {port}"
        ) from error
    return _by_key(summary)


def _summary(host: str, port: int) -> Mapping[str, Any]:
    """A tracker's summary, with a time limit, which TVM does not have."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(connect_tracker(host, port).summary())
        except Exception as error:  # of any class: raised again in the waiting thread
            answers.put(error)

    threading.Thread(target=ask, name="pruner-ms-tracker", daemon=True).start()
    end = awake() + CONNECT_SECONDS
    while answers.empty():
        if awake() > end:
            raise TimeoutError(f"nothing was said for {CONNECT_SECONDS:g} s")
        time.sleep(_TICK_SECONDS)
    answer = answers.get()
    if isinstance(answer, Exception):
        raise answer
    summary: Mapping[str, Any] = answer
    return summary


def _by_key(summary: Mapping[str, Any]) -> dict[str, Servers]:
    places: dict[str, list[str]] = {}
    for info in summary["server_info"]:
        at = info["addr"]
        text = f"{at[0]}:{at[1]}" if isinstance(at, list | tuple) else str(at)
        places.setdefault(str(info["key"]).removeprefix("server:"), []).append(text)
    queues = summary["queue_info"]
    by_key = {}
    for key in sorted({*places, *queues}):
        queue = queues.get(key, {})
        free, waiting = int(queue.get("free", 0)), int(queue.get("pending", 0))
        by_key[str(key)] = Servers(tuple(sorted(places.get(key, ()))), free, waiting)
    return by_key


def require_servers(address: Address) -> Servers:
    """The servers of an address.

    Raises
    ------
    EnvironmentFault
        There is no tracker, or no server of this key.
    """
    return of_key(servers(address.host, address.port), address)


def of_key(by_key: Mapping[str, Servers], address: Address) -> Servers:
    """Those of `servers` that an address names; an EnvironmentFault where there are none."""
    servers_of_key = by_key.get(address.key, Servers())
    if not servers_of_key.places:
        others = ", ".join(key for key, each in by_key.items() if each.places) or "none at all"
        raise EnvironmentFault(
            f"the tracker at {address.host}:{address.port} knows no server {address.key!r} "
            f"({others}); start one with python -m tvm.exec.rpc_server --tracker "
            f"{address.host}:{address.port} --key {address.key}"
        )
    return servers_of_key


def connected(connect: Any, cores: int | None, config: Any) -> Any:
    """A session with a server that runs parallel loops on so many cores; called in TVM's worker.

    Parameters
    ----------
    connect
        The runner's connecting function, its registered name, or None for TVM's.
    cores
        Of the target's CPU; None: the server's threads are not changed.
    config
        TVM's `RPCConfig`.
    """
    default = ms.runner.rpc_runner.default_create_session
    session = ms.utils.get_global_func_with_default_on_worker(connect, default)(config)
    if cores is not None:
        try:
            use_remotely(session, cores)
        except Exception as error:  # of any class; measuring works without it
            _warn(f"a server does not use the {cores} cores of the target: {error}")
    return session


@cache
def _warn(text: str) -> None:
    _log.warning(text)


@derived_object
class RetriedFuture(ms.runner.PyRunnerFuture):
    """A measurement that is retried once if its server was lost or this process was paused.

    Parameters
    ----------
    first
        The running measurement.
    again
        Starts the retry.
    judge
        Called with the error of a candidate that got no server in the end; raises where the servers
        are to blame.
    """

    def __init__(
        self, first: Any, again: Callable[[], Any], judge: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self._first, self._again, self._judge = first, again, judge
        self._pauses = pauses()

    def done(self) -> bool:
        """Whether the result is final: not if a retry may be needed."""
        if not self._first.done():
            return False
        message = self._first.result().error_msg
        return not (self._not_candidates_fault(message) or late(message))

    def result(self) -> Any:
        """The `RunnerResult`, of the retry if there was one."""
        result = self._first.result()
        if self._not_candidates_fault(result.error_msg):
            result = self._again().result()
        if self._judge is not None and (lost(result.error_msg) or late(result.error_msg)):
            self._judge(str(result.error_msg))
        return result

    def _not_candidates_fault(self, message: Any) -> bool:
        """Whether a failure may be due to a lost server, or to a pause of this process."""
        return lost(message) or (message is not None and pauses() != self._pauses)

    def __str__(self) -> str:
        return "RetriedFuture"


@derived_object
class RemoteRunner(ms.runner.PyRunner):
    """TVM's `RPCRunner` on all servers of a key at once.

    Parameters
    ----------
    address
        The tracker and the key.
    timeout_sec
        Seconds one candidate may run. After twice as many, plus some to connect, it fails even
        without an answer from its server; waiting for a server is included in these.
    evaluator_config
        MetaSchedule's `EvaluatorConfig`; its defaults when None.
    max_workers
        Connections; by default as many as there are servers now.
    inner
        An existing TVM runner for these servers; the three options above are not used then.
    owns_inner
        Whether `close` may end the workers of `inner`, too.

    Attributes
    ----------
    retried
        Number of retried candidates.

    Raises
    ------
    EnvironmentFault
        There is no tracker, or no server; later: no server is left, or none takes a candidate.
    """

    remote = True

    def __init__(
        self,
        address: Address,
        timeout_sec: float = 30.0,
        evaluator_config: Any = None,
        max_workers: int | None = None,
        inner: Any = None,
        owns_inner: bool = False,
    ) -> None:
        super().__init__()
        self.address, self.retried = address, 0
        self._owns_inner = owns_inner or inner is None
        self._running_futures: list[Any] = []
        if inner is None:
            count = len(require_servers(address).places)
            inner = ms.runner.RPCRunner(
                ms.runner.RPCConfig(
                    tracker_host=address.host,
                    tracker_port=address.port,
                    tracker_key=address.key,
                    session_timeout_sec=max(1, math.ceil(timeout_sec)),  # 0 would be no limit
                ),
                evaluator_config=evaluator_config,
                max_workers=max_workers or count,
            )
            # TVM's time limit is enforced by the server, which may be gone: kill the worker then
            inner.pool._timeout = 2 * timeout_sec + CONNECT_SECONDS
        self._inner = inner

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Start a batch: `RunnerInput`s in, as many futures out."""
        inputs = list(runner_inputs)
        return [
            RetriedFuture(first, partial(self._elsewhere, one), self._judge)
            for first, one in zip(self._begin(inputs), inputs, strict=True)
        ]

    def _begin(self, inputs: list[Any]) -> list[Any]:
        # bypasses TVM's C++ wrapper, whose futures cannot be cancelled
        runner, begun = getattr(self._inner, "_inst", self._inner), []
        connect = getattr(runner, "f_create_session", None)
        try:
            for one in inputs:
                cores = cores_for(str(one.artifact_path))
                runner.f_create_session = partial(connected, connect, cores)
                begun += runner.run([one])
        finally:
            runner.f_create_session = connect  # it may be the user's
        new = [one.future for one in begun if hasattr(one, "future")]
        self._running_futures = [one for one in self._running_futures if not one.done()] + new
        return begun

    def close(self) -> None:
        """Cancel waiting candidates, which the interpreter would run at its exit. Harmless twice.

        Ends the workers, too, unless the inner runner is not owned.
        """
        for future in self._running_futures:
            future.cancel()
        self._running_futures = []
        if self._owns_inner:
            end_pool(getattr(self._inner, "pool", None))

    def _elsewhere(self, runner_input: Any) -> Any:
        left = len(require_servers(self.address).places)
        self.retried += 1
        _log.warning(
            "a measurement at %s was lost, %d servers are left: its candidate again",
            self.address,
            left,
        )
        return self._begin([runner_input])[0]

    def _judge(self, message: str) -> None:
        """Raise an EnvironmentFault unless there are servers that take candidates."""
        available = require_servers(self.address)
        stuck = "cannot request" in message.lower()
        end = awake() + CONNECT_SECONDS
        while late(message) and available.waiting and not available.free:
            if awake() > end:
                stuck = True
                break
            time.sleep(_POLL_SECONDS)  # a server just released is free soon
            available = require_servers(self.address)
        if stuck:
            raise EnvironmentFault(
                f"none of the {len(available.places)} servers of {self.address} takes a candidate; "
                "start them anew, or wait for those who use them, and run the same again"
            )

    def __str__(self) -> str:
        return f"RemoteRunner({self.address})"


def retrying(runner: Any, *, owns_inner: bool = False) -> Any:
    """Wrap TVM's remote runner by a `RemoteRunner`, which retries lost measurements.

    Parameters
    ----------
    runner
        Any MetaSchedule runner; one that is not TVM's remote runner is returned unchanged.
    owns_inner
        Whether `RemoteRunner.close` may end its workers: it has no other user.
    """
    if not isinstance(runner, ms.runner.RPCRunner):
        return runner
    config = runner.rpc_config
    host, port, key = config.tracker_host, config.tracker_port, config.tracker_key
    address = Address(str(host), int(port), str(key))
    return RemoteRunner(address, inner=runner, owns_inner=owns_inner)


def is_remote(runner: Any) -> bool:
    """Whether a runner, or MetaSchedule's by its name, measures on other machines."""
    if isinstance(runner, str):
        return runner == "rpc"
    return isinstance(runner, ms.runner.RPCRunner) or bool(getattr(runner, "remote", False))


def lost(error_msg: Any) -> bool:
    """Whether a result's error is a lost server."""
    if error_msg is None or expired(str(error_msg)):
        return False  # a server that ends a session by timeout closes the channel, too
    return any(LOST.search(one) for one in str(error_msg).splitlines() if not _FRAME.search(one))


def late(error_msg: Any) -> bool:
    """Whether a result's error is a timeout of TVM's runner."""
    return str(error_msg).startswith("RPCRunner: Timeout")
