"""Workers must not survive their tuner, however it ends. Each case is a process of its own."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from pruner_ms.trials.pool import sweep
from tests.trials.conftest import alive

_HEAD = """
import importlib.util, json, os, pathlib, signal, sys, threading, time
spec = importlib.util.spec_from_file_location("trial_fakes", sys.argv[1])
fakes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fakes)
from pruner_ms.trials.pool import Pool
pool = Pool(fakes.make_factory(), (), fakes.options(max_workers=2, preloaded=sys.argv[2] != "own"))

def tell():
    import psutil
    pids = pool.pids()
    above = {psutil.Process(pid).ppid() for pid in pids} - {os.getpid()}
    print(json.dumps({"pids": [*pids, *above], "home": str(pool.home)}), flush=True)
"""


def start(body, kind="own", **options):
    fakes = str(pathlib.Path(__file__).with_name("fakes.py"))
    command = [sys.executable, "-c", _HEAD + body, fakes, kind]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    told = json.loads(process.stdout.readline())
    assert told["pids"]
    return process, told


def living(pids):
    return [pid for pid in pids if alive(pid)]


def assert_gone(pids, seconds=8.0):
    end = time.monotonic() + seconds
    while living(pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert living(pids) == []


KINDS = ["own", "forked"]
"""Workers with an interpreter of their own, and those of a nursery (which has to end as well)."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "job",
    [["echo", 1], ["sleep", 60], ["loop"], ["hold the lock"], ["stop"]],
    ids=lambda job: job[0],
)
@pytest.mark.sampled(4)
def test_kill_9_of_the_tuner_ends_its_workers(job, kind):
    body = f"""
pool.map([["echo", 1]] * 2)
tell()
pool.map([{json.dumps(job)}] * 2)
time.sleep(60)
"""
    process, told = start(body, kind)
    time.sleep(0.5)
    assert len(living(told["pids"])) == 2 + (kind == "forked")
    process.kill()
    process.wait()
    assert_gone(told["pids"])


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_kill_9_while_a_fork_of_the_tuner_lives_on(kind):
    body = """
pool.map([["echo", 1]] * 2)
if os.fork() == 0:
    time.sleep(15)
    os._exit(0)
tell()
time.sleep(60)
"""
    process, told = start(body, kind, start_new_session=True)
    process.kill()
    process.wait()
    assert_gone(told["pids"])
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ending", "status", "clean"),
    [
        ("", 0, True),
        ("raise SystemExit(3)", 3, True),
        ("1 / 0", 1, True),
        ("os._exit(5)", 5, False),
    ],
    ids=["end", "exit", "error", "_exit"],
)
@pytest.mark.sampled(4)
def test_no_worker_is_left_at_the_end(ending, status, clean, kind, tmp_path_factory):
    body = f'pool.map([["echo", 1]] * 2)\ntell()\n{ending}\n'
    # a place of its own: the pools of tests beside this one sweep what lies in the common one
    own = os.environ | {"TMPDIR": str(tmp_path_factory.mktemp("own"))}
    process, told = start(body, kind, stderr=subprocess.DEVNULL, env=own)
    assert process.wait(20) == status
    assert_gone(told["pids"])
    assert pathlib.Path(told["home"]).exists() is not clean
    sweep(pathlib.Path(told["home"]).parent)  # the next tuner's pools do it
    assert not pathlib.Path(told["home"]).exists()


def test_the_folder_of_a_living_tuner_is_not_swept(make_pool, tmp_path):
    home = make_pool().home
    assert home not in sweep(home.parent)
    assert home.exists()
    (tmp_path / "pruner-ms-foreign").mkdir()  # no lock in it: not ours to judge
    assert sweep(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_that_ends_leaves_the_workers_of_its_parent(kind):
    body = """
first = pool.map([["pid"]])
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
pool.home.joinpath("proof").write_text("there")
assert pool.map([["pid"]]) == first
tell()
"""
    process, _ = start(body, kind)
    assert process.wait(20) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_thread_that_started_the_workers_may_end(kind):
    body = """
answers = []
thread = threading.Thread(target=lambda: answers.extend(pool.map([["pid"]] * 2)))
thread.start(); thread.join()
time.sleep(0.3)
assert {answer.value for answer in pool.map([["pid"]] * 2)} <= set(pool.pids())
assert {answer.value for answer in answers} <= set(pool.pids())
tell()
"""
    process, _ = start(body, kind)
    assert process.wait(20) == 0


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_in_the_terminal_does_not_reach_the_workers(kind):
    body = """
pool.map([["echo", 1]] * 2)
signal.signal(signal.SIGINT, lambda *_: None)
threading.Timer(0.5, tell).start()
answers = pool.map([["sleep", 1.5], ["pid"]])
assert [type(answer).__name__ for answer in answers] == ["Answer", "Answer"]
"""
    process, told = start(body, kind, start_new_session=True)
    os.killpg(process.pid, signal.SIGINT)
    assert len(living(told["pids"])) == 2 + (kind == "forked")
    assert process.wait(20) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_of_the_tuner_is_refused_its_parents_workers(kind):
    body = """
(first,) = pool.map([["echo", 1]])
child = os.fork()
if not child:
    status = 0
    for use in (lambda: pool.map([["echo", 2]]), pool.warm_up):
        try:
            use()
        except Exception as error:
            status += "made in another process; make a new one" in str(error)
    os._exit(status)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
(again,) = pool.map([["echo", 3]])
print(json.dumps({"pids": pool.pids(), "said": status, "values": [first.value, again.value]}))
"""
    process, told = start(body, kind)
    assert (told["said"], told["values"]) == (2, [1, 3])
    process.wait(20)
    assert_gone(told["pids"])
