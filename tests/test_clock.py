"""A pause of the process is no time that passed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from pruner_ms.clock import PAUSE_SECONDS, AwakeClock, awake, pauses, run, undisturbed
from pruner_ms.session.budget import Budget
from pruner_ms.session.progress import Progress, TaskState
from tests.conftest import TurnedClock


def test_what_nobody_saw_pass_is_not_counted() -> None:
    now = TurnedClock()
    awake_clock = AwakeClock(now)
    start = awake_clock()
    for _ in range(4):
        now.now += PAUSE_SECONDS
        awake_clock()
    assert (awake_clock() - start, awake_clock.pauses) == (4 * PAUSE_SECONDS, 0)
    for number in (1, 2):
        now.now += 3600.0
        assert (awake_clock() - start, awake_clock.pauses) == (4 * PAUSE_SECONDS, number)
    now.now += 1.0
    assert awake_clock() - start == 4 * PAUSE_SECONDS + 1.0


def test_somebody_looks_while_nobody_asks() -> None:
    start, before, wall = awake(), pauses(), time.monotonic()
    time.sleep(PAUSE_SECONDS + 0.5)
    assert pauses() == before
    assert awake() - start == pytest.approx(time.monotonic() - wall, abs=0.1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_has_a_clock_of_its_own() -> None:
    awake()
    code = (
        "import os, threading, time\n"
        "from pruner_ms.clock import awake\n"
        "awake()\n"
        "if os.fork() == 0:\n"
        "    start = awake()\n"
        "    time.sleep(2.5)\n"
        "    named = [t.name for t in threading.enumerate()]\n"
        "    os._exit(0 if awake() - start > 2 and 'pruner-ms-clock' in named else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_a_pause_fell_into_is_done_again(turned: TurnedClock) -> None:
    lengths = [60.0, 60.0, 0.1, 0.1]
    done: list[float] = []

    def call() -> float:
        done.append(lengths[len(done)])
        turned.now += done[-1]
        return done[-1]

    assert undisturbed(call) == 0.1 and done == [60.0, 60.0, 0.1]
    lengths[:] = [60.0] * 8
    done.clear()
    # what keeps the machine from running each time is taken for what it is
    assert undisturbed(call) == 60.0 and len(done) == 3


def test_a_budget_in_seconds_is_not_used_up_by_a_pause(turned: TurnedClock) -> None:
    progress = Progress([TaskState("a", 1.0, 1e6)], Budget(10, seconds=30.0))
    turned.now += 86400.0
    assert progress.over() is None
    for _ in range(16):
        turned.now += PAUSE_SECONDS
        over = progress.over()
    assert over == "time"


def test_a_process_says_what_it_wrote_and_is_killed_after_its_time() -> None:
    done = run([sys.executable, "-c", "import sys; print('out'); sys.exit('err')"], 60.0)
    assert (done.returncode, done.stdout, done.stderr) == (1, "out\n", "err\n")
    start = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run(["sh", "-c", "echo half; exec sleep 60"], 0.5)
    assert time.monotonic() - start < 30.0
    assert caught.value.output in (b"half\n", "half\n") and caught.value.timeout == 0.5
    with pytest.raises(OSError, match="no such program"):
        run(["no such program"], 1.0)


def test_a_pause_does_not_kill_a_process(turned: TurnedClock) -> None:
    threading.Timer(0.3, lambda: setattr(turned, "now", turned.now + 600.0)).start()
    assert run(["sleep", "1"], 30.0).returncode == 0
