"""What the draft knows of tensor cores: their roof on Hopper, and conflicts of permuted tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pruner_ms.draft.columns import column
from pruner_ms.draft.gpu.latency import gpu_terms
from pruner_ms.draft.gpu.memory import tile_conflicts
from pruner_ms.draft.nest import nest_of
from pruner_ms.draft.paper.penalties import limits_at, limits_of
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.program import LoopKind, Role, SketchProgram, Statement
from tests.draft.conftest import Affine, buffer, loops_of, ops

GOOD = [4, 4, 16, 16, 4, 4, 16, 16]
SCOPES = ("global", "global", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")
PRODUCT = 16**3
"""Multiply-adds of an instruction."""


def tensorised(program):
    """The product with fragments, and an instruction of 16 x 16 x 16 in each iteration."""
    buffers = [
        replace(b, scope=scope, dtype="float32" if scope == "global" else "float16")
        for b, scope in zip(program.buffers, SCOPES, strict=True)
    ]
    load, update = program.statements
    many = {kind: count * PRODUCT for kind, count in update.ops.items()}
    return replace(program, buffers=tuple(buffers), statements=(load, replace(update, ops=many)))


def test_instructions_of_one_warp_do_not_reach_the_data_sheets_peak_on_hopper(gpu_program):
    hopper = hardware_named("h100")
    # the same device, if it were of an architecture where they do
    other = replace(hopper, gpu=replace(hopper.sm, arch="sm_89"))
    program = tensorised(gpu_program([GOOD]))
    slow, fast = (gpu_terms(program, device)["compute"][0] for device in (hopper, other))
    assert slow / fast == pytest.approx(1 / 0.629, rel=1e-4)
    plain = [gpu_terms(gpu_program([GOOD]), device)["compute"][0] for device in (hopper, other)]
    assert plain[0] == plain[1]


def test_the_papers_constants_of_tensor_cores_by_hand():
    hopper = limits_of(hardware_named("h100"), "float16", tensor=True)
    assert hopper.t_p == pytest.approx(0.629 * 989e12)
    assert hopper.r_tc == pytest.approx(0.629 * 989e12 / 2 / (132 * 1980e6))
    assert limits_of(hardware_named("h100"), "float16").t_p == pytest.approx(133.8e12)
    assert limits_of(hardware_named("a100"), "float16", tensor=True).t_p == pytest.approx(312e12)


def adding_up_in(program, dtype):
    """The tensorised product with sums of another type."""
    *others, sums = program.buffers
    return replace(program, buffers=(*others, replace(sums, dtype=dtype)))


def test_a_geforce_takes_twice_as_long_for_sums_of_float32(gpu_program):
    device, program = hardware_named("rtx4090"), tensorised(gpu_program([GOOD]))
    fp16, fp32 = (adding_up_in(program, dtype) for dtype in ("float16", "float32"))
    fast, slow = (gpu_terms(each, device)["compute"][0] for each in (fp16, fp32))
    assert 1.5 < slow / fast <= 2.0 * (1 + 1e-9)
    update = program.statements[1]
    fast, slow = (limits_at(update, each, device).t_p for each in (fp16, fp32))
    assert (fast, slow) == (330e12, 165e12)
    same = [gpu_terms(each, hardware_named("a100"))["compute"][0] for each in (fp16, fp32)]
    assert same[0] == same[1]


def loaded(scope, dtype, row):
    """The load of fragments from a tile of 64 rows in shared memory, and its access to the tile."""
    one, extents = np.ones(1, np.int64), np.array([[64], [row]])
    shape = (64, row)
    accesses = tuple(Affine(i, i == 1, ({0: one}, {1: one}), shape, extents) for i in (0, 1))
    loops = loops_of(extents, (LoopKind.SERIAL, LoopKind.SERIAL), (False, False))
    every = one > 0
    statement = Statement("A", Role.LOAD, loops, accesses, ops(1), dtype, every, one * 0, False)
    scopes = {"tile": "shared.dyn", "fragment": scope}
    buffers = tuple(buffer(name, shape, 1, location, dtype) for name, location in scopes.items())
    nest = nest_of(statement, SketchProgram(1, (statement,), buffers, every))
    return nest, nest.touches[0]


def fullest_bank(row, itemsize):
    """Words of the fullest bank when eight rows of 16 bytes of a permuted tile are read."""
    maximum = 0
    for first in range(0, row, 16 // itemsize):
        words = [0] * 32
        for r in range(8):
            # TVM's transform/inject_permuted_layout.cc: groups of eight elements
            group = first // 8 ^ (r if row % 64 == 0 else r // 2)
            start = (r * row + group * 8 + first % 8) * itemsize
            for byte in range(start, start + 16, 4):
                words[byte // 4 % 32] += 1
        maximum = max(maximum, *words)
    return maximum


@pytest.mark.parametrize("row", [32, 64, 96, 128])
@pytest.mark.parametrize(("dtype", "ways"), [("float16", 1), ("bfloat16", 1), ("float32", 2)])
def test_permuted_tiles_of_wide_types_have_conflicts(row, dtype, ways):
    nest, tile = loaded("m16n8k8.matrixA", dtype, row)
    assert fullest_bank(row, tile.buffer.itemsize) == ways
    assert column(tile_conflicts(nest, tile), 1)[0] == ways


def test_tiles_that_are_not_permuted_go_by_their_pitch():
    # rows of 128 bytes: all eight in the same banks
    nest, tile = loaded("wmma.matrix_a", "float16", 64)
    assert column(tile_conflicts(nest, tile), 1)[0] == 8
