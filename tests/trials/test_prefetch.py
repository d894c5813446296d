"""Weights that are asked for ahead of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.tir_walk import walk
from pruner_ms.trials import prefetch
from pruner_ms.trials.prefetch import PrefetchPlan, prefetch_plan, prefetched
from pruner_ms.tvm_compat import paths
from pruner_ms.tvm_compat.exprs import number
from pruner_ms.tvm_compat.paths import IRModule, Schedule, Target, te, tir
from pruner_ms.tvm_compat.schedules import get_block

ROWS, SUMMED, COLUMNS, LINE = 20, 128, 128, 64
PARTS = 2
"""Of the columns, by threads."""

pytestmark = pytest.mark.skipif(
    not tir.__name__.endswith("tirx"), reason="TVM before 0.25 lacks an operator for it"
)


@pytest.mark.parametrize(
    ("extents", "strides", "serial", "plan"),
    [
        # blocks of 512 numbers, gone through ten times: 32 lines, four each time
        ((6, 10, 32, 4, 16), (512, 0, 16, 0, 1), (1, 1, 1, 0, 0), PrefetchPlan(1, 1, 2048, 4)),
        # the sum's loop is short enough to ask in: 256 lines in 10 times 20
        ((6, 10, 20, 16, 16), (4096, 0, 0, 256, 1), (1, 1, 1, 1, 0), None),
        ((6, 10, 20, 256, 16), (4096, 0, 0, 16, 1), (1, 1, 1, 1, 0), PrefetchPlan(1, 2, 16384, 2)),
        # nothing is gone through twice
        ((6, 32, 16), (512, 16, 1), (1, 1, 0), None),
        # nothing follows
        ((10, 32, 16), (0, 16, 1), (1, 1, 0), None),
        # what follows lies somewhere else
        ((6, 10, 32, 16), (1024, 0, 16, 1), (1, 1, 1, 0), None),
        # with gaps
        ((6, 10, 32, 16), (512, 0, 32, 1), (1, 1, 1, 0), None),
        # a few lines
        ((6, 10, 4, 16), (64, 0, 16, 1), (1, 1, 1, 0), None),
        # a loop of one iteration says nothing
        ((6, 1, 32, 16), (512, 0, 16, 1), (1, 1, 1, 0), None),
        # registers repeat, too, in loops that are unrolled
        ((64, 4, 512), (512, 0, 1), (1, 0, 0), None),
    ],
)
def test_where_lines_are_asked_for(
    extents: Any, strides: Any, serial: Any, plan: PrefetchPlan | None
) -> None:
    assert prefetch_plan(extents, strides, [bool(one) for one in serial], 4) == plan


@pytest.fixture(scope="module", params=["columns apart", "all apart"])
def kernel(request: pytest.FixtureRequest) -> IRModule:
    """A product with a packed weight, of which a block is gone through five times.

    Threads share out columns, or rows and columns: then blocks do not follow by equal steps.
    """
    a = te.placeholder((ROWS, SUMMED), name="a")
    b = te.placeholder((COLUMNS // 16, SUMMED, 16), name="b")
    k = te.reduce_axis((0, SUMMED), name="k")
    c = te.compute(
        (ROWS, COLUMNS), lambda i, j: te.sum(a[i, k] * b[j // 16, k, j % 16], axis=k), name="c"
    )
    schedule = Schedule(IRModule({"main": te.create_prim_func([a, b, c])}))
    block = get_block(schedule, "c")
    rows, columns, summed = schedule.get_loops(block)
    far, row, rows_in = schedule.split(rows, [2, None, 2])
    part, column, inside = schedule.split(columns, [PARTS, None, 16])
    schedule.reorder(part, far, column, row, summed, rows_in, inside)
    schedule.vectorize(inside)
    schedule.unroll(rows_in)
    schedule.parallel(schedule.fuse(part, far) if request.param == "all apart" else part)
    schedule.decompose_reduction(block, row)
    return schedule.mod


TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})


def requests(node: Any, values: dict[Any, int]) -> list[tuple[dict[str, int], int]]:
    """Values of loops and bytes from the weight's beginning, in the order of the program."""
    if isinstance(node, tir.For):
        return [
            one
            for n in range(int(node.extent.value))
            for one in requests(node.body, {**values, node.loop_var: n})
        ]
    if isinstance(node, tir.SeqStmt):
        return [one for part in node.seq for one in requests(part, values)]
    if hasattr(node, "iter_values"):
        return requests(node.block.body, values)
    if isinstance(node, tir.Evaluate):
        places = [one for one in walk(node) if "add_byte_offset" in str(getattr(one, "op", ""))]
        (place,) = places
        if not str(place.args[0]).startswith("b"):
            return []  # rows of the image are asked for, too
        return [({v.name: n for v, n in values.items()}, number(place.args[1], values) or 0)]
    return []


def test_each_line_of_the_next_block_is_asked_for(kernel: IRModule) -> None:
    asked = requests(prefetched(kernel, TARGET)["main"].body, {})
    block, each = SUMMED * 16 * 4, COLUMNS // 16 // PARTS
    by_block: dict[tuple[int, ...], list[int]] = {}
    for at, place in asked:
        shared = next(n for name, n in at.items() if "j_0" in name)
        thread = shared if "fused" not in str(list(at)) else shared // 2
        key = (shared, at.get("i_0", 0), thread * each + at["j_1"])
        by_block.setdefault(key, []).append(place)
    assert len(by_block) == 2 * PARTS * each
    for (*_, number_of_block), places in by_block.items():
        wanted = range((number_of_block + 1) * block // LINE, (number_of_block + 2) * block // LINE)
        assert {place // LINE for place in places} >= set(wanted)
        assert places == sorted(places) and len(places) <= len(wanted) + ROWS // 4


def test_the_kernel_computes_the_same_and_the_processor_is_asked(
    kernel: IRModule, rng: np.random.Generator
) -> None:
    import tvm

    built = paths.build(prefetched(kernel, TARGET), target=TARGET)
    assert "prefetch" in built.inspect_source("asm")
    a, b = (
        rng.standard_normal(shape).astype("float32")
        for shape in ((ROWS, SUMMED), (COLUMNS // 16, SUMMED, 16))
    )
    arrays = [tvm.runtime.tensor(one) for one in (a, b, np.zeros((ROWS, COLUMNS), "float32"))]
    built["main"](*arrays)
    wanted = np.einsum("ik,jkl->ijl", a, b).reshape(ROWS, COLUMNS)
    np.testing.assert_allclose(arrays[2].numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_what_has_nothing_to_ask_for_stays(kernel: IRModule) -> None:
    plain = IRModule({"main": te.create_prim_func(_copy())})
    assert prefetched(plain, TARGET) is plain
    gpu = Target({"kind": "cuda", "arch": "sm_80"})
    assert prefetched(kernel, gpu) is kernel


def test_what_cannot_be_read_stays(kernel: IRModule, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("an expression is no condition")

    monkeypatch.setattr(prefetch, "_request", refuse)
    assert prefetched(kernel, TARGET) is kernel


def _copy() -> list[Any]:
    a = te.placeholder((8, 8), name="a")
    return [a, te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="b")]
