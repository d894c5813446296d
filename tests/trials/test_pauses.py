"""A pause of the tuner, or of all that it started, is no candidate's fault."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace

import pytest

pytest.importorskip("tvm")

from pruner_ms.clock import PAUSE_SECONDS, pauses
from pruner_ms.trials.jobs import Answer
from pruner_ms.trials.pool import Pool
from pruner_ms.trials.remote import RetriedFuture
from pruner_ms.trials.runner import PersistentRunner
from pruner_ms.tvm_compat.paths import ms
from tests.trials.conftest import fakes


def make_steps():
    """A job of so many short sleeps: what a pause takes from them is not made up for."""

    def factory():
        import time

        def steps(count):
            for _ in range(count):
                time.sleep(0.01)
            return count

        return steps

    return factory


@pytest.mark.parametrize("with_workers", [False, True], ids=["tuner", "all"])
@pytest.mark.parametrize("preloaded", [False, True], ids=["own", "forked"])
@pytest.mark.sampled(2)
def test_a_pause_longer_than_the_time_limit_costs_no_job(with_workers, preloaded):
    pool = Pool(make_steps(), (), fakes.options(timeout_sec=2.5, preloaded=preloaded))
    try:
        pool.map([[1]] * 2)
        before = pauses()
        pids = [os.getpid(), *(pool.pids() if with_workers else [])]
        named = " ".join(map(str, reversed(pids)))
        seconds = PAUSE_SECONDS + 1.0
        script = f"sleep 0.3; kill -STOP {named}; sleep {seconds}; kill -CONT {named}"
        with subprocess.Popen(["sh", "-c", script]):
            answers = pool.map([[50]] * 2)
        assert answers == [Answer(50)] * 2
        assert pauses() == before + 1
        assert all(answer.seconds < seconds for answer in answers)
        assert pool.map([[1]]) == [Answer(1)]
    finally:
        pool.close()


def test_what_a_pause_fell_into_is_measured_again(turned, monkeypatch):
    runner = PersistentRunner()._inst
    measured = [[9.0], [1e-3], [2e-3]]

    def answer(jobs):
        assert len(jobs) == 1
        if len(measured) == 3:
            turned.now += 60.0
        return [Answer(measured.pop(0))]

    monkeypatch.setattr(runner.pool, "map", answer)
    inputs = [ms.runner.RunnerInput("artifact", "cpu", [])] * 2
    results = [one.result() for one in runner.run(inputs)]
    assert [[float(x) for x in one.run_secs] for one in results] == [[1e-3], [2e-3]]
    runner.close()


@pytest.mark.parametrize(
    ("said", "paused", "tries"),
    [("RPCRunner: Timeout", True, 2), ("session has expired", True, 2), ("no", False, 1)],
)
def test_a_remote_time_limit_that_a_pause_outlasted_is_tried_again(turned, said, paused, tries):
    begun = []

    def begin(message):
        begun.append(message)
        return SimpleNamespace(result=lambda: SimpleNamespace(error_msg=message), done=lambda: True)

    future = RetriedFuture(begin(said), lambda: begin(None))._inst
    turned.now += 60.0 if paused else 0.1
    assert future.done() is not paused
    assert future.result().error_msg == (None if paused else said) and len(begun) == tries
