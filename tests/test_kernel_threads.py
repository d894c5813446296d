"""Programs run on as many threads as their target has cores, whoever runs them."""

from __future__ import annotations

import json
import os
import platform
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

from pruner_ms.cli import doctor
from pruner_ms.errors import EnvironmentFault
from pruner_ms.hardware import physical_cores
from pruner_ms.integration import export, relax, timing, verify
from pruner_ms.integration.release import Released
from pruner_ms.report import tables
from pruner_ms.session.options import TuneConfig
from pruner_ms.session.parts import parts
from pruner_ms.trials import build_job, remote
from pruner_ms.trials import runner as runners
from pruner_ms.trials.builder import PersistentBuilder
from pruner_ms.trials.remote import RemoteRunner
from pruner_ms.trials.runner import PersistentRunner
from pruner_ms.tvm_compat import relax_paths, threads
from pruner_ms.tvm_compat.paths import (
    ArgInfo,
    IRModule,
    Schedule,
    Target,
    as_tensor,
    build,
    derived_object,
    get_global_func,
    ms,
    te,
    te_workload,
    tir,
)
from pruner_ms.tvm_compat.processors import processors, usable
from pruner_ms.tvm_compat.schedules import get_block
from pruner_ms.tvm_compat.targets import parse_target
from tests.support import rpc

ALL = usable()
"""Threads that TVM never takes by itself on x86: it takes half."""

NOTE = "pruner_ms.test.note_thread"
LOOP = 64

pytestmark = pytest.mark.skipif(
    ALL < 2 or platform.machine() != "x86_64", reason="TVM takes all processors there"
)


@pytest.fixture(autouse=True)
def unsaid(monkeypatch):
    for name in (threads.VARIABLE, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def llvm(cores):
    return Target({"kind": "llvm", "num-cores": cores})


def noting():
    """A program whose parallel loop notes the threads that run its parts, and its argument."""
    func = te.create_prim_func([te.compute((LOOP,), lambda i: tir.call_packed(NOTE, i), name="c")])
    schedule = Schedule(IRModule({"main": func}))
    (i,) = schedule.get_loops(get_block(schedule, "c"))
    schedule.parallel(i)
    return schedule.mod, as_tensor(np.zeros(LOOP, "int32"))


def counting():
    """A function that runs the program and counts its threads; it travels to workers by value."""
    thread_ids, name = set(), NOTE

    def count(main, *arguments):
        import threading

        from pruner_ms.tvm_compat.ffi import set_global

        set_global(name, lambda _: thread_ids.add(threading.get_native_id()) or 1)
        thread_ids.clear()
        main(*arguments)
        return len(thread_ids)

    return count


@pytest.fixture(scope="module")
def count():
    """Counts the threads of a parallel loop."""
    mod, argument = noting()
    main, counted = build(mod, target=llvm(ALL))["main"], counting()
    return lambda call=None: counted(main if call is None else lambda x: call(main, x), argument)


def in_thread(function, *args):
    """What a function returns in a thread that has no pool yet."""
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(function, *args).result()


def test_by_itself_tvm_takes_fewer(count):
    """Or nothing here would be tested."""
    assert in_thread(count) < ALL


@pytest.mark.parametrize("number", [1, ALL])
def test_a_pool_has_as_many_threads_as_it_is_told(count, number):
    def told():
        threads.use(number)
        return count()

    assert in_thread(told) == number


def test_a_pool_uses_fewer_when_it_is_told_again_but_never_grows(count):
    def told():
        counts = []
        for number in (ALL, 1, ALL):
            threads.use(number)
            counts.append(count())
        return counts

    def too_late():
        count()
        get_global_func("runtime.NumThreads")()  # makes one of TVM's size
        threads.use(ALL)

    assert in_thread(told) == [ALL, 1, ALL]
    with pytest.raises(EnvironmentFault, match=f"cannot have {ALL} any more"):
        in_thread(too_late)


def test_an_own_thread_leaves_the_callers_pool_and_cores_alone(count):
    def caller():
        before = os.sched_getaffinity(0)
        own = threads.OwnThread(ALL)
        return count(own), os.sched_getaffinity(0) == before, count()

    number, same, left = in_thread(caller)
    assert number == ALL and same and left < ALL


def test_an_own_thread_gives_errors_back_and_ends_with_its_last_reference():
    own = threads.caller(llvm(ALL))
    assert threads.caller(llvm(ALL)) is own and threads.caller(llvm(1)) is not own
    with pytest.raises(ZeroDivisionError):
        own(lambda: 1 // 0)
    inner = own(threading.current_thread)
    assert own(own, threading.current_thread) is inner is not threading.current_thread()
    del own
    inner.join(10)
    assert not inner.is_alive()


def test_a_fork_gets_threads_of_its_own(count):
    own = threads.caller(llvm(ALL))
    assert count(own) == ALL
    pid = os.fork()
    if pid == 0:  # waits for ever where it calls threads of its parent
        os._exit(count(own))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == ALL


def test_other_devices_are_called_as_ever():
    gpu = Target({"kind": "cuda", "arch": "sm_80"})
    assert threads.cores_of(gpu) is None and threads.surprise(None) is None
    for caller in (threads.caller, threads.caller_in_place):
        assert caller(gpu)(threading.current_thread) is threading.current_thread()


def test_a_target_of_more_cores_than_there_are_runs_on_those_and_says_so():
    assert threads.threads_for(ALL + 7) == ALL
    assert f"has {ALL + 7} cores and this process may use {ALL}" in threads.surprise(ALL + 7)
    assert threads.surprise(ALL) is None


def test_the_variable_says_what_this_machines_target_has_and_no_more(monkeypatch):
    assert threads.cores_here() == physical_cores()
    monkeypatch.setenv(threads.VARIABLE, "1")
    assert threads.cores_of(parse_target("cpu")) == threads.cores_here() == 1
    assert threads.surprise(1) is None
    assert "TVM_NUM_THREADS=1 does not count" in threads.surprise(ALL)
    for said in ("0", "", "many", str(ALL + 5)):
        monkeypatch.setenv(threads.VARIABLE, said)
        assert threads.cores_here() == (ALL if said == str(ALL + 5) else physical_cores())


def test_the_timing_thread_leaves_the_cores_of_pinned_ones(monkeypatch, tmp_path):
    ready, done = threading.Event(), threading.Event()

    def stay():
        os.sched_setaffinity(0, processors()[:1])
        ready.set()
        done.wait(20)

    def remaining_cores():
        os.sched_setaffinity(0, processors())
        for _ in range(2):
            threads.keep_apart()
        return sorted(os.sched_getaffinity(0))

    monkeypatch.setattr(threads, "TASKS", tmp_path)
    assert in_thread(remaining_cores) == processors(), "nobody is pinned"
    other = threading.Thread(target=stay)
    other.start()
    ready.wait(20)
    (tmp_path / str(other.native_id)).touch()
    try:
        assert in_thread(remaining_cores) == processors()[1:]
    finally:
        done.set()
        other.join()


def test_elsewhere_than_on_linux_threads_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(threads, "TASKS", Path("not there"))
    monkeypatch.setattr(os, "sched_setaffinity", None, raising=False)
    threads.keep_apart()


def evaluator():
    """The number of threads in the place of seconds: those that run, or those of TVM's pool."""
    counted = counting()

    def evaluate(built, _device, _config, arguments):
        from pruner_ms.tvm_compat.ffi import get_global

        number = counted(built["main"], *arguments[0])
        return [float(number or get_global("runtime.NumThreads")())]

    return evaluate


@pytest.fixture(scope="module")
def runner():
    persistent_runner = PersistentRunner(f_run_evaluator=evaluator())
    yield persistent_runner
    persistent_runner.close()


@pytest.fixture(scope="module")
def built():
    """For a number of cores, what a runner is given."""
    builder, (mod, _) = PersistentBuilder(max_workers=1), noting()
    info = ArgInfo.from_prim_func(mod["main"])

    def make(cores):
        (result,) = builder.build([ms.builder.BuilderInput(mod, llvm(cores))])
        assert result.error_msg is None
        return ms.runner.RunnerInput(result.artifact_path, "cpu", info)

    yield make
    builder.close()


def measured(runner, inputs):
    results = [future.result() for future in runner.run(inputs)]
    assert [r.error_msg for r in results] == [None] * len(inputs)
    return [float(r.run_secs[0]) for r in results]


def test_one_worker_measures_targets_of_different_cores(runner, built, monkeypatch):
    """With the number that is the target's, whatever the tuner's variable says."""
    monkeypatch.setenv(threads.VARIABLE, "1")
    inputs = [built(cores) for cores in (1, ALL, 1, ALL + 3)]
    assert measured(runner, inputs) == [1.0, ALL, 1.0, ALL]
    (pid,) = runner.pool.pids()
    assert measured(runner, inputs[:2]) == [1.0, ALL] and runner.pool.pids() == [pid]


def test_the_runner_says_once_that_a_number_is_not_the_targets(runner, built, monkeypatch, caplog):
    runners._warn.cache_clear()
    monkeypatch.setenv(threads.VARIABLE, "1")
    measured(runner, [built(ALL)] * 2)
    assert [r.getMessage().startswith("TVM_NUM_THREADS=1 does") for r in caplog.records] == [True]


@derived_object
class Foreign(ms.builder.PyBuilder):
    """A builder that writes nothing about its artifacts."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def build(self, build_inputs):
        results = []
        for number, one in enumerate(build_inputs):
            place = self.folder / f"{len(list(self.folder.iterdir()))}-{number}"
            place.mkdir()
            path = build_job.export(build_job.default_build(one.mod, one.target, None), place)
            results.append(ms.builder.BuilderResult(path, None))
        return results


def test_by_name_the_runner_knows_the_cores_of_what_is_tuned(runner, tmp_path):
    """Whoever builds; the seconds of the records are numbers of threads here."""
    numbers = {}
    (tmp_path / "built").mkdir()
    for cores in (1, ALL):
        database = ms.tune_tir(
            te.create_prim_func(te_workload.matmul(16, 16, 16)),
            llvm(cores),
            str(tmp_path / str(cores)),
            max_trials_global=2,
            num_trials_per_iter=2,
            strategy="replay-trace",
            cost_model="random",
            builder=Foreign(tmp_path / "built"),
            runner=runner,
        )
        numbers[cores] = {float(r.run_secs[0]) for r in database.get_all_tuning_records()}
    assert numbers == {1: {1.0}, ALL: {float(ALL)}}


@pytest.mark.heavy
def test_tvms_own_runner_does_so_in_a_session(built):
    config = TuneConfig(runner="local", cost_model="none", builder="persistent")
    with parts(config, llvm(ALL)) as (_, runner, _):
        said = runner.pool.submit(os.getenv, threads.VARIABLE).result()
    assert said == str(ALL)


@pytest.mark.heavy
def test_servers_use_the_cores_of_the_target(built, caplog):
    def pool_size():
        def evaluate(session, _built, _device, _config, _arguments):
            return [float(session.get_function("runtime.NumThreads")())]

        return evaluate

    with rpc.lab() as lab:
        lab.serve("cpu", 1)
        address = lab.address()
        config = ms.runner.RPCConfig(
            tracker_host=address.host,
            tracker_port=address.port,
            tracker_key=address.key,
            session_timeout_sec=30,
        )
        inner = ms.runner.RPCRunner(config, f_run_evaluator=pool_size())
        runner = RemoteRunner(address, inner=inner, owns_inner=True)
        inputs = [built(cores) for cores in (1, ALL, 1)]
        assert measured(runner, inputs) == [1.0, ALL, 1.0]
        runner.close()


def test_a_server_without_a_pool_measures_all_the_same(caplog):
    class Session:
        def get_function(self, name):
            raise AttributeError(f"no function {name}")

    session = Session()
    assert remote.connected(lambda _: session, 4, None) is session
    assert "does not use the 4 cores of the target: no function" in caplog.text
    assert remote.connected(lambda _: session, None, None) is session


def test_verification_runs_on_the_cores_of_the_target(count):
    def number():
        counts = []
        verify._run({"main": lambda: counts.append(count())}, llvm(ALL), [])
        return counts

    assert in_thread(number) == [ALL]


def test_a_network_runs_and_is_timed_on_the_cores_of_the_target(count, monkeypatch):
    counts = []

    def main():
        counts.append(count())
        return []

    for module in (relax, timing):
        monkeypatch.setattr(module, "bound", lambda *_: (main, []))
    in_thread(relax.run_model, None, llvm(ALL), [])
    in_thread(timing.time_model, None, llvm(ALL), [], 1, 1e-9)
    in_thread(timing.compare_timing, None, None, llvm(ALL), [], 1, 1e-9)
    assert len(counts) > 3 and set(counts) == {ALL}


@pytest.mark.parametrize("late", [False, True])
def test_torchs_graphs_run_on_the_cores_of_the_target(count, monkeypatch, late):
    """Also in a thread that has run TVM before, whose pool is too small."""
    pytest.importorskip("torch")
    from pruner_ms.integration import torch_backend

    observations = []

    def main():
        observations.append((count(), os.sched_getaffinity(0)))
        return []

    def calls():
        if late:
            get_global_func("runtime.NumThreads")()
        before = os.sched_getaffinity(0)
        for _ in range(2):
            run()
        return before == os.sched_getaffinity(0)

    monkeypatch.setattr(relax_paths, "VirtualMachine", lambda *_: {"main": main})
    run = torch_backend._main(None, llvm(ALL))
    assert in_thread(calls) and [number for number, _ in observations] == [ALL, ALL]


def test_a_library_says_with_how_many_threads_it_runs(tmp_path, monkeypatch):
    assert export.describe(llvm(3), [], [])["threads"] == 3
    assert export.describe(Target({"kind": "cuda", "arch": "sm_80"}), [], [])["threads"] is None
    library = tmp_path / "model.so"
    library.write_bytes(b"")
    facts = {"format": export.FORMAT, "sha256": export._digest(library), "threads": ALL}
    library.with_suffix(".json").write_text(json.dumps(facts))
    # a program that tells its number in the place of one that loads a library
    monkeypatch.setattr(
        export,
        "_RUN",
        "import os, sys, numpy as np\n"
        "np.savez(sys.argv[4], int(os.environ['TVM_NUM_THREADS']), dtypes=np.array(['int64']))",
    )
    assert export.run_exported(library, [])[0] == ALL


def test_what_a_deployer_reads_names_the_number():
    summary = {"library": "runs/x/model.so", "target": {"kind": "llvm", "num-cores": 3}}
    assert tables.library_line(summary).endswith("model.so; run it with TVM_NUM_THREADS=3")
    assert tables.library_line({**summary, "target": {}}) == "library: runs/x/model.so"
    released = Released(Path("x.so"), Path("x.json"), 1, "not run", 3)
    assert released.line().endswith("x.json; run it with TVM_NUM_THREADS=3")
    assert released.facts()["threads"] == 3


def test_doctor_says_what_tvm_takes_by_itself_and_the_cure():
    facts = {"used": 4, "tvm": 2, "processors": 4}
    assert "by itself takes 2: run what was tuned with TVM_NUM_THREADS=4" in doctor._threads(facts)
    assert "TVM_NUM_THREADS" not in doctor._threads({**facts, "tvm": 4})
