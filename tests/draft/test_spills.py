"""Spilled registers by hand, and what LLVM computes once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pruner_ms.draft.block import block_of, hoisted_by_llvm
from pruner_ms.draft.columns import column
from pruner_ms.draft.cpu.core import block_cycles
from pruner_ms.draft.cpu.latency import cpu_terms
from pruner_ms.draft.cpu.spills import SPILL_CYCLES, TEMPORARIES
from pruner_ms.draft.nest import nest_of
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.program import LoopKind, Role, SketchProgram, Statement
from pruner_ms.symbolic.program import staged as marked
from tests.draft.conftest import Affine, buffer, loops_of, ops

AVX2 = hardware_named("cpu-avx2").with_units(4)
FREE = AVX2.core.vector_registers - TEMPORARIES


def spilled(program, row=0):
    """Operations per run of the block."""
    nest = nest_of(program.statements[0], program)
    cycles = block_cycles(nest, block_of(nest, AVX2.core, 4), AVX2.core)
    return column(cycles.spill, program.rows)[row] / SPILL_CYCLES


def test_loads_moved_out_of_a_spatial_loop_are_stored_once_and_loaded_in_each_run(cpu_program):
    # in the block: k1 = 8 times 4 vectors of B, which do not move along i1 = 8 around it; C has 4
    operations = spilled(cpu_program([[8, 2, 8, 8, 8, 32]], unroll=8))
    share = (4 + 32 - FREE) / 32
    assert 0 < share < 1
    assert operations == pytest.approx(share * (32 + 32 / 8))


def test_what_fits_into_registers_is_not_spilled(cpu_program):
    assert spilled(cpu_program([[8, 8, 32, 8, 2, 8]], unroll=2)) == 0


def test_a_reduction_around_the_block_leaves_nothing_to_keep(cpu_program):
    # i1 = 4 and k1 = 16 unrolled below k0: B is read again for each i1, and used up at once
    assert spilled(cpu_program([[16, 8, 4, 4, 16, 8]], unroll=64)) == 0


def test_a_long_block_is_not_ordered_by_its_reduction(cpu_program):
    # k1 = 16 times 4 vectors of B, which do not move along i1 = 4; with k1 = 8 LLVM sorts them
    long, short = (
        spilled(cpu_program([tile], unroll=64))
        for tile in ([16, 2, 4, 4, 16, 32], [16, 2, 8, 4, 8, 32])
    )
    assert 16 + 64 - FREE > 64  # all of them
    assert long == pytest.approx(64 + 3 * 64)
    assert short == 0


def test_equal_loads_of_a_block_below_a_spatial_loop_are_kept(cpu_program):
    # k0 = 1: the loop around the block of i1 = 8 and k1 = 64 is j0, along which B moves and A not
    operations = spilled(cpu_program([[8, 8, 1, 8, 64, 8]], unroll=512))
    kept_a, kept_b = 8 * 64, 64
    share = (8 + kept_a + kept_b - FREE) / (kept_a + kept_b)
    assert operations == pytest.approx(share * (kept_a * (1 + 1 / 8) + kept_b * 8))


def test_every_row_is_judged_alone(cpu_program):
    tiles = [[8, 2, 8, 8, 8, 32], [8, 8, 32, 8, 2, 8], [16, 8, 4, 4, 16, 8]]
    together = cpu_program(tiles, unroll=8)
    alone = [spilled(cpu_program([tile], unroll=8)) for tile in tiles]
    assert [spilled(together, row) for row in range(3)] == pytest.approx(alone)
    assert alone[0] > alone[1] == 0


def test_spills_are_part_of_the_access_term_and_of_the_latency(cpu_program, monkeypatch):
    from pruner_ms.draft.cpu import latency, spills

    program = cpu_program([[8, 2, 8, 8, 8, 32]], unroll=8)
    latency.forget_figures()
    with_spills = cpu_terms(program, AVX2)
    monkeypatch.setattr(spills, "SPILL_CYCLES", 0.0)
    latency.forget_figures()
    without = cpu_terms(program, AVX2)
    latency.forget_figures()
    more = {name: with_spills[name][0] - without[name][0] for name in ("access", "total")}
    assert more["access"] == pytest.approx(more["total"], rel=1e-3) and more["total"] > 0
    assert with_spills["compute"] == without["compute"]


def elementwise(staged: bool, reduction: bool = False):
    """Y[j] = X[j] in a loop along which neither moves; X is filled by a statement if `staged`."""
    extents = np.array([[64], [8]])
    kinds = (LoopKind.SERIAL, LoopKind.VECTORIZED)
    along = ({1: np.ones(1, np.int64)},)

    def statement(name, read, write, reduces):
        accesses = [Affine(read, False, along, (8,), extents)]
        accesses += [Affine(write, False, along, (8,), extents)] if reduces else []
        accesses.append(Affine(write, True, along, (8,), extents))
        loops = loops_of(extents, kinds, (reduces, False))
        every, none = np.ones(1, np.bool_), np.zeros(1, np.int64)
        return Statement(
            name,
            Role.COMPUTE,
            loops,
            tuple(accesses),
            ops(1, add=1),
            "float32",
            every,
            none,
            reduces,
        )

    buffers = tuple(buffer(n, (8,), 1) for n in "WXY")
    use = statement("Y", 1, 2, reduction)
    statements = (use,)
    if staged:
        buffers = (buffers[0], replace(buffers[1], param=False), buffers[2])
        statements += (statement("X", 0, 1, False),)
    marked_buffers = marked(buffers, statements)
    assert [b.name for b in marked_buffers if b.staged] == (["X"] if staged else [])
    return SketchProgram(1, statements, marked_buffers, np.ones(1, np.bool_))


@pytest.mark.parametrize(
    ("program", "saved"),
    [(elementwise(False), 64), (elementwise(True), 1), (elementwise(False, reduction=True), 1)],
    ids=["an argument stands", "a staged copy is filled anew", "a sum grows"],
)
def test_what_does_not_move_is_computed_once_if_it_stands(program, saved):
    nest = nest_of(program.statements[0], program)
    block = block_of(nest, AVX2.core, 4)
    assert column(hoisted_by_llvm(nest, block.inside), 1)[0] == saved
