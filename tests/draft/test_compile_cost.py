"""Seconds of compiling: what is known to take long is, and what only looks like it is not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pruner_ms.config import SearchConfig
from pruner_ms.draft.block import block_of
from pruner_ms.draft.columns import column, number
from pruner_ms.draft.cpu.compile_cost import chain_seconds, statement_seconds
from pruner_ms.draft.nest import nest_of
from pruner_ms.hardware import hardware_named

AVX2 = hardware_named("cpu-avx2")
LIMIT = SearchConfig().compile_limit


def as_maximum(program, unroll):
    """A GEMM's update as a maximum: comparisons instead of additions."""
    update = program.statements[0]
    counts = {kind: np.zeros_like(count) for kind, count in update.ops.items()}
    counts["cmp"] = np.ones(program.rows, np.int64)
    update = dataclasses.replace(update, ops=counts, unroll=np.full(program.rows, unroll))
    return dataclasses.replace(program, statements=(update,))


def chain(program, unroll=64):
    nest = nest_of(as_maximum(program, unroll).statements[0], program)
    return column(chain_seconds(nest, number(nest.statement.unroll)), program.rows)


def test_a_chain_doubles_the_time_with_every_link(cpu_program):
    # i0, j0, k0, i1, k1, j1: k1 comparisons are unrolled within the loop over k0
    times = chain(cpu_program([[8, 1, 8, 1, k, 1] for k in (16, 24, 25, 26, 32)], size=512))
    assert times[1:4] / times[1] == pytest.approx([1, 2, 4])
    assert times[0] < 0.01
    assert times[4] > LIMIT


def test_only_a_comparison_that_a_loop_carries_explodes(cpu_program):
    tile = [[8, 1, 8, 1, 32, 1]]
    program = cpu_program(tile, size=512, unroll=64)
    assert chain(program) > LIMIT
    sums = nest_of(program.statements[0], program)
    assert chain_seconds(sums, 64.0) == 0
    assert chain(program, unroll=16) < 1e-3  # the chain stays a loop
    assert chain(program, unroll=512) == 0  # nothing but the chain
    # the loop around it moves on to another result
    assert chain(cpu_program([[8, 8, 1, 1, 32, 1]], size=512)) == 0
    # four results at once
    assert chain(cpu_program([[8, 1, 8, 4, 32, 1]], size=512), unroll=128) == 0
    # the lanes of a vector are one result
    assert chain(cpu_program([[8, 1, 8, 1, 32, 8]], size=512)) > LIMIT


def test_a_long_chain_goes_through_memory(cpu_program):
    times = chain(cpu_program([[8, 1, 8, 1, k, 1] for k in (64, 128)], size=512), unroll=128)
    assert times[0] > LIMIT > times[1]


class Unmoved:
    """An access that one loop does not move."""

    def __init__(self, access, loop):
        self._access, self._loop = access, loop
        self.buffer, self.write, self.mask = access.buffer, access.write, access.mask
        self.footprint, self.run = access.footprint, access.run

    def stride(self, loop):
        steps = self._access.stride(loop)
        return np.zeros_like(steps) if loop == self._loop else steps


def test_a_long_chain_is_slow_where_a_loop_repeats_it(cpu_program):
    """A row's maximum, recomputed for each of its elements."""
    program = cpu_program([[8, 8, 1, 1, k, 1] for k in (64, 512)], size=512)
    update = program.statements[0]
    still = tuple(Unmoved(access, 1) for access in update.accesses)
    moved = dataclasses.replace(program, statements=(dataclasses.replace(update, accesses=still),))
    times = chain(moved, unroll=512)
    assert times[0] == 0
    assert times[1] > LIMIT
    assert (chain(program, unroll=512) == 0).all()


def seconds(program):
    nest = nest_of(program.statements[0], program)
    block = block_of(nest, AVX2.core, 4)
    return column(statement_seconds(nest, block), program.rows)


def strided(program):
    """The same with the first operand's elements a column apart along the vector."""
    update = program.statements[0]
    accesses = list(update.accesses)
    accesses[1] = Apart(accesses[1], 5)
    update = dataclasses.replace(update, accesses=tuple(accesses))
    return dataclasses.replace(program, statements=(update,))


class Apart(Unmoved):
    """An access that one loop moves by a row of 512."""

    def stride(self, loop):
        steps = self._access.stride(loop)
        return np.full_like(steps, 512) if loop == self._loop else steps


def test_long_strided_vectors_are_what_takes_long(cpu_program):
    """64 of them, 64 elements each, took 10 s on the machine of the pools; 1.4 s with 32."""
    tiles = [[8, 1, 8, 1, 64, v] for v in (8, 16, 32, 64)]
    plain = cpu_program(tiles, size=512, unroll=64)
    assert seconds(plain).max() < 0.5
    costs = seconds(strided(plain))
    assert (np.diff(costs) > 0).all()
    assert costs[2] < LIMIT / 2
    assert costs[3] > LIMIT


def test_a_loop_costs_more_within_others(cpu_program):
    tiles = [[8, 1, 512, 1, 1, 16], [8, 1, 64, 1, 8, 16], [8, 4, 64, 2, 8, 4]]
    costs = seconds(cpu_program(tiles, size=512))
    assert costs[0] < costs[1] < costs[2]
    assert costs[2] - costs[1] > costs[1] - costs[0]
