"""Ctrl-C: once, the session ends after its batch; twice, at once.

SIGINT is blocked in the thread that tunes and taken by a thread that waits for it. A search deep
in C++ is therefore no obstacle, and workers that are started meanwhile inherit the blocked signal:
the terminal's Ctrl-C goes to all of them, and would fail the candidates they are building.
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
    """End this process and what it started; nothing is waited for."""
    _kill_children()
    os.write(2, b"\nstopped; what was measured is saved, the same command resumes\n")
    os._exit(EXIT_CODE)


def _kill_children() -> None:
    try:
        import psutil
    except ImportError:
        return  # the workers end when they find their pipe closed
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.Error:
            continue


def raise_if_pressed_twice() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed for the second time in the context in force.

    On its way through TVM it loses its class: whoever catches an error of TVM's asks here.
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
        How often Ctrl-C was pressed.
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
            # no time-out: `sigtimedwait` gives a value, too, where SIGCONT ends it after its time
            while signal.sigwait({signal.SIGINT}) and not self._done.is_set():
                self._pressed()
                if self.count > 1 and self._second is None:
                    _thread.interrupt_main()
        finally:
            self._woken.wait()  # or a signal would be sent to a thread that is no more

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
