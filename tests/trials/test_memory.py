"""Memory of workers that live long."""

from __future__ import annotations

import psutil
import pytest

pytest.importorskip("tvm")

from pruner_ms.trials.builder import PersistentBuilder
from pruner_ms.trials.runner import PersistentRunner
from pruner_ms.tvm_compat.paths import ArgInfo, IRModule, Target, ms, te, te_workload

CONFIG = ms.runner.EvaluatorConfig(number=1, repeat=2, min_repeat_ms=0)


@pytest.mark.heavy
def test_a_worker_does_not_grow_by_the_arguments_of_each_candidate():
    target = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
    builder = PersistentBuilder(max_workers=2)
    mods = [
        IRModule({"main": te.create_prim_func(te_workload.matmul(1024, 1024, k))})
        for k in (2, 3, 4, 5, 6, 7, 8, 9)
    ]
    artifacts = builder.build([ms.builder.BuilderInput(m, target) for m in mods])
    runner = PersistentRunner(evaluator_config=CONFIG)
    resident = []
    try:
        for _ in range(4):
            inputs = [
                ms.runner.RunnerInput(
                    str(one.artifact_path), "cpu", ArgInfo.from_entry_func(m, remove_preproc=True)
                )
                for one, m in zip(artifacts, mods, strict=True)
            ]
            assert all(future.result().error_msg is None for future in runner.run(inputs))
            (pid,) = runner.pool.pids()
            resident.append(psutil.Process(pid).memory_info().rss / 2**20)
    finally:
        runner.close()
        builder.close()
    assert max(resident) - resident[0] < 24, resident
