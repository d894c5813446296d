"""Design spaces of small workloads, made once, and a seed that is new in every run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.lowered import read
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import DecisionSpace, Sketch, decision_space
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.paths import Target, ms, te, te_workload

LLVM = {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
CUDA = {
    "kind": "cuda",
    "arch": "sm_80",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}
SEED = int(os.environ.get("PRUNER_MS_SEED", secrets.randbelow(10**6)))


def _gemm_bias_relu() -> list[Any]:
    a, b = te.placeholder((128, 96), name="A"), te.placeholder((96, 160), name="B")
    k = te.reduce_axis((0, 96), name="k")
    c = te.compute((128, 160), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    bias = te.placeholder((160,), name="bias")
    d = te.compute((128, 160), lambda i, j: c[i, j] + bias[j], name="D")
    return [a, b, bias, te.compute((128, 160), lambda i, j: te.max(d[i, j], 0.0), name="E")]


def _elementwise() -> list[Any]:
    a, b = te.placeholder((6, 10, 48), name="A"), te.placeholder((6, 10, 48), name="B")
    return [a, b, te.compute((6, 10, 48), lambda i, j, k: a[i, j, k] * b[i, j, k] + 1.0, name="C")]


def _transpose() -> list[Any]:
    a = te.placeholder((128, 96), name="A")
    return [a, te.compute((96, 128), lambda i, j: a[j, i] * 2.0, name="C")]


WORKLOADS: dict[str, Callable[[], Any]] = {
    "gemm": lambda: te_workload.matmul(128, 256, 64),
    "gemm_odd": lambda: te_workload.matmul(127, 300, 45),
    "gemm_int8": lambda: te_workload.matmul(64, 64, 64, in_dtype="int8", out_dtype="int32"),
    "batched_gemm": lambda: te_workload.batch_matmul_nkkm(6, 64, 32, 48),
    "transposed_batched_gemm": lambda: te_workload.transpose_batch_matmul(1, 64, 6, 32),
    "gemm_bias_relu": _gemm_bias_relu,
    "conv1d": lambda: te_workload.conv1d_nlc(1, 64, 16, 32, 3, 2, 1),
    "conv2d_nhwc": lambda: te_workload.conv2d_nhwc(1, 28, 28, 16, 32, 3, 1, 1),
    "conv2d_strided": lambda: te_workload.conv2d_nhwc(1, 28, 28, 16, 32, 3, 2, 1),
    "conv2d_dilated": lambda: te_workload.conv2d_nhwc(1, 14, 14, 16, 32, 3, 1, 2, 2),
    "conv2d_nchw": lambda: te_workload.conv2d_nchw(1, 28, 28, 16, 32, 3, 3, 1, 1),
    "conv3d": lambda: te_workload.conv3d_ndhwc(1, 4, 14, 14, 8, 16, 3, 1, 1),
    "depthwise": lambda: te_workload.depthwise_conv2d_nhwc(1, 28, 28, 32, 3, 1, 1),
    "conv2d_bn_relu": lambda: te_workload.conv2d_nhwc_bn_relu(1, 14, 14, 16, 32, 3, 1, 1),
    "elementwise": _elementwise,
    "transpose": _transpose,
    "softmax": lambda: te_workload.softmax_mn(64, 64),
    "gemm_half": lambda: te_workload.matmul(256, 256, 256, in_dtype="float16", out_dtype="float32"),
}


@dataclass(frozen=True)
class Task:
    """A workload's design spaces, with what is needed to replay them."""

    target: Any
    postprocs: list[Any]
    space: DecisionSpace

    def replayed(self, sketch: Sketch, row: Any) -> tuple[Any, SketchProgram | None]:
        """The repaired row, and what the oracle reads (None if a postprocessor rejects it)."""
        schedule = sketch.replay(row)
        repaired = sketch.row_of(schedule.trace)
        schedule.enter_postproc()
        if not all(postproc.apply(schedule) for postproc in self.postprocs):
            return repaired, None
        return repaired, read(schedule.mod, self.target)


@lru_cache(maxsize=64)
def make_task(workload: str, rules: str = "llvm") -> Task:
    import_intrinsics()
    target = Target(LLVM if rules == "llvm" else CUDA)
    mod = te.create_prim_func(WORKLOADS[workload]())
    context = ms.TuneContext(
        mod, target=target, space_generator=rules, search_strategy=None, rand_state=1
    )
    spaces = context.generate_design_space()
    postprocs = list(context.space_generator.postprocs)
    return Task(target, postprocs, decision_space(spaces, context.mod, target))


@pytest.fixture(scope="session")
def task() -> Callable[..., Task]:
    return make_task


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> Iterator[np.random.Generator]:
    """Random numbers that differ between runs; set PRUNER_MS_SEED to repeat one."""
    print(f"PRUNER_MS_SEED={SEED}")
    yield np.random.default_rng([SEED, sum(request.node.name.encode())])
