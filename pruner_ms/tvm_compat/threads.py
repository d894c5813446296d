"""Parallel loops on as many threads as the target has cores.

Left to itself TVM takes as many threads as TVM_NUM_THREADS or OMP_NUM_THREADS says, and without
them half of the processors on x86, also where each core shows only one (`MaxConcurrency` in
src/runtime/threading_backend.cc). Its pool belongs to the thread that launches a loop, is made at
the first launch or configuration there, and never grows (src/runtime/thread_pool.cc).

Importing this imports no TVM.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from weakref import WeakValueDictionary, finalize

from pruner_ms.errors import EnvironmentFault
from pruner_ms.tvm_compat.ffi import get_global
from pruner_ms.tvm_compat.processors import all_usable, usable

VARIABLE = "TVM_NUM_THREADS"

TASKS = Path("/proc/self/task")
"""Threads of this process, on Linux."""

_FASTEST_FIRST = 1
"""TVM's own choice of cores."""


def cores_of(target: Any) -> int | None:
    """Cores that a target says its CPU has; None for other devices and where it says nothing."""
    cores: Any = dict(target.attrs).get("num-cores") if target.kind.name in ("llvm", "c") else None
    return None if cores is None else int(getattr(cores, "value", cores))


def threads_for(cores: int | None) -> int:
    """Threads that run here what is for so many cores (None: unknown, so those of this machine)."""
    return max(1, min(cores or _physical_cores(), usable()))


def _physical_cores() -> int:
    from pruner_ms.hardware import physical_cores  # a worker is told its number: 50 ms less

    return physical_cores()


def announce(number: int) -> None:
    """Let all pools that this process makes from now on have so many threads."""
    os.environ[VARIABLE] = str(number)


def use(number: int) -> None:
    """Let parallel loops that this thread launches run on so many threads.

    The effect is as if `TVM_NUM_THREADS` had said the number before TVM made the pool.

    Raises
    ------
    EnvironmentFault
        The pool of this thread was made before, with fewer.
    """
    _use(number, get_global)


def use_remotely(session: Any, number: int) -> None:
    """`use` in a session with an RPC server, before a kernel has run in it."""
    _use(number, session.get_function)


def _use(number: int, function: Callable[[str], Any]) -> None:
    from pruner_ms.tvm_compat.paths import ARRAY, STRING

    # TVM takes only the length of the list, which is what MaxConcurrency says from now on
    core = function(STRING)("0") if STRING else "0"
    listed = function(ARRAY)(*[core] * number)  # made where it is read: RPC sends no lists
    function("runtime.config_threadpool")(_FASTEST_FIRST, number, listed)
    said = int(function("runtime.NumThreads")())
    if said != number:
        raise EnvironmentFault(
            f"TVM's pool has {said} threads there and cannot have {number} any more; set "
            f"{VARIABLE}={number} before the first kernel runs"
        )


def keep_apart() -> None:
    """Take this thread off the cores to which TVM has pinned other threads of the process.

    Otherwise it may share such a core, and after a sleep it often does for some 50 ms: a kernel of
    two threads then takes twice its time. Does nothing if no thread is pinned or no core is left.
    """
    if not TASKS.is_dir() or not hasattr(os, "sched_getaffinity"):
        return
    own, me = os.sched_getaffinity(0), threading.get_native_id()
    pinned: set[int] = set()
    for task in TASKS.iterdir():
        with suppress(OSError):  # a thread that has just ended
            cores = os.sched_getaffinity(int(task.name))
            pinned |= cores if len(cores) == 1 and int(task.name) != me else set()
    if pinned and own - pinned and own & pinned:
        os.sched_setaffinity(0, own - pinned)


def cores_here() -> int:
    """Cores that a target for this machine has: as many as the variable says, where it is set."""
    said = os.environ.get(VARIABLE, "")
    return min(int(said), usable()) if said.isdecimal() and int(said) else _physical_cores()


def surprise(cores: int | None) -> str | None:
    """Why programs for so many cores run here on another number of threads than was asked for."""
    said = os.environ.get(VARIABLE)
    if cores is None:
        return None
    if cores > usable():
        return (
            f"the target has {cores} cores and this process may use {usable()}: programs run here "
            f"on {usable()} threads"
        )
    if said is not None and said != str(cores):
        return (
            f"{VARIABLE}={said} does not count: records belong to a target, and this one has "
            f'{cores} cores; to tune for another number, give it as "num-cores" of the target'
        )
    return None


Caller = Callable[..., Any]
"""Takes a function and its arguments, and gives what it returns."""


class OwnThread:
    """A thread that runs programs on so many cores; the caller's pool and cores stay as they are.

    Calls wait for each other. It ends when nothing refers to it any more.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._begin()

    def _begin(self) -> None:
        self._owner, self._calls = os.getpid(), SimpleQueue[Any]()
        self._thread = threading.Thread(
            target=_serve, args=(self._calls,), name="pruner-ms-kernels", daemon=True
        )
        self._thread.start()
        finalize(self, self._calls.put, None)
        self(use, self._number)
        self(keep_apart)

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on the thread, and wait for what it returns or raises."""
        if threading.current_thread() is self._thread:
            return function(*args)
        if os.getpid() != self._owner:  # a fork has none of its parent's threads
            self._begin()
        answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._calls.put((function, args, answer))
        value, error = answer.get()
        try:
            if error is not None:
                raise error
            return value
        finally:
            del error  # it and this frame refer to each other: neither would be freed


def _serve(calls: SimpleQueue[Any]) -> None:
    while (call := calls.get()) is not None:
        function, args, answer = call
        try:
            answer.put((function(*args), None))
        except BaseException as error:  # whatever it is, the caller gets it
            answer.put((None, error))
        del call, function, args, answer  # or what they hold lives until the next call


_threads: WeakValueDictionary[int, OwnThread] = WeakValueDictionary()
_lock = threading.Lock()


def caller(target: Any) -> Caller:
    """How to call a program for a target: on its cores, or as ever where it is for no CPU.

    Who calls often should hold on to it: its threads end with the last reference.
    """
    cores = cores_of(target)
    if cores is None:
        return _as_ever
    number = threads_for(cores)
    with _lock:
        thread = _threads.get(number)
        if thread is None:
            thread = _threads[number] = OwnThread(number)
        return thread


_here = threading.local()
"""Of a thread: the process and the number with which `use` has configured its pool."""


def caller_in_place(target: Any) -> Caller:
    """As `caller`, but on the calling thread where its pool can be had, which is 30 us faster.

    The pool of that thread stays so; its cores are as before.
    """
    cores = cores_of(target)
    if cores is None:
        return _as_ever
    number, apart = threads_for(cores), cache(lambda: caller(target))

    def call(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args) if _in_place(number) else apart()(function, *args)

    return call


def _in_place(number: int) -> bool:
    """Whether loops that this thread launches run on so many threads from now on."""
    owner, configured = getattr(_here, "pool", (os.getpid(), None))
    if owner != os.getpid():
        return False  # in a fork the pool's threads are gone, and a launch would wait for ever
    if configured != number:
        with all_usable():  # TVM would leave the caller on the cores of its pool
            try:
                use(number)
            except EnvironmentFault:
                return False
        _here.pool = (owner, number)
    return True


def _as_ever(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)
