"""A pool of persistent worker processes. A failing job affects no other."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import selectors
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pruner_ms.clock import awake
from pruner_ms.errors import EnvironmentFault
from pruner_ms.trials import limits, wire
from pruner_ms.trials.failures import looks_like_memory
from pruner_ms.trials.forkserver import ForkServer, disable, shared
from pruner_ms.trials.jobs import Answer, Batch, PoolOptions
from pruner_ms.trials.process import Worker, WorkerSpec
from pruner_ms.types import Failed, FailureKind

# A pool's folder for temporary files, and the removal of those of killed tuners.

_PREFIX = "pruner-ms-"
_NEW = "new-pruner-ms-"
_LOCK = "lock"


class PoolFolder:
    """A folder whose owner process holds a lock on a file in it.

    The kernel releases the lock when the owner dies, so that the next tuner of the same user
    recognises an abandoned folder and removes it.

    Attributes
    ----------
    path
        The folder.
    scratch
        A folder in it, for the workers' `TMPDIR`.
    """

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir())
        sweep(root)
        fresh = Path(tempfile.mkdtemp(prefix=_NEW))  # not swept under this name: no lock yet
        self._lock = os.open(fresh / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = fresh.rename(root / fresh.name.removeprefix("new-"))
        self.scratch = self.path / "tmp"
        self.scratch.mkdir()

    def remove(self) -> None:
        """Remove the folder with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)
        self._lock = -1


def sweep(root: Path) -> list[Path]:
    """Remove this user's folders in `root` whose owner is dead; return them."""
    removed: list[Path] = []
    for folder in root.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):  # removed meanwhile, or locked by a live owner
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
            finally:
                os.close(lock)
    return removed


_log = logging.getLogger(__name__)
_TICK_SECONDS = 0.1
_START_TRIES = 3
_EXIT_SECONDS = 0.2


class Pool:
    """Persistent workers that are started on demand.

    Parameters
    ----------
    factory, args
        `factory(*args)` is called once in every worker and returns the function that does jobs.
        It is looked up by name in the worker; user functions among the arguments are pickled as by
        TVM's pools.
    options
        See `PoolOptions`.

    Attributes
    ----------
    home
        Folder for files of the pool's jobs, removed by `close`; the workers' `TMPDIR` is in it.
    """

    def __init__(
        self, factory: Callable[..., Any], args: tuple[Any, ...], options: PoolOptions
    ) -> None:
        self.options = options
        setup = wire.pack_setup(factory, args)
        home = PoolFolder()
        self.home = home.path
        environment = {"TMPDIR": str(home.scratch)}
        self._spec = WorkerSpec(setup, options.memory_limit_bytes, environment)
        self._workers: list[Worker] = []
        self._lock = threading.Lock()
        self._failed_starts = 0
        self._degraded = False
        self._fork_servers: list[ForkServer] = []
        self._owner = os.getpid()
        held = (self._workers, self._fork_servers, home, self._owner)
        self._finalizer = weakref.finalize(self, _shut, *held)

    @property
    def open(self) -> bool:
        """Whether it has not been closed."""
        return self._finalizer.alive

    def pids(self) -> list[int]:
        """Process ids of the workers alive."""
        return [worker.pid for worker in self._workers if worker.pid]

    def warm_up(self) -> None:
        """Start all workers now, without waiting: their imports overlap with the caller's work."""
        self._require_owner()
        with self._lock:
            self._require_open()
            while len(self._workers) < self.options.max_workers and self._start_worker():
                self._workers[-1].flush()  # the set-up: sockets are polled only during batches

    def close(self) -> None:
        """Kill the workers and remove the temporary files. Twice is harmless."""
        self._finalizer()

    def map(self, jobs: Sequence[list[Any]]) -> list[Answer | Failed]:
        """Do jobs, each a list of JSON values; return one answer or failure for each, in order.

        Raises
        ------
        EnvironmentFault
            Workers cannot be started: the message has their output. Or this is a fork of the
            process that made the pool.
        """
        self._require_owner()
        with self._lock:
            self._require_open()
            batch = Batch(jobs)
            try:
                while batch.unfinished:
                    self._hand_out(batch)
                    self._listen(batch)
                # a worker that still imports would disturb the next measurements
                while jobs and any(not worker.ready for worker in self._workers):
                    self._listen(batch)
            finally:
                for worker in [w for w in self._workers if w.job is not None]:
                    self._remove(worker)  # only after an exception: its answer is not read
            return batch.results()

    def _require_owner(self) -> None:
        """Refuse to run in a fork of the tuner: workers and sockets belong to its parent."""
        if os.getpid() != self._owner:
            raise EnvironmentFault(
                "this builder or runner was made in another process; make a new one in this one"
            )

    def _require_open(self) -> None:
        if not self.open:
            raise EnvironmentFault("this builder or runner has been closed; make a new one")

    def _start_worker(self) -> bool:
        """Start one more worker; false where the system refuses one, and there are others."""
        fork_server = shared() if self.options.preloaded else None
        # referenced, so that it runs until this pool is closed
        self._fork_servers[:] = [] if fork_server is None else [fork_server]
        try:
            worker = Worker(self._spec, fork_server)
        except OSError as error:
            reason = error.strerror or str(error)
            if not self._workers:
                raise EnvironmentFault(
                    f"no trial worker can be started: {reason}; raise the limits on processes and "
                    "open files (ulimit -u, ulimit -n), or end other programs"
                ) from error
            if not self._degraded:
                _log.warning("%d workers have to do: %s", len(self._workers), reason)
            self._degraded = True
            return False
        self._workers.append(worker)
        return True

    def _hand_out(self, batch: Batch) -> None:
        if not batch.waiting:
            return
        most = self.options.maximum_uses
        for worker in [w for w in self._workers if not w.busy]:
            if worker.has_exited() or (most is not None and worker.uses >= most):
                self._remove(worker)
            elif batch.waiting:
                number = batch.waiting.popleft()
                worker.assign(number, batch.jobs[number], self.options.timeout_sec)
        starting = sum(not worker.ready for worker in self._workers)
        free_slots = self.options.max_workers - len(self._workers)
        for _ in range(min(free_slots, len(batch.waiting) - starting)):
            if not self._start_worker():
                break

    def _listen(self, batch: Batch) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                write = selectors.EVENT_WRITE if worker.wants_to_write else 0
                selector.register(worker.socket, selectors.EVENT_READ | write, (worker, False))
                if worker.log_open:
                    selector.register(worker.log_fd, selectors.EVENT_READ, (worker, True))
            events = [(*key.data, mask) for key, mask in selector.select(_TICK_SECONDS)]
        for worker, is_log, mask in events:
            if worker not in self._workers:
                continue
            if is_log:
                worker.drain()
                continue
            if mask & selectors.EVENT_WRITE:
                worker.flush()
            if mask & selectors.EVENT_READ:
                self._take(worker, batch)
        for worker in [w for w in self._workers if w.busy]:
            self._check_limits(worker, batch)

    def _take(self, worker: Worker, batch: Batch) -> None:
        messages, more = worker.receive()
        for message in messages:
            number = worker.job
            if message.get("id") == "setup":
                self._started(worker, message)
            elif number is not None and message.get("id") == number:
                if "taken" in message:
                    worker.accepted = True
                    self._failed_starts = 0
                else:
                    self._done(worker, batch, number, message)
        if not more and worker in self._workers:
            self._lost(worker, batch)

    def _started(self, worker: Worker, message: dict[str, Any]) -> None:
        if "error" in message:
            self._remove(worker)
            raise EnvironmentFault(f"a trial worker cannot be set up: {message['error']}")
        worker.ready = True
        worker.finish()

    def _done(self, worker: Worker, batch: Batch, number: int, message: dict[str, Any]) -> None:
        seconds = awake() - (worker.deadline - self.options.timeout_sec)
        worker.finish()
        if "error" not in message:
            batch.put(number, Answer(message["value"], seconds))
            return
        text = str(message["error"])
        memory = looks_like_memory(text)
        batch.put(number, Failed(FailureKind.MEMORY if memory else self.options.on_error, text))
        if memory or message.get("spoiled"):
            self._remove(worker)

    def _check_limits(self, worker: Worker, batch: Batch) -> None:
        limit = self.options.memory_limit_bytes
        late = awake() > worker.deadline
        if worker.has_exited() or late:
            self._take(worker, batch)  # a last message may be in the socket
            if worker not in self._workers or not worker.busy:
                return
        if worker.has_exited():
            self._lost(worker, batch)
        elif limit is not None and limits.resident_bytes(worker.pid) > limit:
            text = f"killed above {limit} bytes of memory"
            self._drop(worker, batch, Failed(FailureKind.MEMORY, text))
        elif late:
            text = f"killed after {self.options.timeout_sec:g} s"
            self._drop(worker, batch, Failed(self.options.on_timeout, text))

    def _lost(self, worker: Worker, batch: Batch) -> None:
        worker.wait(_EXIT_SECONDS)
        tail = worker.tail()
        # only the kernel sends SIGKILL, when memory runs out
        memory = worker.killed() or looks_like_memory(tail)
        text = worker.how_it_ended() + (f"; it printed:\n{tail}" if tail else "")
        self._drop(worker, batch, Failed(FailureKind.MEMORY if memory else FailureKind.CRASH, text))

    def _drop(self, worker: Worker, batch: Batch, failed: Failed) -> None:
        number, idle = worker.job, not worker.busy
        self._remove(worker)
        if number is not None and worker.accepted and not worker.lost_with_server:
            batch.put(number, failed)
            return
        if number is not None:
            batch.waiting.appendleft(number)  # it died before it received the job: try another
        if not worker.pid:
            disable()  # no error is known; a worker with its own interpreter reports it
            return
        self._failed_starts += not idle and not worker.lost_with_server
        _log.warning("a trial worker ended without a job: %s", failed.message)
        if self._failed_starts >= _START_TRIES:
            raise EnvironmentFault(
                f"trial workers do not start ({_START_TRIES} tries); the last: {failed.message}"
            )

    def _remove(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.kill()


def _shut(
    workers: list[Worker], fork_servers: list[ForkServer], home: PoolFolder, owner: int
) -> None:
    if os.getpid() != owner:
        return  # a fork of the tuner must not end the tuner's workers
    while workers:
        workers.pop().kill()
    fork_servers.clear()
    home.remove()
