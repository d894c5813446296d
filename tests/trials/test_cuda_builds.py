"""TensorCore candidates build without a GPU: nvcc and a driver library that does nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.support.no_driver import environment

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
candidates = list(context.generate_measure_candidates())
inputs = [ms.builder.BuilderInput(c.sch.mod, target) for c in candidates]

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


@pytest.mark.heavy
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


_DESIGNS = """
import sys
import numpy as np
from pruner_ms.symbolic.buildable import buildable
from tests.support.designs import design_of, is_split
from tests.support.operators import OPERATORS, context_of
from tests.support.oracle import task_of
from pruner_ms.tvm_compat.operand_names import told_apart
from pruner_ms.tvm_compat.passes import config_for, drop_layout_rewrite
from pruner_ms.tvm_compat.paths import PassContext, build, te_workload

# the deepest product takes 32 of the sums: a pipeline has to have more than one step
OPERATORS = {**OPERATORS, "heads of 64, batched": lambda: te_workload.transpose_batch_matmul(
    1, 64, 4, 64, in_dtype="float16", out_dtype="float32"),
    # of a result of one column B is the first operand, and its name that of the second
    "B first": lambda: te_workload.matmul(64, 1, 64, in_dtype="float16", out_dtype="float32")}

def read(task, sketch, rows):
    # none of them is one that the closed form can express: TVM is asked
    for row in rows:
        reading = task.read(sketch, row)
        if reading.accepted and buildable(reading.program).all():
            return row

operator, space = sys.argv[1:]
task = task_of(*context_of(OPERATORS[operator], space))
for sketch in task.space:
    name, parts = design_of(sketch.trace)[0], is_split(sketch.trace)
    in_parts = operator in ("gemm_half_long", "gemm_half_odd_parts")
    if not (name.startswith("mma") and not in_parts) and not parts:
        continue
    rows = sketch.sample(512, np.random.default_rng(0))
    program = sketch.program(rows)
    mask = program.supported & program.gpu.valid & buildable(program)
    row = rows[mask][0] if mask.any() else read(task, sketch, rows)
    schedule = sketch.replay(row)
    schedule.enter_postproc()
    assert all(postproc.apply(schedule) for postproc in task.postprocs), (operator, name, row)
    with task.target, PassContext(config=config_for(task.target, True)):
        build(told_apart(drop_layout_rewrite(schedule.mod)), target=task.target)
    kinds = {"first": " called B", "batched": " of a batch", "gelu": " with what follows",
             "grouped": " of groups"}
    kind = "".join(text for what, text in kinds.items() if what in operator)
    print("built", name + " in parts" * parts + kind, flush=True)
"""


_F16, _TF32 = "mma_sync_m16n8k32_f16f16f32", "mma_sync_m16n8k32_tf32tf32f32"

PRODUCTS = {
    "gemm_half_columns": {f"{_F16}_trans_by_k8", f"{_F16}_trans_by_k16"},
    "gemm_int8_columns": {"mma_sync_m16n8k32_s8s8s32_trans"},
    "gemm_tf32_columns": {f"{_TF32}_trans_by_k4", f"{_TF32}_trans_by_k8"},
    "gemm_half_long": {
        "wmma_sync_16x16x16_f16f16f32 in parts",
        "mma_sync_m16n8k16_f16f16f32 in parts",
    },
    "gemm": {"mma_sync_m16n8k16_tf32tf32f32_by_k8"},
    "gemm_a_columns": {f"{_TF32}_transa_by_k4"},
    "gemm_half_a_columns": {f"{_F16}_transa_by_k16"},
    "conv2d_nchw_1x1_half": {"mma_sync_m16n8k16_f16f16f32_swapped"},
    "batched_gemm_half": {
        "mma_sync_m16n8k8_f16f16f32 of a batch",
        "mma_sync_m16n8k16_f16f16f32 of a batch",
    },
    "heads of 64, batched": {f"{_F16}_trans_by_k8 of a batch", f"{_F16}_trans_by_k16 of a batch"},
    "gemm_half_gelu": {
        "mma_sync_m16n8k8_f16f16f32 with what follows",
        "mma_sync_m16n8k16_f16f16f32 with what follows",
    },
    "conv2d_grouped_half": {
        "mma_sync_m16n8k8_f16f16f32 of groups",
        "mma_sync_m16n8k16_f16f16f32 of groups",
    },
    "batched_gemm_half_odd": {f"{_F16}_trans_by_k16 of a batch"},
    "gemm_half_odd_parts": {"mma_sync_m16n8k16_f16f16f32 in parts"},
    "B first": {f"{_F16}_trans_swapped_by_k16 called B"},
}
"""Operator -> kinds of kernels that are built of it."""


@pytest.mark.heavy
@pytest.mark.parametrize("operator", PRODUCTS)
def test_every_kind_of_product_builds(operator, tmp_path):
    float32 = operator.startswith("gemm_tf32") or operator in ("gemm", "gemm_a_columns")
    space = "tensorcore-tf32" if float32 else "tensorcore"
    done = subprocess.run(
        [sys.executable, "-c", _DESIGNS, operator, space],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:])
    lines = done.stdout.splitlines()
    assert PRODUCTS[operator] <= {x.removeprefix("built ") for x in lines if "built" in x}


@pytest.mark.heavy
def test_the_driver_is_not_asked_for_anything_before_workers_are_forked(tmp_path):
    """A process that has begun with CUDA cannot be forked: its children have no device."""
    told = tmp_path / "told"
    env = environment(tmp_path, told)
    code = "from pruner_ms.trials.forking import _import; _import(); import tvm; "
    for more, asked in (("", False), ("tvm.cuda(0).exist", True)):
        subprocess.run([sys.executable, "-c", code + more], env=env, check=True, timeout=200)
        assert told.exists() is asked
