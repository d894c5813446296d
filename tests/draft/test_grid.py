"""Grids that are larger along an axis than CUDA starts them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pruner_ms.draft.gpu.latency import grid_fits
from pruner_ms.draft.score import draft
from pruner_ms.hardware import hardware_named

A100 = hardware_named("a100")
MOST = 65535


def bound(program, *axes):
    """A program whose outermost loops are bound to these axes of the grid."""

    def tagged(statement):
        outer, inner = statement.loops[: len(axes)], statement.loops[len(axes) :]
        pairs = zip(outer, axes, strict=True)
        return replace(statement, loops=(*(replace(o, tag=axis) for o, axis in pairs), *inner))

    return replace(program, statements=tuple(map(tagged, program.statements)))


def grids(*sizes):
    """Tiles of a product whose outer loops, of rows and of columns, have these sizes."""
    return [[*size, 16, 16, 1, 1, 1, 1] for size in sizes]


@pytest.mark.parametrize(
    ("axes", "fits"),
    [
        (("blockIdx.x", "blockIdx.y"), [True, True, False, True]),
        (("blockIdx.x", "blockIdx.z"), [True, True, False, True]),
        (("blockIdx.y", "blockIdx.x"), [True, True, True, False]),
        # loops that were fused
        (("blockIdx.y", "blockIdx.y"), [True, False, False, False]),
        (("blockIdx.x", "blockIdx.x"), [True, True, True, True]),
    ],
)
def test_axes_have_limits_of_their_own(gpu_program, axes, fits):
    program = gpu_program(grids((4, 4), (4, MOST), (4, MOST + 1), (MOST + 1, 4)))
    assert grid_fits(bound(program, *axes)).tolist() == fits


def test_the_first_axis_is_limited_too(gpu_program):
    program = gpu_program(grids((2**31 - 1, 1), (2**31, 1)))
    assert grid_fits(bound(program, "blockIdx.x")).tolist() == [True, False]


def test_what_is_not_in_a_row_does_not_count(gpu_program):
    program = bound(gpu_program(grids((4, MOST + 1))), "blockIdx.x", "blockIdx.y")
    gone = [replace(s, alive=~s.alive) for s in program.statements]
    assert not grid_fits(program)[0]
    assert grid_fits(replace(program, statements=tuple(gone)))[0]


def test_a_cpu_has_no_grid(cpu_program):
    assert grid_fits(cpu_program([[8, 4, 4, 8, 16, 16]])).tolist() == [True]


def test_the_draft_takes_no_schedule_that_cannot_be_launched(gpu_program):
    program = bound(gpu_program(grids((4, MOST), (4, MOST + 1))), "blockIdx.x", "blockIdx.y")
    assert program.gpu.valid.all(), "VerifyGPUCode counts no blocks"
    assert draft(program, A100).valid.tolist() == [True, False]
