"""The oracle on programs that are small enough to check by hand, and on every kind of target."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.flat import FlatBlock, digit, flat_access, window_width
from pruner_ms.symbolic.lowered import read
from pruner_ms.symbolic.numeric import Table, join, tidy
from pruner_ms.symbolic.program import LoopKind, Role
from pruner_ms.tvm_compat.paths import Schedule, Target, te, te_workload

LLVM = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})


def test_a_gemm_by_hand() -> None:
    schedule = Schedule(te.create_prim_func(te_workload.matmul(8, 16, 32)))
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    i0, i1 = schedule.split(i, [4, 2])
    schedule.reorder(i0, k, i1, j)
    schedule.parallel(i0)
    schedule.vectorize(j)
    schedule.decompose_reduction(block, k)
    program = read(schedule.mod, LLVM)
    init, update = program.statements
    assert (init.role, update.role) == (Role.INIT, Role.COMPUTE)
    assert [int(loop.extent[0]) for loop in update.loops] == [4, 32, 2, 16]
    assert [int(loop.kind[0]) for loop in update.loops] == [
        LoopKind.PARALLEL, LoopKind.SERIAL, LoopKind.SERIAL, LoopKind.VECTORIZED,
    ]  # fmt: skip
    assert [loop.reduction for loop in update.loops] == [False, True, False, False]
    assert {k: int(v[0]) for k, v in update.ops.items() if v[0]} == {"add": 1, "mul": 1}
    by_name = {
        (program.buffers[access.buffer].name, access.write): access for access in update.accesses
    }
    a, b, c = by_name["A", False], by_name["B", False], by_name["C", True]
    assert [int(a.footprint(level)[0]) for level in range(5)] == [256, 64, 2, 1, 1]
    assert [int(b.footprint(level)[0]) for level in range(5)] == [512, 512, 16, 16, 1]
    assert [int(b.run(level)[0]) for level in range(5)] == [512, 512, 16, 16, 1]
    assert [int(c.stride(loop)[0]) for loop in range(4)] == [32, 0, 16, 1]
    assert [int(a.stride(loop)[0]) for loop in range(4)] == [64, 1, 32, 0]
    assert int(update.trips()[0]) == 8 * 16 * 32
    assert ("C", False) in by_name


@pytest.mark.parametrize(
    ("workload", "rules"),
    [("gemm", "cuda"), ("softmax", "cuda"), ("softmax", "llvm"), ("gemm_half", "cuda-tensorcore")],
)
def test_it_reads_what_has_no_closed_form(
    workload: str, rules: str, task: Any, rng: np.random.Generator
) -> None:
    found = task(workload, rules)
    read_rows = 0
    for sketch in found.space:
        for row in sketch.sample(40, rng):
            _, program = found.replayed(sketch, row)
            if program is None:
                continue
            read_rows += 1
            assert program.statements
            for statement in program.statements:
                levels = [0, len(statement.loops)]
                for access in statement.accesses:
                    outer, inner = (int(access.footprint(level)[0]) for level in levels)
                    assert outer >= inner >= 1
            if rules != "llvm":
                assert program.gpu is not None
                assert 1 <= program.gpu.threads[0] <= 1024
            if read_rows == 4:
                return
    assert read_rows


def test_a_tensorized_block_is_one_statement(task: Any, rng: np.random.Generator) -> None:
    found = task("gemm_half", "cuda-tensorcore")
    for row in found.space[0].sample(200, rng):
        _, program = found.replayed(found.space[0], row)
        if program is None:
            continue
        roles = [s.role for s in program.statements]
        assert roles.count(Role.LOAD) == 4  # global to shared and shared to fragment, twice
        assert roles.count(Role.STORE) == 2
        mma = next(s for s in program.statements if s.role is Role.COMPUTE)
        assert int(mma.ops["mul"][0]) == 16 * 16 * 16
        assert [int(a.footprint(len(mma.loops))[0]) for a in mma.accesses] == [256] * 4
        assert int(program.gpu.threads[0]) % 32 == 0
        return
    pytest.fail("no row of 200 passed the postprocessors")


def test_tables_against_brute_force() -> None:
    i, j = np.arange(6), np.arange(4)
    fused = Table((0,), i // 2 * 3)
    other = Table((0, 1), (i[:, None] + 5 * j[None, :]) % 7)
    found = join(tidy([fused, other]), lambda *v: sum(v)).values
    expected = (i // 2 * 3)[:, None] + (i[:, None] + 5 * j[None, :]) % 7
    assert (found == expected).all()
    table = tidy([fused, other])[0]
    assert table.spread(1) == max(np.ptp(expected, axis=1))
    assert table.spread(0) == np.ptp(expected)
    assert table.step(1) == expected[0, 1] - expected[0, 0]


@pytest.mark.parametrize("extents", [(3, 5, 7), (4, 16), (2, 3, 48), (200,), (6, 1, 10)])
@pytest.mark.parametrize("vector", [16, 64])
def test_windows_of_a_fused_nest(extents: tuple[int, ...], vector: int) -> None:
    total = int(np.prod(extents))
    digits = np.array(list(itertools.product(*(range(e) for e in extents))))
    for loop in range(len(extents)):
        spans = [
            np.ptp(digits[start : start + vector, loop]) + 1 for start in range(0, total, vector)
        ]
        width = window_width(extents, loop, vector)
        if loop > 0 or total % vector == 0:
            assert width == max(spans)
        else:
            assert width >= max(spans)  # the last window runs over the end: the buffer clips it
        assert digit(extents, loop, 1) == (digits[1, loop] if total > 1 else 0)


def test_two_loops_in_one_dimension_have_no_window() -> None:
    block = FlatBlock(np.ones(1, bool), (4, 8), 0, 2, 16)
    assert flat_access(block, [[(0, 8), (1, 1)]], [1], [1]) is None
