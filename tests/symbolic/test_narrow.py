"""32-bit numbers, and what is left out on the way, change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pruner_ms.draft.explore.population import fingerprints
from pruner_ms.symbolic.interpret import SMALL
from pruner_ms.symbolic.program import SketchProgram
from pruner_ms.symbolic.space import decision_space
from pruner_ms.tvm_compat.paths import Target, TuneContext, te, te_workload

ROWS = 3000
CASES = [
    ("gemm_odd", "llvm"),
    ("conv2d_nhwc", "llvm"),
    ("softmax", "llvm"),
    ("gemm_odd", "cuda"),
    ("conv2d_nhwc", "cuda"),
    ("gemm_half", "cuda-tensorcore"),
]


def _numbers(program: SketchProgram) -> Iterator[tuple[str, Any]]:
    """Every array of a program, with a name."""
    yield "supported", program.supported
    if program.gpu is not None:
        yield from vars(program.gpu).items()
    for buffer in program.buffers:
        yield from ((f"{buffer.name} {i}", extent) for i, extent in enumerate(buffer.shape))
        yield f"{buffer.name} alloc", buffer.alloc
    for s in program.statements:
        yield from ((f"{s.name} {kind}", count) for kind, count in s.ops.items())
        yield from ((f"{s.name} {name}", getattr(s, name)) for name in ("alive", "unroll"))
        for p, loop in enumerate(s.loops):
            yield f"{s.name} extent {p}", loop.extent
            yield f"{s.name} kind {p}", loop.kind
            yield f"{s.name} boundary {p}", loop.boundary
        for i, access in enumerate(s.accesses):
            for level in range(len(s.loops) + 1):
                yield f"{s.name} access {i} footprint {level}", access.footprint(level)
                yield f"{s.name} access {i} run {level}", access.run(level)
            for p in range(len(s.loops)):
                yield f"{s.name} access {i} stride {p}", access.stride(p)


@pytest.mark.parametrize(("operator", "rules"), CASES)
def test_narrow_numbers_are_the_same(
    operator: str, rules: str, task: Any, rng: np.random.Generator
) -> None:
    for sketch in task(operator, rules).space:
        rows = sketch.sample(ROWS, rng)
        assert sketch.compiled.narrow
        pairs = zip(
            _numbers(sketch.program(rows)),
            _numbers(sketch.program(rows, narrow=True)),
            strict=True,
        )
        for (name, wide), (other, narrow) in pairs:
            assert name == other and np.array_equal(wide, narrow), name
            assert narrow.dtype.itemsize <= 8


@pytest.mark.parametrize(("operator", "rules"), CASES)
def test_locations_of_the_first_instructions_are_those_of_all(
    operator: str, rules: str, task: Any, rng: np.random.Generator
) -> None:
    for sketch in task(operator, rules).space:
        rows = sketch.choices.sample(ROWS, rng)
        first_locations = sketch.compiled.locations(rows, None)
        all_locations = sketch.compiled.interpret(rows).decided
        assert first_locations.keys() == all_locations.keys() == set(sketch.choices.places)
        assert all(
            (first_locations[column] == all_locations[column]).all() for column in all_locations
        )


@pytest.mark.parametrize(("operator", "rules"), [case for case in CASES if case[1] != "llvm"])
def test_early_rejections_are_the_programs(
    operator: str, rules: str, task: Any, rng: np.random.Generator
) -> None:
    for sketch in task(operator, rules).space:
        rows = sketch.sample(ROWS, rng)
        program, accepted = sketch.program(rows), sketch.accepted(rows)
        assert (accepted == program.gpu.valid)[program.supported].all()
        assert rules != "cuda" or 0 < sketch.compiled.bounded_steps < len(sketch.compiled.insts)


def test_large_spaces_keep_64_bits() -> None:
    side = 1 << 13
    assert side * side > SMALL
    target = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
    context = TuneContext(
        te.create_prim_func(te_workload.matmul(side, side, 64)),
        target=target,
        space_generator="post-order-apply",
        rand_state=1,
        num_threads=1,
    )
    space = decision_space(context.generate_design_space(), context.mod, target)
    assert all(sketch.closed and not sketch.compiled.narrow for sketch in space)


def test_marks_of_different_rows_differ(task: Any, rng: np.random.Generator) -> None:
    rows = np.unique(task("gemm", "cuda").space[0].sample(100_000, rng), axis=0)
    assert len(np.unique(fingerprints(rows))) == len(rows)
