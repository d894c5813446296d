"""What LLVM's vectoriser does to the tasks of a parallel loop, as drafted and as compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pruner_ms.draft.block import block_of
from pruner_ms.draft.columns import column
from pruner_ms.draft.cpu.core import block_cycles
from pruner_ms.draft.nest import nest_of
from pruner_ms.draft.score import draft
from pruner_ms.hardware import hardware_named
from pruner_ms.hardware.detect import GATHER_LOADS, detect_cpu
from pruner_ms.symbolic.oracle.lowered import read

AVX512 = hardware_named("cpu-avx512").with_units(2)


def sums(steps: int, tasks: int = 2048, unroll: int = 0):
    """Rows of `steps` elements added up, a task each."""
    from tvm import te

    from pruner_ms.tvm_compat.paths import Schedule

    a = te.placeholder((tasks, steps), name="A")
    k = te.reduce_axis((0, steps), name="k")
    c = te.compute((tasks,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    block = sch.get_sblock("C") if hasattr(sch, "get_sblock") else sch.get_block("C")
    i, k = sch.get_loops(block)
    sch.parallel(i)
    if unroll:
        sch.annotate(i, "pragma_auto_unroll_max_step", unroll)
        sch.annotate(i, "pragma_unroll_explicit", 1)
    sch.decompose_reduction(block, k)
    return sch.mod


def update(mod, target):
    program = read(mod, target)
    (statement,) = [s for s in program.statements if s.reduction]
    nest = nest_of(statement, program)
    return nest, block_of(nest, AVX512.core, 4)


@pytest.fixture(scope="module")
def wide():
    from pruner_ms.tvm_compat.paths import Target

    return Target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2})


CASES = {
    "rows that LLVM unrolls": ({"steps": 64}, True),
    "rows that are too long for it": ({"steps": 128}, False),
    "long rows that the schedule unrolls": ({"steps": 128, "unroll": 512}, True),
}


@pytest.mark.parametrize(("case", "several"), CASES.values(), ids=CASES)
def test_tasks_are_done_together_where_llvm_gathers(case, several, wide):
    import tvm

    mod = sums(**case)
    nest, block = update(mod, wide)
    runs = column(nest.above(nest.depth), 1)[0] / column(block.count, 1)[0]
    # eight tasks as one: 64 bits of address for 32 of element
    steps = case["steps"] if several else 1
    built = tvm.compile(mod, target=wide) if hasattr(tvm, "compile") else tvm.build(mod, wide)
    module = getattr(built, "mod", built)
    source = getattr(module, "inspect_source", None) or module.get_source
    assert ("vgather" in source("asm")) is several
    assert bool(runs >= 8 * steps) is several


def test_few_tasks_are_done_one_by_one(wide):
    nest, block = update(sums(64, tasks=32), wide)
    assert column(nest.above(nest.depth), 1)[0] / column(block.count, 1)[0] == 64


def test_a_gather_takes_loads_for_each_element(wide):
    nest, _ = update(sums(64), wide)
    cycles = {
        loads: column(block_cycles(nest, block_of(nest, core, 4), core).access, 1)[0]
        for loads in (1.0, 4.0)
        for core in [replace(AVX512.core, gather_loads=loads)]
    }
    # 64 steps of eight elements on two ports, and a store of the sums in the end
    assert cycles[1.0] == pytest.approx(64 * 8 / 2, rel=0.05)
    assert cycles[4.0] == pytest.approx(4 * cycles[1.0], rel=0.05)


def test_makers_differ(wide, tmp_path):
    """Where gathers are slow, summing up along the row of a vector wins."""
    program = read(sums(64), wide)
    quick, slow = (
        draft(program, replace(AVX512, cpu=replace(AVX512.core, gather_loads=g))).latency[0]
        for g in (GATHER_LOADS["GenuineIntel"], GATHER_LOADS["AuthenticAMD"])
    )
    assert slow > 1.5 * quick


@pytest.mark.parametrize(
    ("maker", "loads"), [*GATHER_LOADS.items(), ("CentaurHauls", AVX512.core.gather_loads)]
)
def test_the_maker_is_read_from_cpuinfo(maker, loads, tmp_path):
    flags = "sse2 fma avx2 avx512f avx512vl"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"vendor_id\t: {maker}\nflags\t\t: {flags}\n")
    assert detect_cpu(tmp_path, cores=2).core.gather_loads == loads
