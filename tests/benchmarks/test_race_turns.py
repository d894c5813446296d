"""Turns: who has none pays nothing, and whatever ends a tuner is said."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.race.tuners import TUNERS, without_torch
from benchmarks.race.turns import Clock, Line, Player

SCRIPT = """
import sys, time
from benchmarks.race.tuners import TUNERS, without_torch
from benchmarks.race.turns import Clock, Line
clock = Clock()
line = Line.standard(clock)
print("noise on standard output")
line.say("hello", argument=sys.argv[1])
for number in range(2):
    line.wait()
    line.say("trial", i=number, s=clock.seconds())
{last}
"""


def player(folder: Path, last: str) -> Player:
    command = [sys.executable, "-c", SCRIPT.format(last=last), "given"]
    return Player("one", command, folder / "log", {"PYTHONPATH": str(Path(__file__).parents[2])})


def test_a_tuner_speaks_until_it_gives_the_turn_back(tmp_path: Path) -> None:
    one = player(tmp_path, "line.say('end', why=None)")
    try:
        assert one.ready() == [{"k": "hello", "argument": "given"}]
        first = one.turn()
        assert [m["k"] for m in first] == ["trial"] and not one.over
        time.sleep(0.3)
        second, *rest = one.turn()
        assert rest == [{"k": "end", "why": None}] and one.over
        assert second["s"] - first[0]["s"] < 0.2, "the pause is not on its clock"
    finally:
        one.close()
    assert "noise" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("last", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)"])
def test_a_tuner_that_dies_has_ended_and_the_log_is_named(tmp_path: Path, last: str) -> None:
    one = player(tmp_path, last)
    try:
        one.ready()
        one.turn()
        *_, end = one.turn()
        assert end["k"] == "end" and "exit code" in end["why"] and "log" in end["why"]
        assert one.over
    finally:
        one.close()


def test_a_process_that_never_answers_is_ended_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        'print(\'{"k": "turn"}\', flush=True)\n'
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    one = Player("one", [sys.executable, "-c", code], tmp_path / "log")
    one.ready()
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.02)
    start = time.monotonic()
    one.close()
    assert time.monotonic() - start < 9
    status = Path("/proc") / (tmp_path / "pid").read_text() / "stat"
    for _ in range(100):  # whoever inherits it takes a moment to bury it
        if not status.exists() or status.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child lives on")


def test_the_clock_adds_up_turns() -> None:
    clock = Clock()
    assert clock.seconds() == 0
    for _ in range(2):
        clock.start()
        time.sleep(0.05)
        clock.stop()
        time.sleep(0.05)
    assert 0.1 <= clock.seconds() < 0.15 + 0.05
    clock.reset()
    assert clock.seconds() == 0


def test_the_end_of_the_race_ends_a_tuner() -> None:
    out = io.StringIO()
    line = Line(out, io.StringIO(""), Clock())
    with pytest.raises(SystemExit, match="over"):
        line.wait()
    assert json.loads(out.getvalue()) == {"k": "turn"}


def test_torch_is_hidden_from_who_has_no_use_for_it() -> None:
    tried = "import sys\ntry: import torch\nexcept ImportError: sys.exit(3)"
    code = subprocess.run(
        [sys.executable, "-c", tried], env={**os.environ, **without_torch()}, check=False
    ).returncode
    assert code == 3
    needed = {name for name, tuner in TUNERS.items() if tuner.needs_torch}
    assert needed == {"pruner", "pruner-full", "pruner-stock-space", "moa-full"}
