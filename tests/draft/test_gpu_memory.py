"""Accesses of a GPU's threads by hand: sectors, lines, wavefronts and rows of tiles."""

from __future__ import annotations

import numpy as np
import pytest

from pruner_ms.draft.columns import column
from pruner_ms.draft.gpu_memory import coalescing, conflicts, sectors, slots, wavefronts
from pruner_ms.draft.nest import nest_of
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.program import Loop, LoopKind, Role, SketchProgram, Statement
from tests.draft.conftest import Affine, buffer

A100 = hardware_named("a100")
ONE = np.ones(1, np.int64)


def copied(loops, source, tile, width):
    """The nest of a copy to shared memory, and its reads and writes.

    Parameters
    ----------
    loops
        Pairs of an extent and a kind; "sum" is a serial loop over the sums.
    source, tile
        Strides of the loops in rows and columns, of the matrix that is read and of the tile.
    width
        Columns of the tile.
    """
    extents = np.array([[extent] for extent, _ in loops])
    nested = tuple(
        Loop(
            ONE * extent,
            np.full(1, LoopKind.SERIAL if kind == "sum" else kind, np.int8),
            kind == "sum",
            ONE > 0,
            "threadIdx.x" if kind == LoopKind.THREAD else "",
        )
        for extent, kind in loops
    )
    shapes = ((1024, 1024), (1024, width))
    accesses = tuple(
        Affine(
            n, n == 1, tuple({p: ONE * s for p, s in dim.items()} for dim in dims), shape, extents
        )
        for n, (dims, shape) in enumerate(zip((source, tile), shapes, strict=True))
    )
    statement = Statement("s", Role.LOAD, nested, accesses, {}, "float32", ONE > 0, ONE * 0, False)
    scopes = ("global", "shared")
    buffers = tuple(buffer(s, shape, 1, s) for s, shape in zip(scopes, shapes, strict=True))
    nest = nest_of(statement, SketchProgram(1, (statement,), buffers, ONE > 0))
    return nest, nest.touches


def strided(step, lanes=32):
    """A warp that copies elements so far apart, and what it reads."""
    nest, (read, _) = copied([(lanes, LoopKind.THREAD)], ({}, {0: step}), ({}, {0: 1}), lanes)
    return nest, read


@pytest.mark.parametrize(("step", "count"), [(1, 4), (2, 8), (8, 32), (16, 32), (30, 32), (0, 1)])
def test_sectors_of_a_warp(step, count):
    assert column(sectors(*strided(step), A100.sm), 1)[0] * 32 == pytest.approx(count)


@pytest.mark.parametrize(
    ("step", "count"),
    # a line of 128 bytes takes the time of four sectors, however few of them are drawn
    [(1, 4), (2, 8), (8, 32), (16, 64), (30, 4 * 30), (0, 4)],
)
def test_time_of_an_access_is_that_of_its_sectors_or_of_its_lines(step, count):
    assert column(slots(*strided(step), A100.sm), 1)[0] * 32 == pytest.approx(count)


@pytest.mark.parametrize(
    ("step", "ways"), [(1, 1), (0, 1), (2, 2), (32, 32), (33, 1), (8, 8), (12, 4)]
)
def test_bank_conflicts(step, ways):
    assert column(conflicts(*strided(step)), 1)[0] == ways


def test_threads_around_the_loop_of_the_sums_fill_a_row_of_the_tile_too():
    loops = [(16, LoopKind.THREAD), (4, "sum"), (2, LoopKind.VECTORIZED)]
    columns = {0: 2, 1: 32, 2: 1}
    nest, (read, _) = copied(loops, ({}, columns), ({}, {0: 2, 2: 1}), 32)
    # of 32 columns of 4 bytes; the two that a thread copies alone are a quarter of a sector
    assert column(coalescing(nest, read, A100.sm), 1)[0] == 1.0
    nest, (read, _) = copied(loops, ({}, columns), ({}, {0: 2, 2: 1}), 2)
    assert column(coalescing(nest, read, A100.sm), 1)[0] == pytest.approx(2 * 4 / 32)


@pytest.mark.parametrize(
    ("columns", "waves"),
    [
        ({1: 2, 2: 1}, 4 * 2 * 2),  # 4 steps, 2 stores of a warp, every other bank
        # scattered: as many stores, in 4-way conflict, and not as many as the span has elements
        ({1: 4, 2: 1}, 4 * 2 * 4),
        ({1: 1, 2: 32}, 4 * 2 * 1),
    ],
)
def test_no_more_is_stored_than_there_are_iterations(columns, waves):
    loops = [(4, "sum"), (32, LoopKind.THREAD), (2, LoopKind.SERIAL)]
    nest, (_, written) = copied(loops, ({0: 1}, {1: 1}), ({}, columns), 256)
    each = column(wavefronts(nest, written, A100.sm), 1)[0]
    assert each == pytest.approx(waves)
