"""The tuner's handle on one worker process: start, send, receive, kill with all its children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pruner_ms.clock import awake
from pruner_ms.trials import wire
from pruner_ms.trials.forkserver import ForkedWorker, ForkServer
from pruner_ms.tvm_compat.processors import all_usable

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from pruner_ms.trials.worker import main; main(*json.loads(sys.argv[2]))"
)
_TAIL = 4000
_WAIT_SECONDS = 5.0
_START_SECONDS = 180.0


@dataclass(frozen=True)
class WorkerSpec:
    """How workers of a pool are started.

    Attributes
    ----------
    setup
        Frame from `wire.pack_setup`.
    memory_limit_bytes
        Limit per worker, None for none.
    environment
        Variables set on top of the tuner's.
    """

    setup: bytes
    memory_limit_bytes: int | None
    environment: Mapping[str, str] = field(default_factory=dict)


class Worker:
    """One process. It is *starting* until it has answered its set-up, then *idle* or *busy*.

    Parameters
    ----------
    spec
        How it is started.
    fork_server
        Forks it; None: it gets an interpreter of its own.

    Raises
    ------
    OSError
        The system refuses a process or pipes. Nothing is left open then.
    """

    def __init__(self, spec: WorkerSpec, fork_server: ForkServer | None = None) -> None:
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as handed_over:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            handed_over.callback(theirs.close)
            life_read, self._life = os.pipe()
            undo.callback(os.close, self._life)
            handed_over.callback(os.close, life_read)
            self._log, log_write = os.pipe()
            undo.callback(os.close, self._log)
            handed_over.callback(os.close, log_write)
            fds = (theirs.fileno(), life_read, log_write)
            self._process = _started(spec, fds, fork_server)
            undo.pop_all()
        os.set_blocking(self._log, False)
        ours.setblocking(False)
        self.socket = ours
        self.ready = False
        self.uses = 0
        self.job: int | None = None
        self.accepted = False
        self.deadline = awake() + _START_SECONDS
        self.log_open = True
        self._inbox = wire.Inbox()
        self._outbox = bytearray(spec.setup)
        self._tail = bytearray()

    @property
    def pid(self) -> int:
        """Process id, 0 before a fork server has forked it."""
        return self._process.pid

    @property
    def log_fd(self) -> int:
        """Reading end of the worker's standard output and error."""
        return self._log

    @property
    def busy(self) -> bool:
        """Whether it works on a job or is starting."""
        return self.job is not None or not self.ready

    @property
    def wants_to_write(self) -> bool:
        """Whether bytes wait to be sent."""
        return bool(self._outbox)

    def assign(self, job: int, args: list[Any], timeout_sec: float) -> None:
        """Give an idle worker a job; its time limit starts now."""
        self.job, self.accepted = job, False
        self.uses += 1
        self.deadline = awake() + timeout_sec
        self._outbox += wire.pack({"id": job, "args": args})
        self.flush()

    def flush(self) -> None:
        """Send what can be sent without waiting."""
        try:
            while self._outbox:
                del self._outbox[: self.socket.send(self._outbox)]
        except BlockingIOError:
            return
        except OSError:
            self._outbox.clear()  # it has exited; `receive` reports that

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """New messages, and whether more may come (else it has exited or sent garbage)."""
        messages: list[dict[str, Any]] = []
        try:
            while piece := self.socket.recv(1 << 16):
                for payload in self._inbox.feed(piece):
                    messages.append(wire.unpack(payload))
        except BlockingIOError:
            return messages, True
        except (OSError, wire.BrokenFrameError):
            return messages, False
        return messages, False

    def drain(self) -> None:
        """Read the worker's output; only its end is stored."""
        try:
            while self.log_open:
                piece = os.read(self._log, 1 << 16)
                self.log_open = bool(piece)  # a candidate may close its standard output
                self._tail += piece
                del self._tail[:-_TAIL]
                if len(piece) < 1 << 16:
                    return
        except OSError:
            return

    def tail(self) -> str:
        """The end of the worker's output since the last job."""
        self.drain()
        return self._tail.decode(errors="replace").strip()

    def finish(self) -> None:
        """Note that the job is done."""
        self.job = None
        self.drain()
        self._tail.clear()

    def has_exited(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def reaped(self) -> bool:
        """Whether it and its group have ended, so that its process id may be reused."""
        return isinstance(self._process, ForkedWorker) and self._process.reaped

    @property
    def lost_with_server(self) -> bool:
        """Whether its fork server has ended, which ends it, too: no job is to blame."""
        return (
            isinstance(self._process, ForkedWorker)
            and self.has_exited()
            and not self._process.reaped
        )

    def killed(self) -> bool:
        """Whether it was ended by SIGKILL of another process."""
        return self._process.returncode == -signal.SIGKILL

    def how_it_ended(self) -> str:
        """In words, once it has been killed or has ended by itself."""
        code = self._process.returncode
        if code is None:
            return "the worker talked garbage"
        if code < 0:
            return f"the worker was ended by {signal.Signals(-code).name}"
        return f"the worker exited with status {code}"

    def wait(self, seconds: float = _WAIT_SECONDS) -> None:
        """Give a worker that closed its socket a moment to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def kill(self) -> None:
        """Kill the process, its group, and children that left the group; reap; close."""
        if self.pid and not self.reaped:  # one not forked yet ends as soon as it is
            for pid in (
                [*_descendants(self.pid), self.pid]
                if not self.has_exited() or self.lost_with_server
                else []
            ):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # its children may outlive the leader
            self.wait()
        self.drain()
        self.close()

    def close(self) -> None:
        """Close the pipes. The life pipe breaks, which ends the rest of the group."""
        self.socket.close()
        for fd in (self._life, self._log):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._life = self._log = -1


def _started(
    spec: WorkerSpec, fds: tuple[int, int, int], fork_server: ForkServer | None
) -> subprocess.Popen[bytes] | ForkedWorker:
    """The process; `fds` are its end of the socket, of the life pipe, and of its output."""
    sock, life, log = fds
    environment = {**os.environ, **spec.environment}
    if fork_server is not None:
        with contextlib.suppress(OSError):
            return fork_server.fork(fds, spec.memory_limit_bytes, environment)
    path, numbers = [str(p) for p in sys.path], [sock, life, spec.memory_limit_bytes]
    with all_usable():
        return subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(path), json.dumps(numbers)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(sock, life),
            env=environment,
            start_new_session=True,  # out of reach of the terminal's Ctrl-C
        )


def _descendants(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
