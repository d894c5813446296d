"""Process of the fork server: imports TVM, forks a worker per request, reports exit statuses."""

from __future__ import annotations

import gc
import json
import os
import select
import selectors
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from contextlib import suppress
from typing import Any

_LONGEST = 1 << 20
_FDS = 3
_POLL_SECONDS = 2.0


def main(fd: int, tuner: int) -> None:
    """Serve until the tuner closes its end of the socket, or ends.

    Parameters
    ----------
    fd
        Our end.
    tuner
        The tuner's process id.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # the thread that started this may have blocked it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    # Python warns of a fork while threads run; only BLAS has any, and they end before a fork
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    with socket.socket(fileno=fd) as sock:
        _import()
        _Serving(sock, tuner).loop()
    os._exit(0)


def _import() -> None:
    """Import the modules of all workers, without torch."""
    from pruner_ms.tvm_compat.no_torch import light_imports

    with light_imports():
        from pruner_ms.trials import build_job, run_job, worker  # noqa: F401
        from pruner_ms.tvm_compat import intrinsics, passes, paths  # noqa: F401

        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # otherwise each worker's first collection would copy all pages


class _Serving:
    """The loop over the tuner's requests and the workers' exits."""

    def __init__(self, sock: socket.socket, tuner: int) -> None:
        self.sock, self.tuner = sock, tuner
        self.numbers: dict[int, int] = {}
        self.wake, self.woken = os.pipe()
        for end in (self.wake, self.woken):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.woken, warn_on_full_buffer=False)

    def loop(self) -> None:
        """Serve until the tuner closes the socket."""
        with selectors.PollSelector() as selector:  # has no descriptor that workers would share
            selector.register(self.sock, selectors.EVENT_READ)
            selector.register(self.wake, selectors.EVENT_READ)
            while os.getppid() == self.tuner:
                ready = {key.fileobj for key, _ in selector.select(_POLL_SECONDS)}
                if self.wake in ready:
                    with suppress(BlockingIOError):
                        os.read(self.wake, 1 << 12)
                self._reap()
                if self.sock in ready and not self._serve():
                    return

    def _serve(self) -> bool:
        """Fork the requested worker; false when the socket is closed."""
        try:
            message, fds, _, _ = socket.recv_fds(self.sock, _LONGEST, _FDS)
        except OSError:
            return False
        if not message:
            return False
        request = json.loads(message)
        try:
            pid = os.fork()
        except OSError:  # the system refuses a process
            pid = None
        if pid == 0:
            self._run_worker(request, fds)
        for fd in fds:
            os.close(fd)
        if pid is None:
            self._say("ended", request["number"], 1)
        else:
            self.numbers[pid] = request["number"]
            self._say("started", request["number"], pid)
        return True

    def _run_worker(self, request: dict[str, Any], fds: list[int]) -> None:
        """Run the worker in the child; never returns."""
        try:
            for fd in (self.sock.fileno(), self.wake, self.woken):
                os.close(fd)
            _work(request, *fds)
        except BaseException:
            traceback.print_exc()
        finally:  # the child must never return to the fork server's loop
            os._exit(1)

    def _reap(self) -> None:
        """Report the status of each worker that has ended, and kill its process group."""
        with suppress(ChildProcessError):
            # its process id is not reused before it has been waited for
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = ended.si_pid
                number = self.numbers.pop(pid, None)
                if number is not None:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                if number is not None:
                    self._say("ended", number, os.waitstatus_to_exitcode(status))

    def _say(self, what: str, number: int, value: int) -> None:
        """Send to the tuner, which may be busy or gone."""
        text = json.dumps([what, number, value]).encode()
        while os.getppid() == self.tuner:
            try:
                self.sock.send(text, socket.MSG_DONTWAIT)
            except BlockingIOError:
                select.select([], [self.sock], [], _POLL_SECONDS)
            except OSError:
                return  # the loop will find out
            else:
                return


def _work(request: dict[str, Any], talk: int, life: int, log: int) -> None:
    """Serve the tuner as a worker with its own interpreter does."""
    from pruner_ms.trials import worker

    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    os.environ.update(request["changed"])
    for name in request["removed"]:
        os.environ.pop(name, None)
    sys.path[:] = request["path"] or sys.path
    if request["folder"] is not None:
        os.chdir(request["folder"])
    if request["processors"] is not None:
        os.sched_setaffinity(0, request["processors"])
    tempfile.tempdir = None  # it may have been looked up under the fork server's TMPDIR
    worker.main(talk, life, request["memory_limit_bytes"])
