"""On an NVIDIA device: every design of `space="tensorcore"` against wide sums (`pytest -m gpu`).

nvcc takes seconds for each kernel, some hundred in all: `-n 12 --dist load` on as many cores.
"""

from __future__ import annotations

import os
import re

import ml_dtypes  # noqa: F401  numpy's bfloat16
import numpy as np
import pytest
import tvm
from scipy.special import erf

from pruner_ms.symbolic.buildable import buildable
from pruner_ms.tensorcore import opted_in
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.space import TensorCoreSpace
from pruner_ms.testing.designs import design_of, is_split
from pruner_ms.testing.operators import OPERATORS
from pruner_ms.testing.oracle import task_of
from pruner_ms.testing.products import batched
from pruner_ms.tvm_compat.passes import config_for, uses_tensor_instructions
from pruner_ms.tvm_compat.paths import (
    IRModule,
    PassContext,
    Target,
    TuneContext,
    build,
    prim_func,
    save_json,
    te,
)
from pruner_ms.tvm_compat.relax_paths import buffer_shape, buffers_of

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(580)]

PRODUCTS = {
    "half": ((256, 192, 320), "float16", "float32", False),
    "half sums": ((128, 256, 256), "float16", "float16", False),
    "by columns": ((256, 192, 320), "float16", "float32", True),
    "bfloat16": ((128, 128, 256), "bfloat16", "float32", False),
    "bfloat16 by columns": ((128, 128, 256), "bfloat16", "float32", True),
    "int8": ((128, 128, 256), "int8", "int32", False),
    "int8 by columns": ((128, 128, 256), "int8", "int32", True),
    "tf32": ((128, 96, 256), "float32", "float32", True),
    "batched": ((2, 3, 64, 96, 128), "float16", "float32", False),
    "batched by columns": ((2, 3, 64, 96, 128), "float16", "float32", True),
    "long": ((128, 128, 2048), "float16", "float32", False),
    "odd": ((100, 72, 200), "float16", "float32", False),
}
FAMILIES = {"int8": {"", "wmma"}, "odd": {"", "wmma"}, "tf32": {"", "mma"}}
"""Instructions that a product is offered, where that is not all families and CUDA cores."""

NAME = r"(w?mma)_sync_m?(\d+)[xn](\d+)[xk](\d+)_([a-z0-9]+?)(_trans)?(_by_k(\d+))?$"
SAMPLED, ROWS = 1024, 2
"""Schedules of each design that are drawn, and that are run."""


@pytest.fixture(scope="module")
def target():
    """The device's target, with all shared memory that a block can ask for."""
    if not tvm.cuda(0).exist:
        pytest.skip("there is no CUDA device")
    os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
    return opted_in(Target.from_device("cuda"))


def tensors(product):
    (*batch, m, n, k), dtype, sums, columns = PRODUCTS[product]
    if batch:
        return batched(batch, m, n, k, turned=columns)
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


def schedules(made, target, rng, tf32=False):
    """The trace of each design of some tensors, with some modules of it."""
    with target:
        mod = IRModule({"main": te.create_prim_func(made)})
    context = TuneContext(
        mod,
        target=target,
        space_generator=TensorCoreSpace(allow_tf32=tf32),
        search_strategy=None,
        rand_state=1,
    )
    found = task_of(context, list(context.generate_design_space()))
    for sketch in found.space:
        rows = sketch.sample(SAMPLED, rng)
        program, seen = sketch.program(rows), 0
        for row in rows[program.gpu.valid & program.supported & buildable(program)]:
            schedule = sketch.replay(row)
            schedule.enter_postproc()
            if all(postproc.apply(schedule) for postproc in found.postprocs):
                yield sketch.trace, schedule.mod
                seen += 1
            if seen == ROWS:
                break
        assert seen, sketch.index


def computed(mod, target, arrays):
    """What a module makes of the last of some arrays, float64."""
    with target, PassContext(config=config_for(target, uses_tensor_instructions(save_json(mod)))):
        built = build(mod, target=target)
    device = tvm.cuda(0)
    given = [tvm.runtime.tensor(x, device) for x in arrays]
    built["main"](*given)
    return given[-1].numpy().astype(np.float64)


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_design_computes_the_product(product, target):
    rng = np.random.default_rng(0)
    seen, parts = set(), False
    for trace, mod in schedules(tensors(product), target, rng, tf32=product == "tf32"):
        check(mod, product, instruction_of(trace), target, rng)
        seen.add(design_of(trace)[0].partition("_")[0])
        parts |= is_split(trace)
    assert FAMILIES.get(product, {"", "mma", "wmma"}) <= seen
    assert parts == (product == "long")


def check(mod, product, row, target, rng):
    (*batch, m, n, k), dtype, sums, columns = PRODUCTS[product]
    wide = rng.integers(-100, 100, (*batch, m + n, k)) / (1 if dtype == "int8" else 64)
    a, b = wide[..., :m, :].astype(dtype), wide[..., m:, :].astype(dtype)
    given = b if columns else b.swapaxes(-1, -2)
    out = np.zeros((*batch, m, n), sums)
    result = computed(mod, target, [np.ascontiguousarray(x) for x in (a, given, out)])
    left, right = a.astype(np.float64), b.astype(np.float64).swapaxes(-1, -2)
    # sums of CUDA cores are rounded once a product
    share = (
        row.tolerance(k) if row is not None else k * (2.0**-11 if sums == "float16" else 2.0**-23)
    )
    allowed = share * (np.abs(left) @ np.abs(right)) + 1e-30
    worst = float((np.abs(result - left @ right) / allowed).max())
    assert worst <= 1.0, (row.name if row else "CUDA cores", worst)


def gelu(a, b, bias, rest):
    d = a @ b + bias
    return d * 0.5 * (erf(d * 0.7071068) + 1.0) + rest


def convolution(x, w):
    around = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows, w)


OTHERS = {"gemm_half_gelu": (gelu, 2.0**-10), "conv2d_half": (convolution, 0.0)}
"""What an operator computes, and the precision to which its result is rounded."""


@pytest.mark.parametrize("operator", OTHERS)
def test_every_design_computes_a_convolution_and_an_epilogue(operator, target):
    """In small integers, of which all sums are exact."""
    reference, share = OTHERS[operator]
    rng, seen = np.random.default_rng(0), set()
    for trace, mod in schedules(OPERATORS[operator](), target, rng):
        buffers = buffers_of(prim_func(mod))
        arrays = [rng.integers(-3, 4, buffer_shape(b)).astype(str(b.dtype)) for b in buffers]
        expected = reference(*(x.astype(np.float64) for x in arrays[:-1]))
        result = computed(mod, target, arrays)
        name = design_of(trace)[0]
        np.testing.assert_allclose(result, expected, rtol=share, atol=share, err_msg=name)
        seen.add(name.partition("_")[0])
    assert "wmma" in seen
