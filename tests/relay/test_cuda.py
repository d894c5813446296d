"""CUDA tasks of Relay, drafted and built; no GPU is needed for that."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import tvm
from tvm import meta_schedule as ms

import pruner_ms
from pruner_ms.search import funnels

from .conftest import Model

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"),
]

A100 = {
    "kind": "cuda",
    "arch": "sm_80",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}


def test_the_heaviest_task_is_drafted_and_built() -> None:
    pruner_ms.register()
    target = tvm.target.Target(A100, host="llvm")
    model = Model("bert_block", target)
    tasks: list[Any] = ms.relay_integration.extract_tasks(model.mod, target, model.params)
    task = next(t for t in tasks if "dense" in t.task_name)
    context = ms.TuneContext(
        task.dispatched[0],
        target=target,
        space_generator="cuda",
        search_strategy=pruner_ms.PrunerSearch(),
        task_name=task.task_name,
        num_threads=1,
        rand_state=3,
    )
    context.pre_tuning(4, 4, None, None)
    candidates = list(context.generate_measure_candidates())
    assert len(candidates) == 4
    (drafted,) = [f.drafted for name, f in funnels.published().items() if name == task.task_name]
    assert drafted > 100  # by the closed form, not one replay each
    builder = pruner_ms.PersistentBuilder(max_workers=2)
    built = builder.build([ms.builder.BuilderInput(c.sch.mod, target) for c in candidates])
    assert [str(b.error_msg) for b in built if b.error_msg] == []
