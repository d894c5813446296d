"""Measuring on other machines through TVM's RPC tracker: who is free, and a second try elsewhere.

The tracker and the servers are TVM's (`python -m tvm.exec.rpc_tracker`, `... rpc_server`), and so
is the runner. What is added: a tracker that is not there is told before any work, as many
connections as there are servers, and a candidate whose server died goes to another one, once.
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

# TVM's pool of worker processes, ended without waiting for what is queued in it.
#
# Its threads are Python's own, which the interpreter joins at its end: what is queued would be
# begun then, one after the other, and each waited for until its time limit.


_SECONDS = 5.0
"""Within which threads end whose workers were killed."""

_PROCESS_POLL_SECONDS = 0.02


def end_pool(pool: Any) -> None:
    """Cancel what waits in a `PopenPoolExecutor`, and kill its workers; harmless twice.

    Its parts have no public names (TVM 0.17 to 0.27 call them the same), so each may be missing.
    TVM's own `shutdown` would wait: it closes pipes that a thread is reading.
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
        _kill(pool)  # a thread that had just taken a candidate starts a worker for it all the same
    for worker in _workers(pool):
        worker.kill()  # nobody reads any more: the pipes are closed, and the process is waited for


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
"""Until a tracker that does not answer is given up."""

_POLL_SECONDS = 0.5
_TICK_SECONDS = 0.01

LOST = re.compile(
    r"connection (reset|refused|aborted|closed)|broken pipe|channel closes|end of file"
    r"|cannot request|RPCCode::kReturn\) is false|subprocess terminated",
    re.IGNORECASE,
)
"""In the words of TVM and of the system: the server is gone, or the process here that speaks with
it; the candidate is not to blame."""

_FRAME = re.compile(r"tvm::|^\s*File \"|^\s*\d+: ")
"""Lines of a traceback: their names of functions and files say nothing of the cause."""


@dataclass(frozen=True)
class Servers:
    """Servers of one key.

    Attributes
    ----------
    places
        Their addresses.
    free
        Those that nobody uses now.
    waiting
        Requests that wait for one.
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
    """What a tracker says of itself; TVM would wait for its words for ever."""
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            said.put(connect_tracker(host, port).summary())
        except Exception as error:  # of whatever class: it is raised again where somebody waits
            said.put(error)

    threading.Thread(target=ask, name="pruner-ms-tracker", daemon=True).start()
    end = awake() + CONNECT_SECONDS
    while said.empty():
        if awake() > end:
            raise TimeoutError(f"nothing was said for {CONNECT_SECONDS:g} s")
        time.sleep(_TICK_SECONDS)
    found = said.get()
    if isinstance(found, Exception):
        raise found
    summary: Mapping[str, Any] = found
    return summary


def _by_key(summary: Mapping[str, Any]) -> dict[str, Servers]:
    places: dict[str, list[str]] = {}
    for info in summary["server_info"]:
        at = info["addr"]
        text = f"{at[0]}:{at[1]}" if isinstance(at, list | tuple) else str(at)
        places.setdefault(str(info["key"]).removeprefix("server:"), []).append(text)
    queues = summary["queue_info"]
    found = {}
    for key in sorted({*places, *queues}):
        queue = queues.get(key, {})
        free, waiting = int(queue.get("free", 0)), int(queue.get("pending", 0))
        found[str(key)] = Servers(tuple(sorted(places.get(key, ()))), free, waiting)
    return found


def require_servers(address: Address) -> Servers:
    """The servers of an address.

    Raises
    ------
    EnvironmentFault
        There is no tracker, or no server of this key.
    """
    return of_key(servers(address.host, address.port), address)


def of_key(known: Mapping[str, Servers], address: Address) -> Servers:
    """Those of `servers` that an address names; an EnvironmentFault where there are none."""
    found = known.get(address.key, Servers())
    if not found.places:
        others = ", ".join(key for key, some in known.items() if some.places) or "none at all"
        raise EnvironmentFault(
            f"the tracker at {address.host}:{address.port} knows no server {address.key!r} "
            f"({others}); start one with python -m tvm.exec.rpc_server --tracker "
            f"{address.host}:{address.port} --key {address.key}"
        )
    return found


def connected(connect: Any, cores: int | None, config: Any) -> Any:
    """A session with a server that runs parallel loops on so many cores; called in TVM's worker.

    Parameters
    ----------
    connect
        What the runner connects with: a function, the name of one, or None for TVM's own.
    cores
        Of the target's CPU; None: the server's threads are left as they are.
    config
        TVM's `RPCConfig`.
    """
    own = ms.runner.rpc_runner.default_create_session
    session = ms.utils.get_global_func_with_default_on_worker(connect, own)(config)
    if cores is not None:
        try:
            use_remotely(session, cores)
        except Exception as error:  # of whatever class; a runtime without a pool measures, too
            _warn(f"a server does not use the {cores} cores of the target: {error}")
    return session


@cache
def _warn(text: str) -> None:
    _log.warning(text)


@derived_object
class RetriedFuture(ms.runner.PyRunnerFuture):
    """A measurement that is begun again, once, when its server is lost or this process was paused.

    Parameters
    ----------
    first
        The running measurement.
    again
        Begins it anew.
    judge
        Called with the error of a candidate that had no server to the end; raises where the servers
        are to blame.
    """

    def __init__(
        self, first: Any, again: Callable[[], Any], judge: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self._first, self._again, self._judge = first, again, judge
        self._pauses = pauses()

    def done(self) -> bool:
        """Whether the result is known: not of a try that its server may be to blame for."""
        if not self._first.done():
            return False
        said = self._first.result().error_msg
        return not (self._blameless(said) or late(said))

    def result(self) -> Any:
        """The `RunnerResult`, of the second try where the first lost its server."""
        result = self._first.result()
        if self._blameless(result.error_msg):
            result = self._again().result()
        if self._judge is not None and (lost(result.error_msg) or late(result.error_msg)):
            self._judge(str(result.error_msg))
        return result

    def _blameless(self, said: Any) -> bool:
        """Whether a failure may come of a lost server, or of a pause longer than a time limit."""
        return lost(said) or (said is not None and pauses() != self._pauses)

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
        Seconds one candidate may run; after twice as many, and some to connect, it is given up even
        where its server says nothing, waiting for a server included.
    evaluator_config
        MetaSchedule's `EvaluatorConfig`; its defaults when None.
    max_workers
        Connections; by default as many as there are servers now.
    inner
        A runner of TVM's that measures there already; the three before it are its own then.
    own
        Whether `close` may end the workers of `inner`, too.

    Attributes
    ----------
    retried
        Candidates that were begun a second time.

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
        own: bool = False,
    ) -> None:
        super().__init__()
        self.address, self.retried = address, 0
        self._own = own or inner is None
        self._begun: list[Any] = []
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
            # TVM leaves the limit to the server, which may be gone: the worker is killed then
            inner.pool._timeout = 2 * timeout_sec + CONNECT_SECONDS
        self._inner = inner

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Begin a batch: `RunnerInput`s in, as many futures out."""
        inputs = list(runner_inputs)
        return [
            RetriedFuture(first, partial(self._elsewhere, one), self._judge)
            for first, one in zip(self._begin(inputs), inputs, strict=True)
        ]

    def _begin(self, inputs: list[Any]) -> list[Any]:
        # called past TVM, which hands back futures that cannot be cancelled
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
        self._begun = [one for one in self._begun if not one.done()] + new
        return begun

    def close(self) -> None:
        """Begin nothing more of what waits: the interpreter would, at its end. Harmless twice.

        Workers end, too, unless a runner was given that is not this one's own.
        """
        for future in self._begun:
            future.cancel()
        self._begun = []
        if self._own:
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

    def _judge(self, said: str) -> None:
        """Raise an EnvironmentFault unless servers are there that take candidates."""
        found = require_servers(self.address)
        stuck = "cannot request" in said.lower()
        end = awake() + CONNECT_SECONDS
        while late(said) and found.waiting and not found.free:
            if awake() > end:
                stuck = True
                break
            time.sleep(_POLL_SECONDS)  # a server that has just been left is free in a moment
            found = require_servers(self.address)
        if stuck:
            raise EnvironmentFault(
                f"none of the {len(found.places)} servers of {self.address} takes a candidate; "
                "start them anew, or wait for those who use them, and run the same again"
            )

    def __str__(self) -> str:
        return f"RemoteRunner({self.address})"


def retrying(runner: Any, *, own: bool = False) -> Any:
    """TVM's own remote runner as one that knows lost servers from bad candidates; others as is.

    Parameters
    ----------
    runner
        Any MetaSchedule runner.
    own
        Whether nobody else uses it, so that `RemoteRunner.close` may end its workers.
    """
    if not isinstance(runner, ms.runner.RPCRunner):
        return runner
    config = runner.rpc_config
    host, port, key = config.tracker_host, config.tracker_port, config.tracker_key
    return RemoteRunner(Address(str(host), int(port), str(key)), inner=runner, own=own)


def is_remote(runner: Any) -> bool:
    """Whether a runner, or MetaSchedule's of a name, measures on other machines."""
    if isinstance(runner, str):
        return runner == "rpc"
    return isinstance(runner, ms.runner.RPCRunner) or bool(getattr(runner, "remote", False))


def lost(error_msg: Any) -> bool:
    """Whether a result's error says that its server is gone."""
    if error_msg is None or expired(str(error_msg)):
        return False  # a server that ends a session for its time closes the channel, too
    return any(LOST.search(one) for one in str(error_msg).splitlines() if not _FRAME.search(one))


def late(error_msg: Any) -> bool:
    """Whether a result's error says that TVM's runner gave a candidate up."""
    return str(error_msg).startswith("RPCRunner: Timeout")
