"""TensorCore candidates build without a GPU: nvcc and a driver library that does nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from pruner_ms.testing.no_driver import environment

pytest.importorskip("tvm_ffi")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
]

_SCRIPT = """
import sys
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
import_intrinsics()
from pruner_ms.trials.builder import PersistentBuilder
from pruner_ms.tvm_compat.passes import default_pass_config
from pruner_ms.tvm_compat.paths import Target, TuneContext, ms, te, te_workload

target = Target({"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024,
                 "max_shared_memory_per_block": 49152, "thread_warp_size": 32})
func = te.create_prim_func(
    te_workload.matmul(256, 256, 256, in_dtype="float16", out_dtype="float32"))
context = TuneContext(func, target=target, space_generator="post-order-apply",
                      search_strategy="replay-trace", num_threads=2, rand_state=1)
context.pre_tuning(4, 4, None)
found = list(context.generate_measure_candidates())
inputs = [ms.builder.BuilderInput(c.sch.mod, target) for c in found]

def failures(**options):
    builder = PersistentBuilder(max_workers=2, timeout_sec=200, **options)
    results = builder.build(inputs)
    for result in results:
        print(str(result.error_msg)[-300:] if result.error_msg else "built", file=sys.stderr)
    return sum(result.error_msg is not None for result in results)

needed = default_pass_config("cuda", True)
without = failures(pass_config={key: False for key in needed}) if needed else None
print(len(inputs), failures(), without)
"""


def test_wmma_f16_to_f32_builds_only_with_our_pass_configuration(tmp_path):
    env = environment(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    total, failed, without = done.stdout.split()[-3:]
    assert (int(total), int(failed)) == (4, 0), done.stderr[-3000:]
    if without != "None":
        assert int(without) > 0  # once TVM builds it by itself, the row in PASS_ROWS can go
