from __future__ import annotations

import os
import signal
import time

import pytest

from pruner_ms.errors import EnvironmentFault, OptionError
from pruner_ms.trials.jobs import Answer
from pruner_ms.trials.pool import Pool
from pruner_ms.types import Failed, FailureKind
from tests.trials.conftest import alive, fakes


@pytest.fixture(params=[False, True], ids=["own", "forked"])
def kind(request):
    """Workers with an interpreter of their own, and workers that are forked."""
    return {"preloaded": request.param}


def values(results):
    return [r.value if isinstance(r, Answer) else r for r in results]


def one(pool, *job):
    (result,) = pool.map([list(job)])
    return result


def gone(pid, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not alive(pid):
            return True
        time.sleep(0.02)
    return False


def test_answers_come_in_the_order_of_the_jobs(shared_pool):
    jobs = [["echo", i] for i in range(50)]
    assert values(shared_pool.map(jobs)) == list(range(50))
    assert shared_pool.map([]) == []


def test_no_worker_before_the_first_job_and_no_more_than_there_are_jobs(make_pool):
    pool = make_pool(max_workers=4)
    assert pool.pids() == []
    one(pool, "echo", 1)
    assert len(pool.pids()) == 1


def test_workers_live_over_batches(make_pool):
    pool = make_pool(max_workers=1)
    first = one(pool, "pid")
    one(pool, "keep", "state")
    assert one(pool, "pid") == first
    assert one(pool, "kept") == Answer("state")


def test_warm_up_returns_at_once_and_its_workers_are_used(make_pool):
    pool = make_pool(max_workers=2)
    start = time.monotonic()
    pool.warm_up()
    assert time.monotonic() - start < 0.5
    end = start + 60.0
    while len(pool.pids()) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    started = set(pool.pids())
    assert len(started) == 2
    assert set(values(pool.map([["pid"]] * 4))) <= started


def test_warm_up_has_its_workers_set_up_while_nobody_asks(tmp_path, kind):
    mark = tmp_path / "set up"

    def factory(path):
        with open(path, "w"):
            pass
        return lambda: None

    pool = Pool(factory, (str(mark),), fakes.options(max_workers=1, **kind))
    try:
        pool.warm_up()
        end = time.monotonic() + 20.0
        while not mark.exists() and time.monotonic() < end:
            time.sleep(0.02)
        assert mark.exists()
    finally:
        pool.close()


def test_a_worker_is_replaced_after_its_uses(make_pool):
    pool = make_pool(max_workers=1, maximum_uses=2)
    pids = values(pool.map([["pid"]] * 6))
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] == pids[5]
    assert all(gone(pid) for pid in pids[:4])


def test_long_messages_pass_in_both_directions(shared_pool):
    text = "x" * 3_000_000
    assert values(shared_pool.map([["echo", text], ["echo", text]])) == [text, text]


@pytest.mark.parametrize(
    ("job", "kind", "words"),
    [
        (["raise"], FailureKind.BUILD, "ZeroDivisionError"),
        (["sys.exit"], FailureKind.BUILD, "SystemExit"),
        (["unsendable"], FailureKind.BUILD, "cannot be sent"),
        (["no such way"], FailureKind.BUILD, "KeyError"),
        (["abort"], FailureKind.CRASH, "SIGABRT"),
        (["segfault"], FailureKind.CRASH, "SIGSEGV"),
        (["exit"], FailureKind.CRASH, "status 0"),
        (["forked holder"], FailureKind.CRASH, "status 7"),
        (["garbage"], FailureKind.CRASH, "garbage"),
        (["close everything"], FailureKind.CRASH, "garbage"),
        (["kill"], FailureKind.MEMORY, "SIGKILL"),
        (["loop"], FailureKind.BUILD_TIMEOUT, "after 2 s"),
        (["hold the lock"], FailureKind.BUILD_TIMEOUT, "after 2 s"),
        (["stop"], FailureKind.BUILD_TIMEOUT, "after 2 s"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
@pytest.mark.sampled(12)
def test_a_bad_job_costs_itself_only(shared_pool, job, kind, words):
    start = time.monotonic()
    good = ["sleep", 0.05]
    results = shared_pool.map([good, job, good, good, good])
    assert time.monotonic() - start < 2 + 5
    assert [r for i, r in enumerate(results) if i != 1] == [Answer(None)] * 4
    assert isinstance(results[1], Failed)
    assert results[1].kind is kind
    assert words in results[1].message


def test_an_interrupt_does_not_reach_a_job(shared_pool):
    assert one(shared_pool, "interrupt") == Answer(None)


def test_a_raised_error_keeps_the_worker(make_pool):
    pool = make_pool(max_workers=1)
    first = one(pool, "pid")
    assert isinstance(one(pool, "raise"), Failed)
    assert one(pool, "pid") == first


def test_what_a_job_prints_does_not_break_the_wire(make_pool):
    pool = make_pool(max_workers=1)
    first = one(pool, "pid")
    assert values(pool.map([["chatter"]] * 3)) == ["said"] * 3
    assert one(pool, "close output") == Answer(5)
    assert one(pool, "pid") == first


def test_waiting_for_a_worker_with_closed_output_takes_no_cpu(make_pool):
    pool = make_pool(max_workers=1)
    one(pool, "close output")
    start = time.process_time()
    one(pool, "sleep", 1.0)
    assert time.process_time() - start < 0.2


def test_memory_is_limited_by_the_system(make_pool):
    pool = make_pool(max_workers=1, memory_limit_bytes=1 << 29)
    result = one(pool, "eat", 50)
    assert isinstance(result, Failed)
    assert result.kind is FailureKind.MEMORY
    assert one(pool, "eat", 0.25) == Answer(4)


def test_memory_beyond_the_system_limit_is_watched(make_pool):
    pool = make_pool(max_workers=1, memory_limit_bytes=512 << 20)
    result = one(pool, "share", 1)
    assert isinstance(result, Failed)
    assert result.kind is FailureKind.MEMORY
    assert "killed above" in result.message


def test_a_timeout_kills_the_children_too(make_pool, tmp_path, monkeypatch):
    monkeypatch.setenv("SPAWNED", str(tmp_path / "pid"))
    pool = make_pool(max_workers=1, timeout_sec=1.5)
    assert one(pool, "spawn").kind is FailureKind.BUILD_TIMEOUT
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_worker_that_ends_leaves_no_child_in_its_group(make_pool, tmp_path, monkeypatch):
    monkeypatch.setenv("SPAWNED", str(tmp_path / "pid"))
    assert one(make_pool(max_workers=1), "leave a child").kind is FailureKind.CRASH
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_timeout_leaves_the_other_workers_alone(make_pool):
    pool = make_pool(max_workers=2, timeout_sec=1.0)
    pool.map([["sleep", 0.2]] * 2)
    before = set(pool.pids())
    results = pool.map([["loop"], ["pid"]])
    assert results[0].kind is FailureKind.BUILD_TIMEOUT
    assert results[1].value in before & set(pool.pids())


def test_workers_are_in_a_session_of_their_own(shared_pool):
    pid = one(shared_pool, "pid").value
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert os.getsid(0) != pid


def test_an_exception_in_the_middle_of_a_batch_leaves_a_usable_pool(make_pool):
    class StopError(Exception):
        pass

    def stop(*_):
        raise StopError

    pool = make_pool(max_workers=1)
    first = one(pool, "pid").value
    previous = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(StopError):
            pool.map([["sleep", 10]])
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert gone(first)
    assert one(pool, "echo", 3) == Answer(3)


def test_a_worker_killed_between_batches_is_replaced(make_pool):
    pool = make_pool(max_workers=1)
    first = one(pool, "pid").value
    os.kill(first, signal.SIGKILL)
    assert gone(first)
    assert one(pool, "pid").value != first


def test_a_setup_that_raises_is_one_clear_error(make_pool):
    def bad_factory():
        raise LookupError("no function of that name")

    pool = Pool(bad_factory, (), make_pool().options)
    with pytest.raises(EnvironmentFault, match="no function of that name"):
        pool.map([[]])
    pool.close()


def test_a_setup_that_dies_is_one_clear_error(make_pool):
    def dying_factory():
        os._exit(9)

    pool = Pool(dying_factory, (), make_pool().options)
    with pytest.raises(EnvironmentFault, match="status 9"):
        pool.map([[]])
    pool.close()


def test_a_closed_pool_says_so(make_pool):
    pool = make_pool()
    one(pool, "echo", 1)
    pids = pool.pids()
    pool.close()
    pool.close()
    assert all(gone(pid) for pid in pids)
    with pytest.raises(EnvironmentFault, match="closed"):
        one(pool, "echo", 1)


def test_a_forgotten_pool_ends_its_workers(make_pool):
    options = make_pool().options

    def factory():
        return os.getpid

    pool = Pool(factory, (), options)
    pid, home = pool.map([[]])[0].value, pool.home
    del pool
    assert gone(pid)
    assert not home.exists()


def test_temporary_files_of_jobs_are_in_the_pools_home(shared_pool):
    assert one(shared_pool, "variable", "TMPDIR") == Answer(str(shared_pool.home / "tmp"))


@pytest.mark.parametrize(
    "changes",
    [{"max_workers": 0}, {"timeout_sec": 0.0}, {"timeout_sec": float("nan")}, {"maximum_uses": -1}],
)
def test_bad_numbers_are_refused_with_their_value(make_pool, changes):
    ((name, value),) = changes.items()
    with pytest.raises(OptionError, match=f"{name}={value!r}"):
        make_pool(**changes)


def test_many_bad_jobs_among_good_ones(make_pool):
    pool = make_pool(max_workers=2, timeout_sec=1.0)
    bad = {3: "abort", 7: "segfault", 11: "exit", 17: "loop", 19: "garbage", 23: "raise"}
    jobs = [[bad[i]] if i in bad else ["echo", i] for i in range(30)]
    results = pool.map(jobs)
    assert {i for i, r in enumerate(results) if isinstance(r, Failed)} == set(bad)
    assert all(r == Answer(i) for i, r in enumerate(results) if i not in bad)


def test_a_spoiled_worker_is_replaced(make_pool):
    def factory():
        import os

        from pruner_ms.trials.worker import SpoiledWorkerError

        def handle(spoil):
            if spoil:
                raise SpoiledWorkerError("the device is unusable")
            return os.getpid()

        return handle

    pool = Pool(factory, (), make_pool(max_workers=1).options)
    first, spoiled, second = pool.map([[False], [True], [False]])
    assert first.value != second.value
    assert spoiled.kind is FailureKind.BUILD
    assert "the device is unusable" in spoiled.message
    pool.close()
