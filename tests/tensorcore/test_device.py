"""On an NVIDIA device: every design of `space="tensorcore"` against wide sums (`pytest -m gpu`)."""

from __future__ import annotations

import re

import ml_dtypes  # noqa: F401  numpy's bfloat16
import numpy as np
import pytest
import tvm

from pruner_ms.symbolic.buildable import buildable
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.space import TensorCoreSpace
from pruner_ms.testing.designs import design_of
from pruner_ms.testing.oracle import task_of
from pruner_ms.tvm_compat.passes import config_for, uses_tensor_instructions
from pruner_ms.tvm_compat.paths import (
    IRModule,
    PassContext,
    Target,
    TuneContext,
    build,
    save_json,
    te,
)

pytestmark = pytest.mark.gpu

PRODUCTS = {
    "half": ((256, 192, 320), "float16", "float32", False),
    "half sums": ((128, 256, 256), "float16", "float16", False),
    "by columns": ((256, 192, 320), "float16", "float32", True),
    "bfloat16": ((128, 128, 256), "bfloat16", "float32", False),
    "bfloat16 by columns": ((128, 128, 256), "bfloat16", "float32", True),
    "int8": ((128, 128, 256), "int8", "int32", False),
    "odd": ((100, 72, 200), "float16", "float32", False),
}
NAME = r"(w?mma)_sync_m?(\d+)[xn](\d+)[xk](\d+)_([a-z0-9]+?)(_trans)?(_by_k(\d+))?$"
ROWS = 3
"""Schedules of each design."""


@pytest.fixture(scope="module")
def target():
    """The device's target."""
    if not tvm.cuda(0).exist:
        pytest.skip("there is no CUDA device")
    found = Target.from_device("cuda")
    return Target({**{str(k): v for k, v in found.export().items() if k != "tag"}})


def tensors(product):
    (m, n, k), dtype, sums, columns = PRODUCTS[product]
    a = te.placeholder((m, k), dtype=dtype, name="A")
    b = te.placeholder((n, k) if columns else (k, n), dtype=dtype, name="B")
    r = te.reduce_axis((0, k), name="k")

    def sum_of(i, j):
        other = b[j, r] if columns else b[r, j]
        return te.sum(a[i, r].astype(sums) * other.astype(sums), axis=r)

    return [a, b, te.compute((m, n), sum_of, name="C")]


def instruction_of(trace):
    """The row of a design, None for CUDA cores."""
    found = re.match(NAME, design_of(trace)[0])
    if found is None:
        return None
    family, m, n, k, types, _, _, step = found.groups()
    return INSTRUCTIONS[f"{family}_m{m}n{n}k{step or k}_{types}"]


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_design_computes_the_product(product, target):
    with target:
        mod = IRModule({"main": te.create_prim_func(tensors(product))})
    context = TuneContext(
        mod, target=target, space_generator=TensorCoreSpace(), search_strategy=None, rand_state=1
    )
    found = task_of(context, list(context.generate_design_space()))
    rng = np.random.default_rng(0)
    for sketch in found.space:
        rows = sketch.sample(512, rng)
        program, seen = sketch.program(rows), 0
        for row in rows[program.gpu.valid & buildable(program)][:ROWS]:
            schedule = sketch.replay(row)
            schedule.enter_postproc()
            if all(postproc.apply(schedule) for postproc in found.postprocs):
                check(schedule.mod, product, instruction_of(sketch.trace), target, rng)
                seen += 1
        assert seen, sketch.index


def check(mod, product, row, target, rng):
    (m, n, k), dtype, sums, columns = PRODUCTS[product]
    with target, PassContext(config=config_for(target, uses_tensor_instructions(save_json(mod)))):
        built = build(mod, target=target)
    wide = rng.integers(-100, 100, (m + n, k)) / (1 if dtype == "int8" else 64)
    a, b = wide[:m].astype(dtype), wide[m:].astype(dtype)
    given = b if columns else np.ascontiguousarray(b.T)
    device = tvm.cuda(0)
    arrays = [tvm.runtime.tensor(x, device) for x in (a, given, np.zeros((m, n), sums))]
    built["main"](*arrays)
    result = arrays[-1].numpy().astype(np.float64)
    left, right = a.astype(np.float64), b.astype(np.float64).T
    # sums of CUDA cores are rounded once a product
    share = (
        row.tolerance(k) if row is not None else k * (2.0**-11 if sums == "float16" else 2.0**-23)
    )
    allowed = share * (np.abs(left) @ np.abs(right)) + 1e-30
    worst = float((np.abs(result - left @ right) / allowed).max())
    assert worst <= 1.0, (row.name if row else "CUDA cores", worst)
