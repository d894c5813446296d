"""Programs of measured candidates: those that are expected need not be read, and are the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from pruner_ms.draft import draft
from pruner_ms.features.pack import features_of, pack
from pruner_ms.hardware import GENERIC
from pruner_ms.hardware.lookup import hardware_named
from pruner_ms.model import prior, reading
from pruner_ms.model.cost_model import PaCMModel
from pruner_ms.model.reading import ExpectedCandidate, Reader
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.tvm_compat.paths import (
    ArgInfo,
    MeasureCandidate,
    Target,
    TuneContext,
    ms,
    task_key,
    te,
    te_workload,
)
from tests.support.operators import TARGETS, context_of
from tests.support.oracle import task_of

KEY = "task"


@dataclass
class Measured:
    """Candidates of a task, and where each comes from."""

    context: Any
    target: Any
    candidates: list[Any]
    expected: list[ExpectedCandidate]


@pytest.fixture(scope="module")
def measured():
    context, designs = context_of(lambda: te_workload.matmul(64, 64, 64), "llvm")
    task = task_of(context, designs)
    candidates, expected = [], []
    rng = np.random.default_rng(0)
    for turn in range(12):
        sketch = task.space[turn % len(task.space)]
        row = sketch.sample(1, rng)[0]
        schedule = sketch.replay(row)
        schedule.enter_postproc()
        assert all(postproc.apply(schedule) for postproc in task.postprocs)
        args = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
        candidates.append(MeasureCandidate(schedule, args))
        expected.append(ExpectedCandidate(schedule, sketch, row))
    return Measured(context, task.target, candidates, expected)


@pytest.fixture
def readings(monkeypatch):
    """Modules that were read."""
    seen = []
    monkeypatch.setattr(reading, "read", lambda mod, target: seen.append(mod) or read(mod, target))
    return seen


def packed(programs):
    """Features by place."""
    return {
        int(place): array
        for places, program in programs
        for place, array in zip(places, pack(features_of(program)), strict=True)
    }


def test_what_is_expected_is_not_read_and_is_the_same(measured, readings):
    reader = Reader()
    plain = packed(reader.programs(KEY, measured.target, measured.candidates))
    assert len(readings) == len(plain) == 12
    reader.expect(KEY, measured.expected)
    programs = reader.programs(KEY, measured.target, measured.candidates)
    assert len(readings) == 12
    assert len(programs) == len({id(one.sketch) for one in measured.expected}) > 1
    for place, array in packed(programs).items():
        np.testing.assert_allclose(array, plain[place], rtol=1e-12)


def test_only_the_schedule_that_was_asked_for_is_taken_for_it(measured, readings):
    reader = Reader()
    # other rows than the candidates': who looks at the place alone takes them
    turned = measured.expected[1:] + measured.expected[:1]
    others = [replace(one, schedule=one.sketch.replay(one.row)) for one in turned]
    reader.expect(KEY, others)
    reader.programs(KEY, measured.target, measured.candidates)
    assert len(readings) == 12
    # another task's
    reader.expect(KEY, measured.expected)
    reader.programs("another", measured.target, measured.candidates)
    assert len(readings) == 24
    # the head of a batch, and one that nobody expected behind it
    stranger = MeasureCandidate(others[0].schedule, measured.candidates[0].args_info)
    reader.programs(KEY, measured.target, [*measured.candidates[:3], stranger])
    assert len(readings) == 25


def test_candidates_behind_one_that_could_not_be_built_are_known(measured, readings):
    reader = Reader()
    plain = packed(reader.programs(KEY, measured.target, measured.candidates))
    reader.expect(KEY, measured.expected)
    left = [c for i, c in enumerate(measured.candidates) if i not in (0, 5)]
    arrays = packed(reader.programs(KEY, measured.target, left))
    assert len(readings) == 12
    for place, at in enumerate(i for i in range(12) if i not in (0, 5)):
        np.testing.assert_allclose(arrays[place], plain[at], rtol=1e-12)


def test_a_model_learns_the_same_from_both(measured, monkeypatch):
    # of one CPU, whatever the machine: on some the drafts of the two differ, see the test below
    row = hardware_named("cpu-avx512-bf16")
    monkeypatch.setattr(prior, "hardware_for", lambda attrs: row)
    seconds = np.random.default_rng(1).uniform(1e-4, 1e-3, 12)
    results = [ms.runner.RunnerResult([float(s)], None) for s in seconds]
    key = task_key(measured.context.mod, measured.context.target)
    models = [PaCMModel(seed=3), PaCMModel(seed=3)]
    models[1].expect(key, measured.expected)
    for model in models:
        model.update(measured.context, measured.candidates, results)
    scores = [model.predict(measured.context, measured.candidates) for model in models]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-3)
    assert np.ptp(scores[0]) > 0
    assert [len(model.verifier.records) for model in models] == [12, 12]


@pytest.mark.parametrize("name", [row.name for row in GENERIC])
def test_both_are_drafted_alike(measured, name):
    """Where lowering has joined the parts of a parallel loop that move as one, traffic may differ:
    such a loop has a level less, and the interpreted program draws something at that level."""
    hardware = hardware_named(name)
    reader = Reader()
    seconds, running = [], []
    for _ in range(2):
        latencies, loops = np.zeros(12), np.zeros(12)
        for places, program in reader.programs(KEY, measured.target, measured.candidates):
            latencies[places] = draft(program, hardware).latency
            loops[places] = sum(loop.extent > 1 for loop in program.statements[-1].loops)
        seconds.append(latencies)
        running.append(loops)
        reader.expect(KEY, measured.expected)
    alike = running[0] == running[1]
    assert 3 <= alike.sum() < 12
    np.testing.assert_allclose(seconds[0][alike], seconds[1][alike], rtol=1e-6)
    np.testing.assert_allclose(seconds[0], seconds[1], rtol=0.01)


def test_the_strategy_says_what_it_asked_for(readings):
    """One round of a search: nothing is read that the strategy has interpreted already."""
    mod = te.create_prim_func(te_workload.matmul(64, 64, 64))
    context = TuneContext(
        mod,
        target=Target(dict(TARGETS["llvm"])),
        space_generator="post-order-apply",
        search_strategy="pruner",
        num_threads=1,
        rand_state=1,
    )
    model = PaCMModel(seed=0)
    database = ms.database.MemoryDatabase()
    context.pre_tuning(max_trials=32, num_trials_per_iter=8, database=database, cost_model=model)
    candidates = context.generate_measure_candidates()
    results = [ms.runner.RunnerResult([1e-3 * (i + 1)], None) for i in range(len(candidates))]
    model.update(context, candidates, results)
    context.notify_runner_results(candidates, results)
    assert len(candidates) == len(model.verifier.records) == 8
    assert not readings
