"""Copies of padded tiles by hand: which vectors are taken apart, what that costs, and its code."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pruner_ms.draft.columns import column
from pruner_ms.draft.gpu.guards import (
    GUARD_INSTRUCTIONS,
    INT_LANES,
    guarding,
    vector_lanes,
    vector_splits,
    written_out,
)
from pruner_ms.draft.gpu.memory import slots, wavefronts
from pruner_ms.draft.score import GUARDED_KILOBYTES, SECONDS_PER_KILOBYTE, draft
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.program import LoopKind
from tests.draft.conftest import copied

A100 = hardware_named("a100")
STEPS, LANES, VECTOR = 6, 32, 4


def tile(width, guard=5, unroll=0):
    """Vectors of four that a warp copies in six steps, in a tile of some width."""
    loops = [(4, "sum"), (STEPS, LoopKind.SERIAL), (LANES, LoopKind.THREAD)]
    loops.append((VECTOR, LoopKind.VECTORIZED))
    rows = {1: LANES * VECTOR, 2: VECTOR, 3: 1}
    return copied(loops, ({}, {0: 512, **rows}), ({}, rows), width, guard, unroll)


@pytest.mark.parametrize(
    ("width", "guard", "apart"),
    [(64, 5, False), (128, 5, False), (96, 5, True), (144, 5, True), (96, 0, False)],
)
def test_vectors_of_rows_that_are_no_power_of_two_are_taken_apart(width, guard, apart):
    nest, (read, written) = tile(width, guard)
    assert vector_splits(nest) == apart
    assert vector_lanes(nest) == (1 if apart else VECTOR)
    reference, _ = tile(64)
    # each of four elements draws the sectors of its warp's stride; one vector the same, once
    each, once = (column(slots(n, read, A100.sm), 1)[0] for n in (nest, reference))
    assert each == pytest.approx(once)
    stored = [column(wavefronts(n, written, A100.sm), 1)[0] for n in (nest, reference)]
    assert (stored[0] > stored[1]) == apart


def test_conditions_are_asked_of_each_access():
    per_cycle = 1e-9
    accesses = 4 * STEPS * LANES
    once = accesses * 5 * GUARD_INSTRUCTIONS * per_cycle / INT_LANES
    assert guarding(tile(128)[0], False, per_cycle) == pytest.approx(once)
    assert guarding(tile(96)[0], False, per_cycle) == pytest.approx(once * VECTOR)
    assert guarding(tile(96, guard=0)[0], False, per_cycle) == 0.0


def test_of_a_tile_that_is_copied_together_each_thread_asks_for_its_vectors():
    # 2 steps of a tile of 8 x 16 floats: 32 vectors of 16 bytes each, by all threads of a block
    nest, _ = copied([(2, "sum")], ({}, {0: 16}), ({}, {}), 16, guard=5)
    nest.touches[1].elements = lambda level: 128.0
    nest.cooperating_threads = 4.0
    instructions = 2 * 32 / 4 * 5 * GUARD_INSTRUCTIONS
    assert guarding(nest, True, 1e-9) == pytest.approx(instructions * 1e-9 / INT_LANES)


@pytest.mark.parametrize(
    ("width", "unroll", "statements"),
    [
        (128, 0, 1),
        (96, 0, 1),  # the vector is left as a loop
        (96, 16, VECTOR),
        (128, 16, STEPS),
        (96, STEPS * VECTOR, STEPS * VECTOR),
        (96, STEPS * VECTOR - 1, VECTOR),
    ],
)
def test_what_is_left_of_a_vector_is_unrolled_like_other_loops(width, unroll, statements):
    # a loop over threads ends what is unrolled
    loops = [(LANES, LoopKind.THREAD), (STEPS, LoopKind.SERIAL), (VECTOR, LoopKind.VECTORIZED)]
    rows = {0: VECTOR, 1: LANES * VECTOR, 2: 1}
    for guard, conditional in ((5, statements), (0, 0)):
        if guard or width == 128:
            nest, _ = copied(loops, ({}, rows), ({}, rows), width, guard, unroll)
            assert written_out(nest) == (statements, conditional)


@pytest.mark.parametrize("which", [0, 1])
def test_conditions_are_in_the_draft(gpu_program, which):
    """Of a copy, which computes nothing else, and of a product."""
    program = gpu_program([[4, 4, 16, 16, 4, 4, 16, 16]])
    statements = list(program.statements)
    asking = {**statements[which].ops, "guard": np.full(1, 5)}
    statements[which] = dataclasses.replace(statements[which], ops=asking)
    asked = draft(dataclasses.replace(program, statements=tuple(statements)), A100)
    plain = draft(program, A100)
    longer = asked.compile_seconds - plain.compile_seconds
    assert longer[0] == pytest.approx(SECONDS_PER_KILOBYTE * GUARDED_KILOBYTES)
    assert asked.terms["compute"][0] > 1.001 * plain.terms["compute"][0]
