"""Accesses of a GPU's threads by hand: sectors, lines, wavefronts and rows of tiles."""

from __future__ import annotations

import pytest

from pruner_ms.draft.columns import column
from pruner_ms.draft.gpu.memory import coalescing, conflicts, sectors, slots, wavefronts
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.program import LoopKind
from tests.draft.conftest import copied

A100 = hardware_named("a100")


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
