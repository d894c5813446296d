"""Relay opts in by name: tasks extracted, tuned, applied; outputs as without schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import meta_schedule as ms
from tvm import relay

import pruner_ms
from pruner_ms import registry

pytestmark = pytest.mark.timeout(900)

NAMES = {
    "strategy": "pruner",
    "cost_model": "pacm",
    "builder": "persistent",
    "runner": "persistent",
}
APPLY = {
    "relay.backend.use_meta_schedule": True,
    "relay.backend.use_meta_schedule_dispatch": True,
    "relay.backend.tir_converter": "default",
}


@pytest.fixture(scope="module")
def tuned(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A database, and how many candidates our search had measured for it."""
    pruner_ms.register()
    before = registry.tally().measured
    tasks = ms.relay_integration.extract_tasks(model.mod, model.target, model.params)
    database = ms.relay_integration.tune_relay(
        model.mod,
        model.params,
        model.target,
        str(tmp_path_factory.mktemp(model.name)),
        max_trials_global=4 * len(tasks),
        num_trials_per_iter=4,
        **NAMES,
    )
    return database, tasks, registry.tally().measured - before


def test_every_task_has_records_of_our_search(tuned: Any, model: Any) -> None:
    database, tasks, measured = tuned
    # some have one design only; MetaSchedule does not cut its last batch
    assert len(tasks) <= measured < 4 * (len(tasks) + 1)
    target = model.target
    missing = [
        task.task_name
        for task in tasks
        if database.query_tuning_record(task.dispatched[0], target, task.task_name) is None
    ]
    assert missing == []


@ms.utils.derived_object
class _Counting(ms.database.PyDatabase):  # type: ignore[misc]
    """A database that counts what it was asked and could answer."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.asked, self.answered = inner, 0, 0

    def query_tuning_record(self, mod: Any, target: Any, workload_name: str | None = None) -> Any:
        record = self.inner.query_tuning_record(mod, target, workload_name or "main")
        self.asked += 1
        self.answered += record is not None
        return record

    def query_schedule(self, mod: Any, target: Any, workload_name: str | None = None) -> Any:
        return self.inner.query_schedule(mod, target, workload_name or "main")

    def query_ir_module(self, mod: Any, target: Any, workload_name: str | None = None) -> Any:
        return self.inner.query_ir_module(mod, target, workload_name or "main")

    def __str__(self) -> str:
        return "counting"


def test_the_compiled_network_computes_the_same(tuned: Any, model: Any) -> None:
    database, _, _ = tuned
    library = ms.relay_integration.compile_relay(database, model.mod, model.target, model.params)
    np.testing.assert_allclose(model.outputs(library), model.untuned(), rtol=1e-3, atol=1e-4)


def test_a_plain_build_takes_every_task_from_the_database(tuned: Any, model: Any) -> None:
    database, tasks, _ = tuned
    counting = _Counting(database)
    with (
        model.target,
        counting,
        tvm.transform.PassContext(opt_level=3, config=APPLY),
    ):
        library = relay.build(model.mod, target=model.target, params=model.params)
    assert counting.asked >= len(tasks)
    assert counting.answered >= len(tasks)
    np.testing.assert_allclose(model.outputs(library), model.untuned(), rtol=1e-3, atol=1e-4)
