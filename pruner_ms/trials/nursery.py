"""Workers that are forked off one process, which has imported TVM once for all of them.

A process that imports TVM takes a second of a CPU, and the first batch waits for all workers. The
nursery is a process between the tuner and its workers: it imports, and then gives birth to each
worker by a fork, in milliseconds. It has one thread and runs no job, so that a fork of it is safe;
a fork of the tuner would not be.

A worker sees the tuner's variables, folder and processors of the moment it is born. What a process
reads once when it begins (the loader's variables, limits, umask) is as when the nursery began.
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
LOST = 1
"""Status of a worker of which nobody can say how it ended."""


class Nursery:
    """The tuner's handle on the process. It ends when nothing refers to it any more.

    Attributes
    ----------
    owner
        Process id of the tuner that started it.
    """

    def __init__(self) -> None:
        self._start = surroundings(os.environ)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.owner = os.getpid()
        words = [json.dumps(self._start["path"]), str(theirs.fileno()), str(self.owner)]
        try:
            with all_usable():
                process = subprocess.Popen(
                    [sys.executable, "-c", _BOOT, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    # what fails here fails in a worker too, and is told
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=self._start["environment"],
                    start_new_session=True,
                )
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        # a finalizer of a pool may run, and ask, while this thread is inside
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._pids: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._open = True
        # not at exit: the finalizers of the pools come then, which need it to the last
        weakref.finalize(self, _end, ours, process, self.owner).atexit = False

    @property
    def alive(self) -> bool:
        """Whether it still is there, as far as anything was heard of it."""
        self._hear()
        return self._open

    def bear(
        self,
        fds: Sequence[int],
        memory_limit_bytes: int | None,
        environment: Mapping[str, str],
    ) -> Child:
        """Ask for a worker; it is there some time after.

        Parameters
        ----------
        fds
            Its end of the socket, the reading end of the pipe that breaks with the tuner, and
            where its output goes. The caller may close them at once.
        memory_limit_bytes
            As `worker.main` takes it.
        environment
            All of its variables.

        Raises
        ------
        OSError
            The request cannot be sent: the nursery is gone, or there are too many of them.
        """
        number = next(self._numbers)
        now, before = surroundings(environment), self._start
        variables = now.pop("environment")
        request = {
            "number": number,
            "memory_limit_bytes": memory_limit_bytes,
            # what it has is left out: the socket holds little before it listens
            **{name: None if value == before[name] else value for name, value in now.items()},
            "changed": dict(variables.items() - before["environment"].items()),
            "removed": sorted(before["environment"].keys() - variables.keys()),
        }
        socket.send_fds(self._socket, [json.dumps(request).encode()], list(fds))
        return Child(self, number)

    def pid_of(self, number: int) -> int:
        """Process id of a worker, 0 before it is born."""
        self._hear()
        return self._pids.get(number, 0)

    def status_of(self, number: int) -> int | None:
        """How a worker ended, as `Popen.returncode` says it; None before."""
        self._hear()
        return self._ended.get(number, None if self._open else LOST)

    def knows_of(self, number: int) -> bool:
        """Whether it has said how a worker ended."""
        self._hear()
        return number in self._ended

    def _hear(self) -> None:
        if os.getpid() != self.owner:
            return  # what a fork of the tuner takes off the socket, the tuner would not hear
        with self._lock:
            while self._open:
                try:
                    said = self._socket.recv(_LONGEST)
                except BlockingIOError:
                    return
                except ConnectionResetError:
                    continue  # it left requests unread; what it said before comes now
                except OSError:
                    said = b""
                if not said:
                    self._open = False
                    return
                what, number, value = json.loads(said)
                (self._pids if what == "born" else self._ended)[number] = value


class Child:
    """A worker of a nursery: what `process.Worker` needs of a `Popen`."""

    def __init__(self, nursery: Nursery, number: int) -> None:
        self._nursery, self._number = nursery, number

    @property
    def pid(self) -> int:
        """Process id, 0 before it is born."""
        return self._nursery.pid_of(self._number)

    @property
    def returncode(self) -> int | None:
        """How it ended, None before."""
        return self.poll()

    @property
    def buried(self) -> bool:
        """Whether its process id may be another's by now."""
        return self._nursery.knows_of(self._number)

    def poll(self) -> int | None:
        """How it ended, None before."""
        return self._nursery.status_of(self._number)

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


def surroundings(environment: Mapping[str, str]) -> dict[str, Any]:
    """What a worker is to find: path of imports, folder, processors, variables."""
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
        return  # a fork of the tuner must not take the tuner's nursery with it
    ours.close()
    process.kill()
    process.wait()


class _Shared:
    """The nursery of this process, if it has one, and whether it may have one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nursery: weakref.ref[Nursery] | None = None
        self.failed = sys.platform != "linux"

    def get(self) -> Nursery | None:
        with self.lock:
            found = None if self.nursery is None else self.nursery()
            if found is not None and not found.alive:
                self.failed = True
            if self.failed or found is not None:
                return None if self.failed else found
            try:
                found = Nursery()
            except OSError:
                self.failed = True
                return None
            self.nursery = weakref.ref(found)
            return found


_here = _Shared()


def _forget() -> None:
    """In a fork of the tuner: it has no nursery yet, and nobody holds its lock."""
    global _here
    _here = _Shared()


os.register_at_fork(after_in_child=_forget)


def shared() -> Nursery | None:
    """The nursery of this process, started when first asked for; None where there can be none.

    One that has ended is not started again: workers that import TVM themselves say what is wrong.
    """
    return _here.get()


def give_up() -> None:
    """Let further workers have interpreters of their own: a worker was not born."""
    _here.failed = True
