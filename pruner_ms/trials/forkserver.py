"""Fork server: workers are forked from one process that has imported TVM.

Importing TVM takes a second of a CPU, and the first batch waits for all workers. The fork server is
a process between the tuner and its workers: it imports, and then forks each worker in milliseconds.
It has one thread and runs no job, so that forking it is safe; forking the tuner would not be.

A worker gets the tuner's environment variables, folder and processors of the moment it is forked.
What a process reads once at its start (the loader's variables, limits, umask) is that of the fork
server.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pruner_ms.clock import awake
from pruner_ms.tvm_compat.processors import all_usable, processors

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from pruner_ms.trials.forking import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
_LONGEST = 1 << 16
_TICK_SECONDS = 0.005
UNKNOWN_STATUS = 1
"""Status of a worker whose exit status was lost."""


class ForkServer:
    """The tuner's handle on the process, which ends with the last reference.

    Attributes
    ----------
    owner
        Process id of the tuner that started it.
    """

    def __init__(self) -> None:
        self._start = process_context(os.environ)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner = os.getpid()
        words = [json.dumps(self._start["path"]), str(theirs.fileno()), str(self.owner)]
        try:
            with all_usable():
                process = subprocess.Popen(
                    [sys.executable, "-c", _BOOT, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    # an import that fails here fails, and is reported, in a worker, too
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=self._start["environment"],
                    start_new_session=True,
                )
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        # a finalizer of a pool may run and call this while this thread holds the lock
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._pids: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._open = True
        # not at exit: the pools' finalizers run then and need it
        weakref.finalize(self, _end, ours, process, self.owner).atexit = False

    @property
    def alive(self) -> bool:
        """Whether it is running, as far as is known."""
        self._receive()
        return self._open

    def fork(
        self,
        fds: Sequence[int],
        memory_limit_bytes: int | None,
        environment: Mapping[str, str],
    ) -> ForkedWorker:
        """Request a worker; it is forked asynchronously.

        Parameters
        ----------
        fds
            The worker's end of the socket, the reading end of the pipe that breaks when the tuner
            ends, and where the worker's output goes. The caller may close them at once.
        memory_limit_bytes
            As `worker.main` takes it.
        environment
            All of its variables.

        Raises
        ------
        OSError
            The request cannot be sent: the fork server is gone, or too many requests wait.
        """
        number = next(self._numbers)
        now, before = process_context(environment), self._start
        variables = now.pop("environment")
        request = {
            "number": number,
            "memory_limit_bytes": memory_limit_bytes,
            # unchanged values are left out: the socket's buffer is small before it listens
            **{name: None if value == before[name] else value for name, value in now.items()},
            "changed": dict(variables.items() - before["environment"].items()),
            "removed": sorted(before["environment"].keys() - variables.keys()),
        }
        socket.send_fds(self._socket, [json.dumps(request).encode()], list(fds))
        return ForkedWorker(self, number)

    def pid_of(self, number: int) -> int:
        """Process id of a worker, 0 before it is forked."""
        self._receive()
        return self._pids.get(number, 0)

    def status_of(self, number: int) -> int | None:
        """Exit status of a worker, as `Popen.returncode`; None while it runs."""
        self._receive()
        return self._ended.get(number, None if self._open else UNKNOWN_STATUS)

    def has_status_of(self, number: int) -> bool:
        """Whether a worker's exit status was reported."""
        self._receive()
        return number in self._ended

    def _receive(self) -> None:
        if os.getpid() != self.owner:
            return  # messages received by a fork of the tuner would be lost to the tuner
        with self._lock:
            while self._open:
                try:
                    message = self._socket.recv(_LONGEST)
                except BlockingIOError:
                    return
                except ConnectionResetError:
                    continue  # it left requests unread; its earlier messages come now
                except OSError:
                    message = b""
                if not message:
                    self._open = False
                    return
                what, number, value = json.loads(message)
                (self._pids if what == "started" else self._ended)[number] = value


class ForkedWorker:
    """A worker of a fork server: the part of `Popen` that `process.Worker` uses."""

    def __init__(self, fork_server: ForkServer, number: int) -> None:
        self._server, self._number = fork_server, number

    @property
    def pid(self) -> int:
        """Process id, 0 before it is forked."""
        return self._server.pid_of(self._number)

    @property
    def returncode(self) -> int | None:
        """Exit status; None while it runs."""
        return self.poll()

    @property
    def reaped(self) -> bool:
        """Whether it was waited for, so that its process id may be reused."""
        return self._server.has_status_of(self._number)

    def poll(self) -> int | None:
        """Exit status; None while it runs."""
        return self._server.status_of(self._number)

    def wait(self, timeout: float) -> int:
        """Wait until it has ended.

        Raises
        ------
        subprocess.TimeoutExpired
            It has not.
        """
        end = awake() + timeout
        while (status := self.poll()) is None:
            if awake() > end:
                raise subprocess.TimeoutExpired("worker", timeout)
            time.sleep(_TICK_SECONDS)
        return status


def process_context(environment: Mapping[str, str]) -> dict[str, Any]:
    """Environment of a worker: import path, folder, processors, variables."""
    folder: str | None
    try:
        folder = str(Path.cwd())
    except OSError:
        folder = None  # it has been removed
    return {
        "path": [str(p) for p in sys.path],
        "folder": folder,
        "processors": processors(),
        "environment": dict(environment),
    }


def _end(ours: socket.socket, process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the tuner must not end the tuner's fork server
    ours.close()
    process.kill()
    process.wait()


class _Shared:
    """The fork server of this process, if there is one, and whether one can be started."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.fork_server: weakref.ref[ForkServer] | None = None
        self.failed = sys.platform != "linux"

    def get(self) -> ForkServer | None:
        with self.lock:
            server = None if self.fork_server is None else self.fork_server()
            if server is not None and not server.alive:
                self.failed = True
            if self.failed or server is not None:
                return None if self.failed else server
            try:
                server = ForkServer()
            except OSError:
                self.failed = True
                return None
            self.fork_server = weakref.ref(server)
            return server


_shared_server = _Shared()


def _forget() -> None:
    """In a fork of the tuner: no fork server, and a free lock."""
    global _shared_server
    _shared_server = _Shared()


os.register_at_fork(after_in_child=_forget)


def shared() -> ForkServer | None:
    """The fork server of this process, started at the first call; None where there can be none.

    One that has ended is not started again: workers that import TVM themselves report the error.
    """
    return _shared_server.get()


def disable() -> None:
    """Start further workers with interpreters of their own: a worker could not be forked."""
    _shared_server.failed = True
