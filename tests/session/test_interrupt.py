"""Ctrl-C is a SIGINT and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import pytest

from pruner_ms.session.interrupt import CtrlC


def stopped(name: str, seconds: float = 0.3) -> None:
    """Have this process stopped and continued by another one."""
    pid = os.getpid()
    script = f"sleep 0.1; kill -{name} {pid}; sleep {seconds}; kill -CONT {pid}"
    subprocess.run(["sh", "-c", script], check=True)


def pressed(count: CtrlC, wanted: int) -> bool:
    """Whether it was pressed so often, within a second."""
    end = time.monotonic() + 1.0
    while count.count != wanted and time.monotonic() < end:
        time.sleep(0.01)
    return count.count == wanted


def test_a_pause_is_no_ctrl_c_not_even_after_one() -> None:
    stop = threading.Event()
    with CtrlC(stop.set, second=None) as keys:
        for name in ("STOP", "TSTP", "STOP"):
            stopped(name)
        assert not stop.is_set() and keys.count == 0
        os.kill(os.getpid(), signal.SIGINT)
        assert pressed(keys, 1) and stop.is_set()
        stopped("STOP")
        assert keys.count == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(50):
                time.sleep(0.1)
        assert keys.count == 2


def test_other_signals_are_no_ctrl_c() -> None:
    came: list[int] = []
    numbers = [signal.SIGALRM, signal.SIGUSR1, signal.SIGWINCH, signal.SIGCHLD]
    old = [signal.signal(number, lambda number, _: came.append(number)) for number in numbers]
    try:
        with CtrlC(lambda: came.append(0), second=None) as keys:
            for number in numbers * 3:
                os.kill(os.getpid(), number)
            time.sleep(0.3)
            assert keys.count == 0 and set(came) == set(numbers)
    finally:
        for number, handler in zip(numbers, old, strict=True):
            signal.signal(number, handler)


def test_left_it_takes_no_signal_any_more() -> None:
    before = threading.active_count()
    for _ in range(20):
        with CtrlC(lambda: None, second=None) as outer, CtrlC(lambda: None, second=None):
            pass
    assert outer.count == 0 and threading.active_count() == before
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5.0)


def test_what_the_first_one_calls_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: said.append(str(args.exc_value)))

    def fails() -> None:
        raise OSError("the screen is gone")

    with CtrlC(fails, second=None) as keys:
        signal.pthread_kill(keys._watcher.ident, signal.SIGINT)  # no other thread may take it
        assert pressed(keys, 1)
    assert said == ["the screen is gone"]
