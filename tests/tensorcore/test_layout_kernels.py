"""Kernels of `mma` whose factors lie otherwise than stock's rule knows, on an emulated grid."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  numpy's bfloat16
import numpy as np
import pytest

from pruner_ms.symbolic.buildable import buildable, permuted_layout_fits
from pruner_ms.tensorcore.layouts import BY_COLUMNS_FIRST, BY_ROWS, SWAPPED, Layout
from pruner_ms.tvm_compat.paths import VERSION, te, topi
from tests.support.designs import accepted, design_of, shortest_first
from tests.support.device import kernels, run
from tests.support.operators import context_of
from tests.support.oracle import task_of
from tests.support.products import laid_out, with_bias, with_relu

pytestmark = pytest.mark.skipif(
    VERSION.startswith(("0.17", "0.25")), reason="lowered kernels look different there"
)


def nchw(side, deep, wide, kernel, groups=1, dtype="float16"):
    """A convolution whose pixels are neighbours."""
    x = te.placeholder((2, deep, side, side), name="X", dtype=dtype)
    w = te.placeholder((wide, deep // groups, kernel, kernel), name="W", dtype=dtype)
    around = kernel // 2
    if groups == 1:
        return [x, w, topi.nn.conv2d_nchw(x, w, 1, around, 1, out_dtype="float32")]
    return [x, w, topi.nn.group_conv2d_nchw(x, w, 1, around, 1, groups, "float32")]


def convolved(x, w):
    groups, edge = x.shape[1] // w.shape[1], (w.shape[2] // 2,) * 2
    x = np.pad(x, [(0, 0), (0, 0), edge, edge])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    parts = zip(np.split(windows, groups, axis=1), np.split(w, groups), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", *part) for part in parts], axis=1)


def batch_of_turned():
    """Products of a batch, both factors of which are stored by columns."""
    a = te.placeholder((3, 64, 32), name="A", dtype="float16")
    b = te.placeholder((3, 64, 64), name="B", dtype="float16")
    k = te.reduce_axis((0, 64), name="k")

    def product(h, i, j):
        return te.sum(a[h, k, i].astype("float32") * b[h, j, k].astype("float32"), axis=k)

    return [a, b, te.compute((3, 32, 64), product, name="C")]


TURNED = Layout(transposed_a=True, transposed_b=True)
BYTES = Layout(transposed_b=True, swapped=True)
CASES = {
    # tensors, what they compute of the inputs, the layout's mark in the names of its intrinsics
    "1x1": (lambda: nchw(8, 64, 32, 1), convolved, "_swapped"),
    "1x1, odd image": (lambda: nchw(7, 64, 40, 1), convolved, "_swapped"),
    "3x3, grouped": (lambda: nchw(8, 64, 64, 3, 2), convolved, "_swapped"),
    "1x1, grouped": (lambda: nchw(8, 128, 64, 1, 2), convolved, "_swapped"),
    "1x1, tf32": (lambda: nchw(8, 64, 32, 1, dtype="float32"), convolved, "_swapped"),
    "1x1, relu": (
        lambda: with_relu(nchw(8, 64, 32, 1)),
        lambda x, w: np.maximum(convolved(x, w), 0),
        "_swapped",
    ),
    "batch": (batch_of_turned, lambda a, b: np.einsum("hki,hjk->hij", a, b), "_transa_trans"),
    "bias, bfloat16": (
        lambda: with_bias(laid_out(BY_COLUMNS_FIRST, 64, 96, 64, "bfloat16")),
        lambda a, b, bias: np.maximum(a.T @ b + bias, 0),
        "_transa",
    ),
    "odd, both by columns": (
        lambda: laid_out(TURNED, 40, 72, 72, "float16"),
        lambda a, b: a.T @ b.T,
        "_transa_trans",
    ),
    "odd tf32, B first": (
        lambda: laid_out(SWAPPED, 40, 24, 48, "float32"),
        lambda a, b: a @ b,
        "_swapped",
    ),
    "odd bytes, B first": (
        lambda: laid_out(BYTES, 40, 72, 144, "int8", "int32"),
        lambda a, b: a @ b.T,
        "_trans_swapped",
    ),
}


def found_of(tensors):
    """The design space of some tensors, with a sketch of each instruction of `mma`."""
    task = task_of(*context_of(tensors, "tensorcore-tf32"))
    sketches = {design_of(s.trace)[0]: s for s in task.space if design_of(s.trace)[1] == 2}
    return task, {name: s for name, s in sketches.items() if name.startswith("mma")}


def kernel_of(task, sketch):
    """A kernel with a short program."""
    rows = sketch.sample(1024, np.random.default_rng(0))
    program = sketch.program(rows)
    usable = program.gpu.valid & program.supported & buildable(program)
    for mod in accepted(task, sketch, rows[shortest_first(program, usable)[: usable.sum()]]):
        (func,) = kernels(mod, task.target)
        return func
    raise LookupError(design_of(sketch.trace))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", CASES)
def test_a_kernel_of_each_instruction_is_right(case):
    tensors, reference, mark = CASES[case]
    task, sketches = found_of(tensors)
    made = tensors()
    rng = np.random.default_rng(0)
    arrays = {
        tensor.op.name: rng.integers(-3, 4, [int(n) for n in tensor.shape]).astype(
            str(tensor.dtype)
        )
        for tensor in made
    }
    *inputs, result = arrays
    expected = reference(*(arrays[name].astype(np.float64) for name in inputs))
    assert sketches
    for name, sketch in sketches.items():
        assert mark in name
        arrays[result][:] = 99
        run(kernel_of(task, sketch), arrays)
        np.testing.assert_array_equal(arrays[result].astype(np.float64), expected, err_msg=name)


def test_tiles_whose_rows_lie_apart_may_be_narrower_than_permuted_ones():
    """Of tf32 by rows they are 16 deep."""
    _, sketches = found_of(lambda: laid_out(BY_ROWS, 64, 96, 128, "float32"))
    for sketch in sketches.values():
        program = sketch.program(sketch.sample(512, np.random.default_rng(0)))
        assert permuted_layout_fits(program).all()
    _, sketches = found_of(lambda: laid_out(BY_ROWS, 64, 96, 128, "float16"))
    programs = [s.program(s.sample(512, np.random.default_rng(0))) for s in sketches.values()]
    assert not all(permuted_layout_fits(program).all() for program in programs)
