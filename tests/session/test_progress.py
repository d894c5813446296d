from __future__ import annotations

import threading

import pytest

from pruner_ms.session.budget import Budget
from pruner_ms.session.progress import Progress, TaskState
from pruner_ms.types import Failed, FailureKind, Ok


class Clock:
    """A clock that a test turns."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def made(budget: Budget, clock: Clock | None = None) -> Progress:
    tasks = [TaskState("a", 2.0, 1e6), TaskState("b", 1.0, 1e6)]
    return Progress(tasks, budget, clock=clock or Clock())


def test_the_curve_holds_improvements_and_the_weighted_total() -> None:
    clock = Clock()
    progress = made(Budget(10), clock)
    a, b = progress.tasks
    clock.now += 5
    progress.record(a, Ok((3e-3,)))
    assert progress.curve[-1].total_s is None
    progress.record(b, Ok((1e-3,)))
    progress.record(b, Ok((2e-3,)))
    progress.record(a, Ok((1e-3, 3e-3)))
    assert [(p.task, p.trials, p.seconds) for p in progress.curve] == [
        ("a", 1, 5.0),
        ("b", 2, 5.0),
        ("a", 4, 5.0),
    ]
    assert progress.curve[-1].total_s == pytest.approx(2 * 2e-3 + 1e-3)
    assert a.gain is None
    progress.untuned(a, Ok((5e-3,)))
    assert (a.gain, progress.trials) == (pytest.approx(2.5), 4)  # it is no trial
    assert a.gflops == pytest.approx(1e6 / 2e-3 / 1e9)


def test_failures_are_counted_by_kind_and_make_no_best() -> None:
    progress = made(Budget(10))
    a = progress.tasks[0]
    progress.record(a, Failed(FailureKind.BUILD, "x"))
    progress.record(a, Failed(FailureKind.NONFINITE, "x"))
    assert a.failures == {"build": 1, "nonfinite": 1}
    assert (a.best_s, a.gain, a.since_gain, progress.failed) == (None, None, 2, 2)


def test_trials_in_flight_count_towards_the_budget() -> None:
    progress = made(Budget(4))
    a = progress.tasks[0]
    a.in_flight = 4
    assert progress.over() == "budget"
    a.in_flight = 3
    assert progress.over() is None
    progress.record(a, Ok((1.0,)))
    assert (progress.trials, a.in_flight, progress.over()) == (1, 2, None)


def test_earlier_trials_count_towards_the_budget_and_not_towards_patience() -> None:
    progress = made(Budget(2, patience=1))
    a = progress.tasks[0]
    progress.adopt(a, Ok((1e-3,)))
    progress.adopt(a, Failed(FailureKind.RUN, "x"))
    assert progress.over() == "budget"
    assert (progress.resumed, a.since_gain, a.failures) == (2, 0, {"earlier": 1})
    assert progress.curve == []


def test_time_and_stop() -> None:
    clock = Clock()
    stop = threading.Event()
    progress = Progress([TaskState("a", 1, 1)], Budget(9, seconds=10), stop=stop, clock=clock)
    assert progress.over() is None
    clock.now += 10
    assert progress.over() == "time"
    stop.set()
    assert progress.over() == "interrupted"


def test_eta_follows_the_speed_of_this_run_and_the_time_limit() -> None:
    clock = Clock()
    progress = made(Budget(11, seconds=30), clock)
    a = progress.tasks[0]
    progress.adopt(a, Ok((1.0,)))
    assert progress.eta_s == 30
    clock.now += 10
    progress.record(a, Ok((1.0,)))
    assert progress.eta_s == 20
    clock.now += 10
    for _ in range(4):
        progress.record(a, Ok((1.0,)))
    assert progress.eta_s == pytest.approx(10)


def test_the_observer_hears_of_each_change_once() -> None:
    heard: list[int] = []
    progress = Progress([TaskState("a", 1, 1)], Budget(9), lambda p: heard.append(p.trials))
    task = progress.tasks[0]
    progress.record(task, Ok((1.0,)))
    progress.end(task, "patience")
    progress.end(task, "budget")
    progress.note("careful")
    progress.note("careful")
    assert heard == [1, 1, 1]
    assert (task.ended, progress.notes) == ("patience", ["careful"])


@pytest.mark.parametrize("error", [OSError(5, "no terminal"), SystemExit(1), ValueError("x")])
def test_an_observer_that_fails_is_told_once_and_ends_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []

    def fails(progress: Progress) -> None:
        heard.append(progress.trials)
        raise error

    progress = Progress([TaskState("a", 1, 1)], Budget(9), fails)
    for _ in range(3):
        progress.record(progress.tasks[0], Ok((1.0,)))
    assert (heard, progress.trials) == ([1], 3)
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


def test_ctrl_c_in_an_observer_is_passed_on() -> None:
    def pressed(progress: Progress) -> None:
        raise KeyboardInterrupt

    progress = Progress([TaskState("a", 1, 1)], Budget(9), pressed)
    with pytest.raises(KeyboardInterrupt):
        progress.note("careful")
