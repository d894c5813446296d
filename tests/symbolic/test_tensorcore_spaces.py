"""TensorCore design spaces: the closed form equals TVM, schedule by schedule and in its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from pruner_ms.draft import draft
from pruner_ms.hardware import hardware_named
from pruner_ms.symbolic.buildable import buildable
from pruner_ms.symbolic.lowering import fragment_memory
from pruner_ms.symbolic.oracle import lowered_gpu
from pruner_ms.symbolic.oracle.compare import differences
from pruner_ms.symbolic.oracle.lowered import read
from pruner_ms.symbolic.program import LoopKind, SketchProgram
from pruner_ms.symbolic.space import DecisionSpace, Sketch, decision_space
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.space import TensorCoreOnlySpace
from pruner_ms.tvm_compat.intrinsics import import_intrinsics
from pruner_ms.tvm_compat.passes import MERGE_ONCE
from pruner_ms.tvm_compat.paths import Target, TuneContext, ms, te, te_workload
from tests.support.oracle import disagreements
from tests.support.products import batched

SMALL = {
    "kind": "cuda",
    "arch": "sm_80",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}
LARGE = {**SMALL, "arch": "sm_90", "max_shared_memory_per_block": 232448}
HALF = {"in_dtype": "float16", "out_dtype": "float32"}
CHAR = {"in_dtype": "int8", "out_dtype": "int32"}
POOL = 4000
"""Rows drawn, of which the replayed ones are chosen."""

WORKLOADS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "gemm": (lambda: te_workload.matmul(1024, 1024, 1024, **HALF), SMALL),
    "gemm_large": (lambda: te_workload.matmul(128, 768, 2304, **HALF), LARGE),
    "gemm_half": (lambda: te_workload.matmul(256, 384, 512, "float16", "float16"), SMALL),
    "gemm_odd": (lambda: te_workload.matmul(500, 300, 200, **HALF), SMALL),
    "gemm_int8": (lambda: te_workload.matmul(512, 512, 512, **CHAR), SMALL),
    "batched": (lambda: te_workload.batch_matmul_nkkm(12, 128, 256, 64, **HALF), SMALL),
    "conv": (lambda: te_workload.conv2d_nhwc(1, 32, 32, 64, 64, 3, 1, 1, **HALF), SMALL),
    "conv_half": (lambda: te_workload.conv2d_nhwc(2, 16, 16, 16, 32, 3, 1, 1, **HALF), SMALL),
    "conv_network": (
        lambda: te_workload.conv2d_nhwc(16, 28, 28, 128, 128, 3, 1, 1, **HALF),
        LARGE,
    ),
    "conv_odd": (lambda: te_workload.conv2d_nhwc(1, 14, 14, 64, 128, 1, 1, 0, **HALF), SMALL),
    "conv_dilated": (lambda: te_workload.conv2d_nhwc(2, 20, 20, 48, 32, 3, 1, 2, 2, **HALF), SMALL),
    "conv_strided": (lambda: te_workload.conv2d_nhwc(2, 56, 56, 32, 64, 3, 2, 1, **HALF), SMALL),
}


BATCHED_ROWS = ("mma_m16n8k8_f16f16f32", "mma_m16n8k16_f16f16f32")

CLOSED = 0.995
"""Rows with a closed form, at least."""


@dataclass(frozen=True)
class Task:
    """Design spaces, with what is needed to replay them."""

    target: Any
    postprocs: list[Any]
    space: DecisionSpace

    def replayed(self, sketch: Sketch, row: Any) -> SketchProgram | None:
        """What the oracle reads; None if a postprocessor rejects the schedule."""
        schedule = sketch.replay(row)
        schedule.enter_postproc()
        if not all(postproc.apply(schedule) for postproc in self.postprocs):
            return None
        return read(schedule.mod, self.target)


@lru_cache(maxsize=16)
def make(workload: str, rules: str = "wmma") -> Task:
    import_intrinsics()
    build, attrs = WORKLOADS[workload]
    target = Target(attrs)
    generator: Any = "cuda-tensorcore"
    if rules == "mma":
        schedule_rules = [
            rule for i, rule in enumerate(ms.ScheduleRule.create(generator)) if i != 1
        ]
        generator = ms.space_generator.PostOrderApply(
            sch_rules=schedule_rules,
            postprocs=ms.Postproc.create("cuda-tensorcore"),
            mutator_probs={},
        )
    context = ms.TuneContext(
        te.create_prim_func(build()),
        target=target,
        space_generator=generator,
        search_strategy=None,
        rand_state=1,
    )
    spaces = context.generate_design_space()
    postprocs = list(context.space_generator.postprocs)
    return Task(target, postprocs, decision_space(spaces, context.mod, target))


def balanced(sketch: Sketch, rng: np.random.Generator, count: int, limit: int) -> Any:
    """Closed-form rows of which half are predicted to be valid, the others nearly so."""
    rows = sketch.sample(POOL, rng)
    program = sketch.program(rows)
    rows = rows[program.supported]
    program = sketch.program(rows)
    gpu = program.gpu
    assert gpu is not None
    near = ~gpu.valid & (gpu.shared <= 2 * limit) & (gpu.threads <= 2048)
    halves = [np.flatnonzero(mask)[: count // 2] for mask in (gpu.valid, near)]
    return rows[np.concatenate(halves)]


def mistakes(task: Task, sketch: Sketch, rows: Any) -> list[str]:
    """What differs between the closed form and TVM, one text per row."""
    program = sketch.program(rows)
    assert program.gpu is not None
    texts = []
    for i, row in enumerate(rows):
        if not program.supported[i]:
            texts.append(f"{row.tolist()}: not supported")
            continue
        oracle = task.replayed(sketch, row)
        if (oracle is not None) != bool(program.gpu.valid[i]):
            facts = {k: int(v[i]) for k, v in vars(program.gpu).items()}
            texts.append(f"{row.tolist()}: TVM {'accepts' if oracle else 'rejects'} {facts}")
            continue
        if oracle is not None:
            first = next(differences(program, i, oracle), None)
            if first is not None:
                texts.append(f"{row.tolist()}: {first}")
    return texts


@pytest.mark.parametrize("workload", [name for name in WORKLOADS if name != "conv_network"])
@pytest.mark.sampled(4)
def test_wmma_is_what_tvm_does(workload: str, rng: np.random.Generator) -> None:
    task = make(workload)
    limit = WORKLOADS[workload][1]["max_shared_memory_per_block"]
    assert len(task.space) == 2
    for sketch in task.space:
        assert sketch.closed, sketch.reason
        share = sketch.program(sketch.sample(POOL, rng)).supported.mean()
        assert share >= CLOSED
        rows = balanced(sketch, rng, 16, limit)
        assert len(rows) >= 8
        assert mistakes(task, sketch, rows) == []


@pytest.mark.parametrize("workload", ["gemm", "gemm_half", "conv_half"])
def test_mma_is_what_tvm_does(workload: str, rng: np.random.Generator) -> None:
    task = make(workload, "mma")
    limit = WORKLOADS[workload][1]["max_shared_memory_per_block"]
    for sketch in task.space:
        assert sketch.closed, sketch.reason
        rows = balanced(sketch, rng, 20, limit)
        assert len(rows) >= 12
        assert mistakes(task, sketch, rows) == []


@pytest.mark.heavy
@pytest.mark.parametrize("turned", [False, True])
def test_batched_mma_is_what_tvm_does(turned: bool, rng: np.random.Generator) -> None:
    """Designs of our own: stock has none."""
    rows = [row for row in INSTRUCTIONS.values() if row.name in BATCHED_ROWS]
    target = Target(SMALL)
    context = ms.TuneContext(
        te.create_prim_func(batched((3, 4), 128, 64, 256, turned=turned)),
        target=target,
        space_generator=TensorCoreOnlySpace(rows),
        search_strategy=None,
        rand_state=1,
    )
    spaces = context.generate_design_space()
    postprocs = list(context.space_generator.postprocs)
    task = Task(target, postprocs, decision_space(spaces, context.mod, target))
    # copies that run ahead by two and by three steps
    assert len(task.space) == 2 * len(BATCHED_ROWS)
    for sketch in task.space:
        assert sketch.closed, sketch.reason
        chosen = balanced(sketch, rng, 20, SMALL["max_shared_memory_per_block"])
        assert len(chosen) >= 12
        assert mistakes(task, sketch, chosen) == []


def test_what_never_builds(rng: np.random.Generator) -> None:
    """Tiles of A whose rows are no multiple of 32 elements, and pipelines of one step."""
    sketch = make("gemm", "mma").space[0]
    program = sketch.program(sketch.sample(POOL, rng))
    tile = next(b for b in program.buffers if b.name == "A_reindex_shared.dyn")
    fits = buildable(program)
    assert (fits == ((tile.shape[1] % 32 == 0) & (tile.shape[1] < 1024))).all()
    assert (tile.shape[1] == 1024).any()
    assert program.gpu is not None
    assert (program.gpu.valid & ~fits).any()
    assert (program.gpu.valid & fits).any()
    assert (draft(program, hardware_named("a100")).valid <= fits).all()


def plain_sketch(made: Any, attrs: dict[str, Any] = SMALL) -> Sketch:
    """The design for CUDA cores of some tensors."""
    context = TuneContext(
        te.create_prim_func(made),
        target=Target(attrs),
        space_generator="cuda",
        search_strategy=None,
        num_threads=1,
    )
    designs = list(context.generate_design_space())
    return decision_space(designs, context.mod, Target(attrs))[0]


def test_shared_memory_of_a_fixed_size_is_48_kib_whatever_a_block_may_ask_for(
    rng: np.random.Generator,
) -> None:
    attrs = {**SMALL, "max_shared_memory_per_block": 166912}
    sketch = plain_sketch(te_workload.matmul(256, 256, 256), attrs)
    program = sketch.program(sketch.sample(POOL, rng))
    assert program.gpu is not None
    large = program.gpu.shared > 48 * 1024
    assert (buildable(program) == ~large).all()
    assert (program.gpu.valid & large).any()
    assert (program.gpu.valid & ~large).any()


def test_half_precision_is_not_gathered_eight_at_a_time(rng: np.random.Generator) -> None:
    """A thread of the plain design copies eight elements of a tile with rows shorter than that."""
    sketch = plain_sketch(te_workload.matmul(256, 256, 256, **HALF))
    rows = sketch.sample(POOL, rng)
    program = sketch.program(rows)
    assert program.gpu is not None
    *tiles, first, second, _ = rows.T
    i, j, k = (np.prod(tiles[at : at + n], axis=0) for at, n in ((1, 4), (6, 4), (11, 2)))
    # a tile of fewer than eight elements is not copied eight at a time
    torn_rows = (k < 8) & (i * k >= 8) & (first == 3) | (j < 8) & (j * k >= 8) & (second == 3)
    valid = program.gpu.valid
    assert (buildable(program) == ~torn_rows)[valid].all()
    assert 0 < torn_rows[valid].sum() < valid.sum()


@pytest.mark.parametrize(("dtype", "sums"), [("float16", "float32"), ("int8", "int32")])
def test_a_vector_does_not_go_on_in_the_next_row(
    dtype: str, sums: str, rng: np.random.Generator
) -> None:
    """Rows of 12 or 20 elements have no whole vectors, however long they are."""
    sketch = plain_sketch(te_workload.matmul(240, 240, 240, in_dtype=dtype, out_dtype=sums))
    rows = sketch.sample(POOL, rng)
    program = sketch.program(rows)
    assert program.gpu is not None
    valid = program.gpu.valid
    torn_rows = np.zeros(len(rows), bool)
    for name in ("A_shared", "B_shared"):
        tile = next(b for b in program.buffers if b.name == name)
        copy = next(s for s in program.statements if s.name == name)
        wide = (copy.loops[-1].kind == LoopKind.VECTORIZED) & (copy.loops[-1].extent > 4)
        width = np.broadcast_to(copy.loops[-1].extent, len(rows))
        torn_rows |= wide & (tile.shape[-1] % width != 0)
    assert (buildable(program) == ~torn_rows)[valid].all()
    assert 0 < torn_rows[valid].sum() < valid.sum()


def test_bfloat16_is_not_copied_three_at_a_time(rng: np.random.Generator) -> None:
    """TVM: "only support even lane for bfloat16 type"; of 1,000 rows some would."""
    made = te_workload.matmul(96, 96, 96, in_dtype="bfloat16", out_dtype="float32")
    sketch = plain_sketch(made)
    program = sketch.program(sketch.sample(POOL, rng))
    copies = [s for s in program.statements if s.name in ("A_shared", "B_shared")]
    three = np.any([(s.loops[-1].extent == 3) for s in copies], axis=0)
    assert program.gpu is not None and (three & program.gpu.valid).any()
    assert not (buildable(program) & three).any()


def test_permuted_tiles_are_as_wide_as_powers_of_two(rng: np.random.Generator) -> None:
    """Of others nvcc refuses the code: seen of each of 40 that were built."""
    sketch = make("gemm_large", "mma").space[0]
    program = sketch.program(sketch.sample(POOL, rng))
    tiles = [b for b in program.buffers if b.scope == "shared.dyn"]
    powers = [(b.shape[-1] & (b.shape[-1] - 1)) == 0 for b in tiles]
    fits = buildable(program)
    assert not (fits & ~np.all(powers, axis=0)).any()
    assert (fits & (tiles[0].shape[-1] > 32)).any()
    assert (~np.all(powers, axis=0)).any()


def test_an_epilogue_that_reads_is_no_copy(task: Any, rng: np.random.Generator) -> None:
    """LowerAutoCopy throws where the block that stores accumulators reads another buffer, too."""
    conv2d = task("conv2d_half_bn_relu", "cuda-mma")
    sketch = conv2d.space[0]
    rows = sketch.sample(64, rng)
    gpu = sketch.program(rows).gpu
    assert gpu is not None
    assert not gpu.valid.any()
    assert not any(conv2d.read(sketch, row).verdict for row in rows[:2])


@pytest.mark.parametrize("rules", ["cuda-tensorcore", "cuda-mma"])
def test_memory_of_one_type_is_reused_by_configuration(
    rules: str, task: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StorageRewrite lets a result extend an operand's tile of its type, unless it may not."""
    gemm = task("gemm_f16", rules)
    sketch = gemm.space[0]
    rows = sketch.sample(POOL, rng)

    def configure(config: dict[str, bool]) -> None:
        monkeypatch.setattr(fragment_memory, "default_pass_config", lambda *_: config)
        monkeypatch.setattr(lowered_gpu, "config_for", lambda *_: config)

    shared = []
    for config in ({}, {MERGE_ONCE: True}):
        configure(config)
        gpu = sketch.program(rows).gpu
        assert gpu is not None
        shared.append(gpu.shared)
    assert (shared[0] >= shared[1]).all()
    differing = rows[shared[0] > shared[1]][:4]
    assert len(differing) > 0
    for config in ({}, {MERGE_ONCE: True}):
        configure(config)
        program = sketch.program(differing)
        for i, row in enumerate(differing):
            assert list(disagreements(program, i, row, gemm.read(sketch, row))) == []


@pytest.mark.heavy
def test_images_of_a_network_are_closed(rng: np.random.Generator) -> None:
    """Nothing is left to the oracle of the rows that TVM accepts, whatever their tiles."""
    task = make("conv_network")
    for sketch in task.space:
        rows = sketch.sample(512, rng)
        rows = rows[sketch.accepted(rows)]
        assert len(rows) > 50
        assert sketch.program(rows).supported.all()
        assert mistakes(task, sketch, rows[:3]) == []
