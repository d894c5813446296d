"""Ctrl-C: once ends the session after its batch; twice ends it immediately.

SIGINT is blocked in the tuning thread and received by a thread that waits for it. So it works while
the search is in C++, and workers started meanwhile inherit the blocked signal: the terminal sends
Ctrl-C to all of them, which would fail the candidates they are building.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

EXIT_CODE = 130
_current: CtrlC | None = None


def stop_now() -> None:
    """End this process and its children immediately."""
    _kill_children()
    os.write(2, b"\nstopped; what was measured is saved, the same command resumes\n")
    os._exit(EXIT_CODE)


def _kill_children() -> None:
    try:
        import psutil
    except ImportError:
        return  # the workers end when their pipe closes
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.Error:
            continue


def raise_if_pressed_twice() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed twice in the current context.

    TVM changes the class of an exception: call this where an error of TVM's is caught.
    """
    if _current is not None and _current.count > 1:
        raise KeyboardInterrupt


class CtrlC:
    """A context in which the first Ctrl-C calls `first` and the second `second`.

    Outside the main thread, where Python allows no signal handlers, it does nothing.

    Parameters
    ----------
    first
        Called in another thread; must only set flags.
    second
        None: KeyboardInterrupt is raised in the main thread.

    Attributes
    ----------
    count
        Number of times that Ctrl-C was pressed.
    """

    def __init__(
        self, first: Callable[[], None], second: Callable[[], None] | None = stop_now
    ) -> None:
        self.count = 0
        self._first = first
        self._second = second
        self._done, self._woken = threading.Event(), threading.Event()
        self._old: object = None
        self._outer: CtrlC | None = None
        self._active = False
        self._watcher = threading.Thread(target=self._watch, name="pruner-ms-ctrl-c", daemon=True)

    def _pressed(self) -> None:
        self.count += 1
        if self.count == 1:
            self._first()
        elif self._second is not None:
            self._second()

    def _watch(self) -> None:
        try:
            # no time limit: `sigtimedwait` also returns a value if SIGCONT interrupts it
            while signal.sigwait({signal.SIGINT}) and not self._done.is_set():
                self._pressed()
                if self.count > 1 and self._second is None:
                    _thread.interrupt_main()
        finally:
            self._woken.wait()  # otherwise a signal could be sent to a thread that has ended

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # reached when another thread of the process has the signal unblocked
        if self.count > 1:
            raise KeyboardInterrupt
        self._pressed()
        if self.count > 1:
            raise KeyboardInterrupt

    def __enter__(self) -> CtrlC:
        global _current
        in_main = threading.current_thread() is threading.main_thread()
        self._active = in_main and sys.platform != "win32"
        if self._active:
            self._outer, _current = _current, self
            self._old = signal.signal(signal.SIGINT, self._handle)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _current
        if not self._active:
            return
        _current = self._outer
        self._done.set()
        if self._watcher.ident is not None:
            signal.pthread_kill(self._watcher.ident, signal.SIGINT)
        self._woken.set()
        self._watcher.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, self._old)  # type: ignore[arg-type]
