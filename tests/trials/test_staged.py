"""Timing in stages: short looks at bad candidates, the whole time for good ones."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pruner_ms.trials import run_job
from pruner_ms.trials.jobs import Answer
from pruner_ms.trials.run_job import (
    PROBE_SECONDS,
    WINDOWS,
    WORSE,
    RunSettings,
    StagedEvaluator,
    make_handler,
    probe,
    staged,
)


class Kernel:
    """A kernel of known seconds, which takes `asleep` times as long in its first `waking` seconds.

    `passes` notes runs and repeats of each pass, `ran` the seconds of all runs.
    """

    def __init__(self, seconds: float, asleep: float = 2.0, waking: float = 0.01) -> None:
        self.seconds, self.asleep, self.waking = seconds, asleep, waking
        self.ran = 0.0
        self.passes: list[tuple[int, int]] = []

    def _run(self) -> float:
        took = self.seconds * (self.asleep if self.ran < self.waking else 1.0)
        self.ran += took
        return took

    def __call__(self, number: int, repeat: int) -> Sequence[float]:
        self.passes.append((number, repeat))
        self._run()
        return [sum(self._run() for _ in range(number)) / number for _ in range(repeat)]


@pytest.mark.parametrize("seconds", [1e-5, 3e-4, 1e-3, 7e-3, 0.03, 0.2])
def test_a_candidate_near_the_best_has_the_whole_time(seconds: float) -> None:
    for best in (None, seconds, seconds / (0.99 * WORSE)):
        kernel = Kernel(seconds)
        (latency,) = staged(kernel, 3, 1, 0.1, best)
        assert latency == pytest.approx(seconds), "what slept while it was looked at does not count"
        number, repeat = kernel.passes[-1]
        assert repeat == min(WINDOWS, number * repeat)
        assert number * repeat >= 3 and number * repeat * seconds >= 0.099


def test_a_batch_begins_on_a_slow_machine() -> None:
    """The look and the first parts run at half the speed: that is nothing of the candidate's."""
    kernel = Kernel(0.001, asleep=2.0, waking=0.1)
    assert staged(kernel, 3, 1, 0.1, None) == [pytest.approx(0.001)]
    assert kernel.ran > 0.11


@pytest.mark.parametrize("seconds", [1e-5, 3e-4, 1e-3, 7e-3, 0.03, 0.2])
def test_a_bad_candidate_has_a_look(seconds: float) -> None:
    kernel = Kernel(seconds)
    (latency,) = staged(kernel, 3, 1, 0.1, seconds / (1.2 * WORSE))
    assert latency == pytest.approx(seconds, rel=0.02)
    assert kernel.ran < 0.06 + 3 * seconds, kernel.passes


def test_repeats_are_all_made() -> None:
    kernel = Kernel(0.001)
    assert len(staged(kernel, 3, 4, 0.1, 1e-6)) == 4
    assert kernel.passes[-4:] == [(20, WINDOWS)] * 4


def test_a_configuration_without_a_least_time_has_its_number_of_runs() -> None:
    kernel = Kernel(0.001)
    staged(kernel, 5, 1, 0.0, None)
    assert kernel.passes == [(1, 1), (1, 5)]


def test_a_look_is_short_and_a_slow_kernel_runs_twice() -> None:
    slow = Kernel(0.5)
    assert probe(slow, PROBE_SECONDS) == pytest.approx(0.5) and slow.passes == [(1, 1)]
    nothing = Kernel(0.0)
    assert probe(nothing, PROBE_SECONDS) == 0.0


class Built:
    """A module whose kernel is `Kernel`; arguments say which."""

    entry_name = "main"

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def time_evaluator(self, *, number: int, repeat: int, **facts: Any) -> Any:
        assert facts["func_name"] == "main" and facts["min_repeat_ms"] == 0
        return lambda *_args: SimpleNamespace(results=self.kernel(number, repeat))


def test_the_best_of_a_batch_is_never_timed_shortly() -> None:
    evaluate, device = StagedEvaluator(), SimpleNamespace(sync=lambda: None)
    config = SimpleNamespace(number=3, repeat=1, min_repeat_ms=100)

    def seconds_of_one(seconds: float) -> float:
        kernel = Kernel(seconds)
        assert evaluate(Built(kernel), device, config, [[]]) == [pytest.approx(seconds)]
        return kernel.ran

    evaluate.begin(1)
    assert seconds_of_one(0.001) > 0.1
    evaluate.begin(1)
    assert seconds_of_one(0.002) < 0.06
    assert seconds_of_one(0.0005) > 0.1, "the new best"
    assert seconds_of_one(0.001) < 0.06
    evaluate.begin(2)
    assert seconds_of_one(0.002) > 0.1, "another batch may be another task's"
    assert seconds_of_one(0.001) > 0.1


def test_each_allocation_of_the_arguments_is_timed() -> None:
    evaluate, device = StagedEvaluator(), SimpleNamespace(sync=lambda: None)
    config = SimpleNamespace(number=3, repeat=2, min_repeat_ms=10)
    assert len(evaluate(Built(Kernel(0.001)), device, config, [[], [], []])) == 6


@pytest.mark.parametrize(
    ("adaptive", "flush", "latency"), [(True, False, 1.0), (False, False, 2.0), (True, True, 2.0)]
)
def test_who_times_is_what_the_settings_say(
    monkeypatch: pytest.MonkeyPatch, adaptive: bool, flush: bool, latency: float
) -> None:
    paths = pytest.importorskip("pruner_ms.tvm_compat.paths")
    begun: list[object] = []

    class Stages:
        def begin(self, batch: object) -> None:
            begun.append(batch)

        def __call__(self, *_args: Any) -> list[float]:
            return [1.0]

    monkeypatch.setattr(run_job, "StagedEvaluator", Stages)
    monkeypatch.setattr(paths.local_runner, "default_run_evaluator", lambda *_args: [2.0])
    monkeypatch.setattr(paths.local_runner, "default_alloc_argument", lambda *_args: [[]])
    runtime = SimpleNamespace(device=lambda *_args: None, load_module=lambda _path: None)
    monkeypatch.setattr(paths, "runtime", runtime)
    settings = RunSettings((3, 1, 100, flush), 0.0, 1, None, None, None, None, adaptive)
    assert make_handler(settings)("artifact", "cpu", [], 1, 7) == [latency]
    assert begun == [7]


def test_each_call_of_the_runner_is_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    runner_module = pytest.importorskip("pruner_ms.trials.runner")
    runner = runner_module.PersistentRunner()
    jobs: list[list[Any]] = []

    def answers(asked: list[list[Any]]) -> list[Any]:
        jobs.extend(asked)
        return [Answer([1.0], 0.0) for _ in asked]

    runner_input = runner_module.ms.runner.RunnerInput
    monkeypatch.setattr(runner.pool, "map", answers)
    runner.run([runner_input(name, "cpu", []) for name in "ab"])
    runner.run([runner_input("c", "cpu", [])])
    with runner.batch():  # a session hands candidates on one at a time
        for name in "de":
            runner.run([runner_input(name, "cpu", [])])
    runner.run([runner_input("f", "cpu", [])])
    batches = [job[-1] for job in jobs]
    assert [batches.index(batch) for batch in batches] == [0, 0, 2, 3, 3, 5]
    runner.close()
