"""kill -9 at any moment, and Ctrl-C: what was measured is there afterwards."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pruner_ms.session.journal import Journal, parse_entry
from pruner_ms.tvm_compat.marks import marks_untuned

# one process serves many runs: a fork per run saves the seconds that importing TVM takes
_SERVER = """
import json, os, sys
from pathlib import Path
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import Target, te, te_workload
import_intrinsics()
from pruner_ms.session.budget import Budget
from pruner_ms.session.options import TaskSpec, TuneConfig
from pruner_ms.session.run import tune_session
from pruner_ms.testing.fakes import FakeBuilder, FakeRunner

def run(path, trials, seconds):
    target = Target(json.loads(sys.argv[1]))
    tasks = [TaskSpec("a", te.create_prim_func(te_workload.matmul(64, 64, 64)))]
    tasks.append(TaskSpec("b", te.create_prim_func(te_workload.matmul(32, 64, 128))))
    config = TuneConfig(
        Budget(trials), strategy="replay-trace", cost_model="random", num_threads=1,
        builder=FakeBuilder(0.1), runner=FakeRunner(seconds=seconds, log=path + "/ran.txt"),
    )
    result = tune_session(tasks, target, path, config)
    print(json.dumps([result.trials, result.resumed, result.interrupted]), flush=True)
    return 130 if result.interrupted else 0

for line in sys.stdin:
    path, trials, seconds = json.loads(line)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = run(path, trials, seconds)
        finally:
            os._exit(code)
    print(json.dumps(pid), flush=True)
    _, status = os.waitpid(pid, 0)
    print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)
"""


class Server:
    """Starts sessions in forks of a process that has TVM loaded."""

    def __init__(self, llvm: dict[str, object], scratch: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, json.dumps(llvm)],
            # who is killed leaves artifacts
            env={**os.environ, "TMPDIR": str(scratch)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, path: Path, trials: int, seconds: float) -> int:
        path.mkdir(exist_ok=True)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(path), trials, seconds]) + "\n")
        self.process.stdin.flush()
        return int(self.read())  # type: ignore[call-overload]

    def read(self) -> object:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server(llvm: dict[str, object], tmp_path_factory: pytest.TempPathFactory):
    session_server = Server(llvm, tmp_path_factory.mktemp("artifacts"))
    yield session_server
    assert session_server.process.stdin is not None
    session_server.process.stdin.close()
    session_server.process.wait(20)


def ran(path: Path) -> list[str]:
    log = path / "ran.txt"
    return log.read_text().split() if log.exists() else []


@pytest.mark.heavy
def test_killed_again_and_again_it_loses_one_trial_a_kill_at_most(
    server: Server, tmp_path: Path
) -> None:
    rng = random.Random(7)
    kills = 0
    while kills < 20 and len(ran(tmp_path)) < 100:
        # a budget that no run gets through: it is always alive when it is killed
        pid = server.start(tmp_path, 5000, 0.02)
        time.sleep(rng.uniform(0.05, 0.5))
        os.kill(pid, signal.SIGKILL)
        assert server.read() == -9
        kills += 1
    assert kills >= 4
    # trials that ran, and those that did not build: whole batches of these before the first run
    done_before = (tmp_path / "journal.jsonl").read_bytes().count(b"\n")
    assert done_before >= len(ran(tmp_path)) - kills
    budget = done_before + 20  # each of the two tasks has its untuned function beside it
    server.start(tmp_path, budget, 0.0)
    trials, resumed, _ = server.read()  # type: ignore[misc]
    assert server.read() == 0
    assert (trials, resumed) == (budget, done_before)
    runs = ran(tmp_path)
    # a trial may be run twice only when the kill came between its end and its line in the journal
    assert len(runs) - len(set(runs)) <= kills
    entries = [parse_entry(x)[1] for x in (tmp_path / "journal.jsonl").read_bytes().splitlines()]
    assert len({e.key for e in entries}) == len(entries)
    records = (tmp_path / "database_tuning_record.json").read_bytes().splitlines()
    assert len(records) == budget + 2
    best = min(sum(json.loads(r)[1][1]) for r in records)
    assert best == pytest.approx(
        min(e.measurement.latency for e in entries if hasattr(e.measurement, "latency"))
    )


def test_ctrl_c_once_finishes_the_batch_and_saves(server: Server, tmp_path: Path) -> None:
    pid = server.start(tmp_path, 5000, 0.02)
    while len(ran(tmp_path)) < 5:
        time.sleep(0.02)
    os.kill(pid, signal.SIGINT)
    started = time.monotonic()
    trials, _, interrupted = server.read()  # type: ignore[misc]
    assert server.read() == 130
    assert time.monotonic() - started < 5
    assert interrupted
    records = (tmp_path / "database_tuning_record.json").read_bytes().splitlines()
    # the untuned functions of the tasks that had a trial are measured all the same
    untuned = sum(marks_untuned(json.loads(record)[1][0]) for record in records)
    assert len(records) == trials + untuned < 200 and untuned in (1, 2)
    assert (tmp_path / "journal.jsonl").read_bytes().count(b"\n") == len(records)


@pytest.mark.heavy
def test_ctrl_c_twice_stops_at_once(server: Server, tmp_path: Path) -> None:
    pid = server.start(tmp_path, 5000, 1.0)
    while len(ran(tmp_path)) < 1:
        time.sleep(0.02)
    os.kill(pid, signal.SIGINT)
    time.sleep(0.5)
    os.kill(pid, signal.SIGINT)
    started = time.monotonic()
    # the status of a KeyboardInterrupt; a result would be a list, and come before the status
    assert server.read() == 1
    assert time.monotonic() - started < 3
    journal = Journal(tmp_path / "journal.jsonl", "any")
    journal.close()
    assert journal.damaged == []
    assert (tmp_path / "journal.jsonl").read_bytes().endswith(b"\n")
