"""Traces that name intrinsics of ours are replayed in a process that has made no design space."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from pruner_ms.tvm_compat.paths import VERSION

TARGET = """
    target = Target({"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024,
                     "max_shared_memory_per_block": 49152, "thread_warp_size": 32})
    a = te.placeholder((64, 64), dtype="float16", name="A")
    b = te.placeholder((64, 64), dtype="float16", name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(
        a[i, k].astype("float32") * b[j, k].astype("float32"), axis=k), name="C")
    mod = IRModule({"main": te.create_prim_func([a, b, c])})
"""
IMPORTS = """
    import pruner_ms
    from pruner_ms.tvm_compat.paths import IRModule, Target, TuneContext, ms, te
"""
WRITES = """
    from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
    from pruner_ms.tensorcore.space import TensorCoreOnlySpace
    row = INSTRUCTIONS["mma_m16n8k16_f16f16f32"]
    context = TuneContext(mod, target=target, space_generator=TensorCoreOnlySpace([row]),
                          search_strategy="replay-trace", num_threads=1, rand_state=1)
    context.pre_tuning(2, 2, None)
    (candidate, *_) = context.generate_measure_candidates()
    database = ms.database.JSONDatabase(work_dir=FOLDER)
    workload = database.commit_workload(context.mod)
    database.commit_tuning_record(
        ms.database.TuningRecord(candidate.sch.trace, workload, [1.0], target))
"""
READS = """
    database = ms.database.JSONDatabase(work_dir=FOLDER)
    schedule = database.query_schedule(mod, target, "main")
    assert "mma" in str(schedule.mod)
"""


def run(folder, *parts):
    code = "\n".join(textwrap.dedent(part) for part in parts)
    return subprocess.run(
        [sys.executable, "-c", f"FOLDER = {str(folder)!r}\n{code}"],
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.heavy
@pytest.mark.skipif(VERSION.startswith("0.17"), reason="its rule cannot split for mma")
def test_a_database_registers_what_its_traces_name(tmp_path):
    done = run(tmp_path, IMPORTS, TARGET, WRITES)
    assert done.returncode == 0, done.stderr[-3000:]
    done = run(tmp_path, IMPORTS, TARGET, READS)
    assert done.returncode == 0, done.stderr[-3000:]
    # without the package's names nobody registers them
    done = run(tmp_path, IMPORTS, "pruner_ms.unregister()", TARGET, READS)
    assert done.returncode != 0 and "TensorIntrin" in done.stderr, done.stderr[-3000:]
