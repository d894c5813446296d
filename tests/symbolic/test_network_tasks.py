"""Tasks as networks have them: loops in 64 bits, casts behind products, images of few pixels."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from pruner_ms.symbolic.buildable import buildable
from pruner_ms.tensorcore.layouts import BY_COLUMNS, BY_ROWS
from pruner_ms.tvm_compat.paths import VERSION, te, te_workload, topi
from tests.support.designs import accepted, design_of, shortest_first
from tests.support.device import kernels, run
from tests.support.operators import context_of
from tests.support.oracle import disagreements, task_of
from tests.support.products import laid_out, rounded, with_bias, with_relu, with_swish

COMPARED = 6
DRAWN = 120
HALF = {"in_dtype": "float16", "out_dtype": "float32"}


def patches():
    """An image cut into windows side by side, of which 9 rows of a tile of 16 or 32 are used."""
    x = te.placeholder((1, 3, 24, 24), name="X", dtype="float16")
    w = te.placeholder((64, 3, 8, 8), name="W", dtype="float16")
    return [x, w, topi.nn.conv2d_nchw(x, w, 8, 0, 1, out_dtype="float32")]


def pixels():
    """An image of 49 pixels, more than one tile and less than two or four of them."""
    return te_workload.conv2d_nhwc(1, 7, 7, 32, 32, 3, 1, 1, **HALF)


CASES = {
    "cast": lambda: rounded(laid_out(BY_ROWS, 24, 40, 64, "float16")),
    "one row, cast": lambda: rounded(laid_out(BY_COLUMNS, 1, 40, 64, "float16")),
    "bias, cast": lambda: rounded(with_bias(laid_out(BY_COLUMNS, 24, 40, 64, "float16"))),
    "swish": lambda: with_swish(laid_out(BY_COLUMNS, 24, 40, 64, "float16")),
    "patches": patches,
    "patches, cast": lambda: rounded(patches()),
    "pixels, relu": lambda: with_relu(pixels()),
    "pixels, cast": lambda: rounded(pixels()),
}


@lru_cache(maxsize=2)
def task(case):
    return task_of(*context_of(CASES[case], "tensorcore", wide=True))


def each_instruction(case):
    """One design of each."""
    return {design_of(sketch.trace)[0]: sketch for sketch in task(case).space}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_the_closed_form_is_what_the_oracle_says(case, rng):
    for sketch in each_instruction(case).values():
        rows = sketch.sample(COMPARED, rng)
        program = sketch.program(rows)
        for i in np.flatnonzero(program.supported):
            reading = task(case).read(sketch, rows[i])
            assert list(disagreements(program, i, rows[i], reading)) == [], rows[i]


@pytest.mark.parametrize("case", ["pixels, relu", "pixels, cast"])
def test_of_what_it_says_nothing_is_refused_by_tvm(case, rng):
    """Tiles of pixels in a row: TVM does not see that all of them are written."""
    sketch = each_instruction(case)["wmma_sync_32x8x16_f16f16f32"]
    rows = sketch.sample(DRAWN, rng)
    supported = sketch.program(rows).supported
    refused = 0
    for row, is_supported in zip(rows, supported, strict=True):
        try:
            sketch.replay(row)
        except RuntimeError:
            refused += 1
            assert not is_supported, row
    assert refused
    assert supported.mean() > 0.8


def test_what_reads_a_sum_twice_is_no_kernel_of_its_own(rng):
    for sketch in each_instruction("swish").values():
        program = sketch.program(sketch.sample(1024, rng))
        mask = program.gpu.valid & program.supported
        assert mask.any()
        assert set(program.gpu.kernels[mask]) == {1}


@pytest.mark.skipif(VERSION.startswith(("0.17", "0.25")), reason="kernels look different there")
def test_what_reads_a_sum_twice_is_right(rng):
    a, b = (rng.integers(-2, 3, shape).astype("float16") for shape in ((24, 64), (40, 64)))
    x = a.astype(float) @ b.astype(float).T / 4
    designs = each_instruction("swish")
    for name in ("wmma_sync_8x32x16_f16f16f32", "mma_sync_m16n8k32_f16f16f32_trans_by_k16"):
        rows = designs[name].sample(512, rng)
        program = designs[name].program(rows)
        usable = program.gpu.valid & program.supported & buildable(program)
        row = rows[shortest_first(program, usable)[:1]]
        (mod,) = accepted(task("swish"), designs[name], row)
        arrays = {"A": a, "B": b, "D": np.full((24, 40), 99, np.float32)}
        for kernel in kernels(mod, task("swish").target):
            run(kernel, arrays)
        np.testing.assert_allclose(arrays["D"], x / (1 + np.exp(-x)), rtol=1e-4, atol=1e-4)
