"""Asynchronous copies of an image whose pixels are no multiple of 16 bytes: some cannot be run."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from pruner_ms.draft import draft
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic import buildable
from pruner_ms.symbolic.index.expr import Const, Iter, binary
from pruner_ms.symbolic.lowering import gpu_memory
from pruner_ms.symbolic.lowering.alignment import Source, is_aligned
from pruner_ms.symbolic.program import LoopKind
from pruner_ms.tvm_compat.paths import VERSION, te_workload
from tests.support.designs import design_of, shortest_first
from tests.support.device import kernels, run
from tests.support.kernel_memory import Hazard
from tests.support.operators import context_of
from tests.support.oracle import task_of

HALF = {"in_dtype": "float16", "out_dtype": "float32"}
SHAPES = {
    # batch, height, width, channels in and out, kernel, stride, padding
    "odd pixels": (1, 11, 11, 20, 32, 4),
    # 80 bytes from one to the next, 400 from row to row
    "every second pixel": (1, 10, 10, 20, 32, 4, 2),
    "pixels of 16 bytes": (1, 11, 11, 24, 32, 4),
    # the vectors stay in a pixel, or fall apart
    "padded": (1, 8, 8, 20, 32, 3, 1, 1),
}
WIDE = 8
"""Halves of 16 bytes."""

MISALIGNED = "odd pixels"
"""The shape whose images cannot be copied by so many."""


@pytest.fixture(autouse=True)
def alignment_alone(monkeypatch):
    """Of the two things that a program says of copies: TVM has no code for some aligned ones."""
    monkeypatch.setattr(gpu_memory, "have_code", lambda state: True)


def plus(a, b):
    return binary("+", a, b)


def times(a, b):
    return binary("*", a, Const(b))


def digit(value, low, modulus=None):
    quotient = binary("//", value, Const(low))
    return quotient if modulus is None else binary("%", quotient, Const(modulus))


def image(side, channels, kernel, stride=1, base=0):
    """What im2col reads: rows are pixels of the result, columns are channels of a window."""
    out = (side - kernel) // stride + 1
    row, column = Iter(0), Iter(1)
    down = plus(times(digit(row, out), stride), digit(column, kernel * channels))
    right = plus(times(digit(row, 1, out), stride), digit(column, channels, kernel))
    last = plus(digit(column, 1, channels), Const(base))
    extents = ((0, out * out), (1, kernel * kernel * channels))
    return Source((down, right, last), (side, side, channels), extents)


def batch(rows, columns, end):
    """Four matrices whose rows were padded to 32, one below the other; `end` of each are read."""
    row = Iter(0)
    indices = (digit(row, 32), digit(row, 1, 32), Iter(1))
    ends = ((digit(row, 1, 32), end),)
    return Source(indices, (4, rows, columns), ((0, 4 * 32), (1, 8)), ends)


@pytest.mark.parametrize(
    ("source", "good"),
    [
        (batch(50, 20, 50), {4: True, 8: False}),
        (batch(50, 24, 50), {4: True, 8: True}),
        # rows are 12 apart, but the first of each matrix is all that is read
        (batch(2, 12, 2), {4: True, 8: False}),
        (batch(2, 12, 1), {4: True, 8: True}),
        (image(19, 20, 4), {2: True, 4: True, 8: False}),
        (image(11, 24, 4), {2: True, 4: True, 8: True}),
        (image(10, 20, 4, stride=2), {2: True, 4: True, 8: True}),
        # 11 rows of 440 bytes, of which every second is read, and the ones between by the kernel
        (image(11, 20, 4, stride=2), {4: True, 8: False}),
        # three pixels of 20 are no whole vectors of 8: TVM reads each element by itself
        (image(19, 20, 3), {4: True, 8: True}),
        (image(19, 20, 4, base=2), {2: True, 4: False, 8: False}),
        # a matrix of 20 columns
        (Source((Iter(0), Iter(1)), (16, 20), ((0, 16), (1, 20))), {2: True, 4: True, 8: True}),
        (Source((Iter(0), Iter(1)), (16, 20), ((0, 16), (1, 16))), {4: True, 8: False}),
        # one row: nothing to be apart
        (Source((Iter(0), Iter(1)), (16, 20), ((0, 1), (1, 16))), {4: True, 8: True}),
        # no vector along the columns
        (Source((Iter(1), Iter(0)), (16, 20), ((0, 16), (1, 16))), {8: True}),
    ],
)
def test_vectors_by_hand(source, good):
    assert {lanes: is_aligned(source, lanes) for lanes in good} == good


@lru_cache(maxsize=8)
def task(shape):
    make = SHAPES[shape]
    return task_of(*context_of(lambda: te_workload.conv2d_nhwc(*make, **HALF), "tensorcore"))


def lanes_of(program, name="inputs"):
    """Elements of the image that a thread copies at once, of each row."""
    for statement in program.statements:
        read = {program.buffers[a.buffer].name for a in statement.accesses if not a.write}
        scopes = {program.buffers[a.buffer].scope for a in statement.accesses if a.write}
        if name in read and any(scope.startswith("shared") for scope in scopes):
            return statement.extent_of(LoopKind.VECTORIZED)
    raise LookupError(name)


def others(program):
    """Rows that can be built and run but for their copies."""
    mask = program.gpu.valid & program.supported
    for rule in buildable.RULES:
        if rule is not buildable.copies_are_aligned:
            mask = mask & rule(program)
    return mask


@pytest.mark.heavy
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_whose_copies_are_not_aligned_are_invalid(shape):
    wide = 0
    for sketch in task(shape).space:
        name, ahead = design_of(sketch.trace)
        program = sketch.program(sketch.sample(2048, np.random.default_rng(0)))
        fits, usable = buildable.copies_are_aligned(program), others(program)
        asynchronous = bool(name) and ahead > 0
        copied = np.full(program.rows, WIDE) if name.startswith("mma") else lanes_of(program)
        bad = (copied == WIDE) & asynchronous & (shape == MISALIGNED)
        assert (fits == ~bad)[usable].all(), (name, ahead)
        assert not draft(program, hardware_named("a100")).valid[bad].any()
        wide += int((bad & usable).sum())
    assert (wide > 0) is (shape == MISALIGNED)


def product(shape):
    """Arguments of a kernel, and the result; small integers, so that all sums are exact."""
    n, h, w, ci, co, k, *rest = SHAPES[shape]
    stride = rest[0] if rest else 1
    rng = np.random.default_rng(0)
    image_ = rng.integers(-3, 4, (n, h, w, ci)).astype(np.float16)
    weight = rng.integers(-3, 4, (k, k, ci, co)).astype(np.float16)
    windows = np.lib.stride_tricks.sliding_window_view(image_, (k, k), axis=(1, 2))
    windows = windows[:, ::stride, ::stride].astype(np.float64)
    exact = np.einsum("nhwcij,ijco->nhwo", windows, weight.astype(np.float64))
    arrays = {"inputs": image_, "weight": weight, "conv2d_nhwc": np.full(exact.shape, 99.0, "f4")}
    return arrays, exact


def misaligned(conv_task, sketch, row, shape):
    """Whether a kernel on an emulated grid copies from where it cannot; else it is right."""
    schedule = sketch.replay(row)
    schedule.enter_postproc()
    assert all(postproc.apply(schedule) for postproc in conv_task.postprocs)
    (func,) = kernels(schedule.mod, conv_task.target)
    arrays, exact = product(shape)
    try:
        run(func, arrays)
    except Hazard as hazard:
        assert "in global memory is not aligned" in str(hazard)
        return True
    np.testing.assert_array_equal(arrays["conv2d_nhwc"], exact)
    return False


@pytest.mark.skipif(VERSION.startswith(("0.17", "0.25")), reason="kernels look different there")
@pytest.mark.parametrize("shape", ["odd pixels", "every second pixel"])
def test_the_verdict_is_that_of_an_emulated_grid(shape):
    """Of a row of each design, and of narrow and wide copies where there are both."""
    conv_task, seen = task(shape), set()
    for sketch in conv_task.space:
        name, ahead = design_of(sketch.trace)
        if not name or not ahead or ahead == 3 or (name[:4], ahead) in seen:
            continue
        seen.add((name[:4], ahead))
        rows = sketch.sample(2048, np.random.default_rng(0))
        program = sketch.program(rows)
        copied = np.full(len(rows), WIDE) if name.startswith("mma") else lanes_of(program)
        for lanes in np.intersect1d(copied, (WIDE // 2, WIDE)):
            usable = others(program) & (copied == lanes)
            row = shortest_first(program, usable)[0]
            if usable[row]:
                bad = misaligned(conv_task, sketch, rows[row], shape)
                assert bad != bool(program.gpu.aligned[row]), (name, ahead, lanes)
    assert seen
