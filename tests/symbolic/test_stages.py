"""The stages that the oracle reads at are TVM's own, and every operator can be read there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from pruner_ms.symbolic.program import LoopKind, SketchProgram
from pruner_ms.tvm_compat.passes import UNROLL_PASSES, VERIFY_PASSES, advance, lowerable
from pruner_ms.tvm_compat.paths import IS_S_TIR, PassContext, Target, _first, prim_func
from tests.support.operators import PAIRS
from tests.support.oracle import VERDICT, Task
from tests.support.seeds import sample_of

OF_TE = (
    *("tir.InjectPrefetch", "tir.TextureFlatten", "tir.StorageFlatten"),
    "tir.InjectCustomizedCode",
)
"""What 0.17 begins with, for schedules of `te`, and what the build of `bitblas` adds."""
LATER = () if IS_S_TIR else ("tir.BF16ComputeLegalize",)
"""What the build of `bitblas` does at another place; it touches bfloat16 alone."""
WRAPPERS = frozenset({"sequential", "_pipeline"})


def passes_run(work: Callable[[], Any]) -> list[str]:
    names: list[str] = []

    @_first("tvm.ir.instrument:pass_instrument", "tvm.instrument:pass_instrument")
    class Recorder:
        def run_before_pass(self, mod: Any, info: Any) -> None:
            names.append(str(info.name))

    with PassContext(instruments=[Recorder()]):
        work()
    return [name for name in names if name not in WRAPPERS]


def judged(task: Task, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """Schedules with all postprocessors before the verdict, and the postprocessor that judges."""
    sketch = task.space[0]
    for row in sketch.sample(200, rng):
        schedule = sketch.replay(row)
        schedule.enter_postproc()
        for postproc in task.postprocs:
            if VERDICT in type(postproc).__name__:
                yield schedule, postproc
                break
            assert postproc.apply(schedule)


def test_the_passes_are_those_of_the_postprocessor(task: Any, rng: np.random.Generator) -> None:
    gemm = task("gemm", "cuda")
    for schedule, postproc in judged(gemm, rng):
        theirs = passes_run(partial(postproc.apply, schedule))
        if theirs:  # else there are too many threads, and nothing is lowered
            mod = lowerable(prim_func(schedule.mod), gemm.target)
            assert passes_run(partial(advance, mod, VERIFY_PASSES)) == theirs
            return
    pytest.fail("no row of 200 is lowered")


def _pipeline() -> Any:
    """What lowers a module in a build."""
    if IS_S_TIR:
        pipeline, *_ = _first("tvm.s_tir.pipeline:default_s_tir_pipeline")()
        return pipeline
    return _first("tvm.driver.build_module:lower")


def test_the_passes_are_those_of_a_build(task: Any, rng: np.random.Generator) -> None:
    gemm = task("gemm", "cuda")
    schedule, _ = next(judged(gemm, rng))
    with_host = Target(gemm.target, Target("llvm"))
    mod = lowerable(prim_func(schedule.mod), with_host)
    ours = [n for n in passes_run(partial(advance, mod, UNROLL_PASSES)) if n not in LATER]
    theirs = [n for n in passes_run(partial(_pipeline(), mod)) if n not in (*OF_TE, *LATER)]
    assert ours == theirs[: len(ours)]


def _sane(program: SketchProgram, gpu: bool) -> None:
    assert program.statements
    for statement in program.statements:
        assert statement.accesses
        for access in statement.accesses:
            sizes = [int(access.footprint(p)[0]) for p in range(len(statement.loops) + 1)]
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[-1] >= 1
            assert 1 <= int(access.run(0)[0]) <= sizes[0]
        for loop in statement.loops:
            assert bool(loop.tag) == (int(loop.kind[0]) >= LoopKind.BLOCK)
    assert (program.gpu is not None) == gpu
    assert any(s.ops[kind][0] for s in program.statements for kind in s.ops) or all(
        not s.reduction for s in program.statements
    )


@pytest.mark.parametrize(("operator", "space"), sample_of(PAIRS, 16))
def test_every_operator_is_read(
    operator: str, space: str, task: Any, rng: np.random.Generator
) -> None:
    operator_task = task(operator, space)
    for sketch in (operator_task.space[0], operator_task.space[-1]):
        readings = [operator_task.read(sketch, row, unrolled=True) for row in sketch.sample(3, rng)]
        for reading in readings:
            if reading.gpu is not None:
                assert bool(reading.gpu.valid[0]) == reading.verdict
                if reading.verdict:
                    for name in ("threads", "vthreads", "blocks", "stages"):
                        assert int(getattr(reading.gpu, name)[0]) >= 1
            if reading.program is not None:
                _sane(reading.program, space != "llvm")
                assert reading.program.unrolled is not None
                # stock accepts schedules of mma that no build can lower: -1
                assert int(reading.program.unrolled()[0]) != 0
