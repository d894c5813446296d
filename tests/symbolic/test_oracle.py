"""The oracle on programs that are small enough to check by hand, and on every kind of target."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.index.flat import FlatBlock, digit, flat_access, window_width
from pruner_ms.symbolic.oracle import lowered, numeric
from pruner_ms.symbolic.oracle.compare import differences
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.oracle.numeric import Index, Table
from pruner_ms.symbolic.program import LoopKind, Role
from pruner_ms.tvm_compat.paths import Schedule, Target, te, te_workload
from tests.support.operators import TARGETS

LLVM = Target(dict(TARGETS["llvm"]))
CUDA = Target(dict(TARGETS["cuda"]))


def _gemm(n: int, m: int, k: int) -> tuple[Any, Any]:
    schedule = Schedule(te.create_prim_func(te_workload.matmul(n, m, k)))
    return schedule, schedule.get_sblock("C")


def _values(figures: Any) -> list[int]:
    return [int(f[0]) for f in figures]


def test_a_gemm_by_hand() -> None:
    schedule, block = _gemm(8, 16, 32)
    i, j, k = schedule.get_loops(block)
    i0, i1 = schedule.split(i, [4, 2])
    schedule.reorder(i0, k, i1, j)
    schedule.parallel(i0)
    schedule.vectorize(j)
    schedule.decompose_reduction(block, k)
    program = read(schedule.mod, LLVM, unrolled=True)
    init, update = program.statements
    assert (init.role, update.role) == (Role.INIT, Role.COMPUTE)
    assert _values(loop.extent for loop in update.loops) == [4, 32, 2, 16]
    assert _values(loop.kind for loop in update.loops) == [
        LoopKind.PARALLEL, LoopKind.SERIAL, LoopKind.SERIAL, LoopKind.VECTORIZED,
    ]  # fmt: skip
    assert [loop.reduction for loop in update.loops] == [False, True, False, False]
    assert {k: int(v[0]) for k, v in update.ops.items() if v[0]} == {"add": 1, "mul": 1}
    by_name = {
        (program.buffers[access.buffer].name, access.write): access for access in update.accesses
    }
    a, b, c = by_name["A", False], by_name["B", False], by_name["C", True]
    assert _values(a.footprint(level) for level in range(5)) == [256, 64, 2, 1, 1]
    assert _values(b.footprint(level) for level in range(5)) == [512, 512, 16, 16, 1]
    assert _values(b.run(level) for level in range(5)) == [512, 512, 16, 16, 1]
    assert _values(c.stride(loop) for loop in range(4)) == [32, 0, 16, 1]
    assert _values(a.stride(loop) for loop in range(4)) == [64, 1, 32, 0]
    assert int(update.trips()[0]) == 8 * 16 * 32
    assert ("C", False) in by_name
    assert program.gpu is None
    assert update.guarded is None
    assert _values([program.unrolled()]) == [2]


def test_an_index_that_takes_too_long_has_bounds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    a = te.placeholder((8, 8), name="A")
    moved = te.compute((8, 8), lambda i, j: a[(i + 3 * j) % 8, j], name="B")
    schedule = Schedule(te.create_prim_func([a, moved]))
    exact_program = read(schedule.mod, LLVM)
    monkeypatch.setattr(numeric, "TABLE_LIMIT", 16)
    bounded_program = read(schedule.mod, LLVM)
    for program, width in ((exact_program, 1), (bounded_program, 8)):
        source, target = program.statements[0].accesses
        assert (source.exact, target.exact) == (width == 1, True)
        assert _values([source.footprint(2), target.footprint(2)]) == [width, 1]
    assert (
        list(differences(exact_program, 0, exact_program))
        == list(differences(exact_program, 0, bounded_program))
        == []
    )
    assert list(differences(bounded_program, 0, exact_program)) != []


def test_unrolled_statements_by_hand() -> None:
    schedule, block = _gemm(8, 16, 32)
    i, j, k = schedule.get_loops(block)
    k0, k1 = schedule.split(k, [8, 4])
    schedule.reorder(i, k0, j, k1)
    schedule.vectorize(schedule.split(j, [2, 8])[1])
    schedule.annotate(i, "pragma_auto_unroll_max_step", 20)
    schedule.annotate(i, "pragma_unroll_explicit", 1)
    schedule.decompose_reduction(block, k0)
    # k1 is scalar code inside a vector: written out 4 times, the vector once
    program = read(schedule.mod, LLVM, unrolled=True)
    assert _values([program.unrolled()]) == [2 + 2 * 4]


def test_a_guard_by_hand() -> None:
    schedule, block = _gemm(10, 16, 32)
    i, _, _ = schedule.get_loops(block)
    schedule.split(i, [3, 4])
    assert all(s.guarded is not None and s.guarded[0] for s in read(schedule.mod, LLVM).statements)
    schedule, block = _gemm(12, 16, 32)
    schedule.split(schedule.get_loops(block)[0], [3, 4])
    assert all(s.guarded is None for s in read(schedule.mod, LLVM).statements)


def _bound_gemm(threads: int, low: int = 32) -> Any:
    schedule, block = _gemm(64, 64, 32)
    i, j, k = schedule.get_loops(block)
    i0, i1 = schedule.split(i, [4, 16])
    j0, j1, j2 = schedule.split(j, [2, 32 // threads, threads])
    schedule.reorder(i0, j0, j1, j2, k, i1)
    for loop, tag in ((i0, "blockIdx.x"), (j0, "vthread.x"), (j2, "threadIdx.x")):
        schedule.bind(loop, tag)
    schedule.annotate(block, "meta_schedule.thread_extent_low_inclusive", low)
    schedule.annotate(block, "meta_schedule.thread_extent_high_inclusive", 1024)
    cache = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(cache, j2, preserve_unit_loops=True)
    copy = schedule.cache_read(block, 0, "shared")
    schedule.compute_at(copy, k, preserve_unit_loops=True)
    schedule.decompose_reduction(block, k)
    return schedule


def test_gpu_facts_by_hand() -> None:
    program = read(_bound_gemm(32).mod, CUDA)
    assert program.gpu is not None
    names = ("threads", "vthreads", "blocks", "shared", "local", "stages")
    values = _values(getattr(program.gpu, name) for name in names)
    # 16 rows of A, one column at a time; 16 sums a thread, for each of two virtual threads
    assert values == [32, 2, 4, 16 * 4, 16 * 2 * 4, 1]
    assert program.gpu.valid[0]
    assert not read(_bound_gemm(16).mod, CUDA).gpu.valid[0]  # the annotation asks for 32 threads
    assert read(_bound_gemm(16, low=16).mod, CUDA).gpu.valid[0]
    tags = {loop.tag for s in program.statements for loop in s.loops}
    assert tags == {"", "blockIdx.x", "vthread.x", "threadIdx.x"}


def test_a_reduction_over_threads_by_hand() -> None:
    a = te.placeholder((16, 128), name="A")
    k = te.reduce_axis((0, 128), name="k")
    schedule = Schedule(
        te.create_prim_func([a, te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="C")])
    )
    i, r = schedule.get_loops(schedule.get_sblock("C"))
    r0, r1 = schedule.split(r, [4, 32])
    schedule.bind(i, "blockIdx.x")
    schedule.bind(r1, "threadIdx.x")
    schedule.reorder(i, r0, r1)
    program = read(schedule.mod, CUDA)
    names = [s.name for s in program.statements]
    assert names == ["C_in_thread_init", "C_in_thread", "C_cross_thread", "C_write_back"]
    _, own, cross, back = program.statements
    assert [s.role for s in program.statements] == [
        Role.INIT, Role.COMPUTE, Role.COMPUTE, Role.STORE,
    ]  # fmt: skip
    assert (own.reduction, cross.reduction, back.reduction) == (True, True, False)
    assert int(own.trips()[0]) == 16 * 128
    assert [int(s.ops["add"][0]) for s in program.statements] == [0, 1, 1, 0]
    assert {(program.buffers[x.buffer].name, x.write) for x in own.accesses} == {
        ("A", False), ("in_thread_C", False), ("in_thread_C", True),
    }  # fmt: skip
    assert back.guarded is not None and back.guarded[0]
    assert program.gpu is not None
    assert _values([program.gpu.threads, program.gpu.blocks]) == [32, 16]


@pytest.mark.parametrize(
    ("workload", "rules"),
    [("gemm", "cuda"), ("softmax", "cuda"), ("softmax", "llvm"), ("gemm_half", "cuda-tensorcore")],
)
def test_it_reads_what_has_no_closed_form(
    workload: str, rules: str, task: Any, rng: np.random.Generator
) -> None:
    workload_task = task(workload, rules)
    read_rows = 0
    for sketch in workload_task.space:
        for row in sketch.sample(40, rng):
            _, program = workload_task.replayed(sketch, row)
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
    gemm = task("gemm_half", "cuda-tensorcore")
    for row in gemm.space[0].sample(200, rng):
        _, program = gemm.replayed(gemm.space[0], row)
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


ALLOWED = {"program", "ops", "roles", "numeric"}


@pytest.mark.parametrize(
    "path", sorted(Path(lowered.__file__).parent.glob("lowered*.py")), ids=lambda p: p.stem
)
def test_the_oracle_shares_nothing_with_the_interpreter(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pruner_ms.symbolic"):
            name = str(node.module).rsplit(".", maxsplit=1)[-1]
            assert name in ALLOWED or name.startswith("lowered"), node.module


def _brute(extents: tuple[int, ...]) -> list[Any]:
    return list(np.meshgrid(*(np.arange(n) for n in extents), indexing="ij"))


@pytest.mark.parametrize("width", [3, 4, 7, 12])
def test_an_index_against_brute_force(width: int) -> None:
    extents = (6, 4, 5)
    i, j, k = _brute(extents)
    inner = Index(extents, 2, {0: 4, 1: 3})
    high, low = inner.divided(width)
    third = Index(extents, 0, {2: 12})
    for index, expected in (
        (inner.plus(third), 2 + 4 * i + 3 * j + 12 * k),
        (high.plus(third), (2 + 4 * i + 3 * j) // width + 12 * k),
        (low.plus(third.scaled(-1)), (2 + 4 * i + 3 * j) % width - 12 * k),
        (low.plus(inner), (2 + 4 * i + 3 * j) % width + 2 + 4 * i + 3 * j),
        (inner.plus(third).divided(width)[0], (2 + 4 * i + 3 * j + 12 * k) // width),
    ):
        assert index.bounds() == (expected.min(), expected.max())
        for level in range(4):
            axes = tuple(range(level, 3))
            span = expected.max(axis=axes) - expected.min(axis=axes) if axes else np.zeros(1)
            assert index.spread(level) == span.max()
        steps = [expected[1, 0, 0], expected[0, 1, 0], expected[0, 0, 1]]
        assert [index.step(p) for p in range(3)] == [s - expected[0, 0, 0] for s in steps]


def test_a_table_against_brute_force() -> None:
    i, j = np.arange(6), np.arange(4)
    values = (i[:, None] + 5 * j[None, :]) % 7
    table = Table((0, 1), values)
    assert table.spread(1) == max(np.ptp(values, axis=1))
    assert table.spread(0) == np.ptp(values)
    assert table.step(1) == values[0, 1] - values[0, 0]


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
