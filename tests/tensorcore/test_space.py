"""`space="tensorcore"`: what it offers for which block on which target, and that it is right."""

from __future__ import annotations

import json

import ml_dtypes  # noqa: F401  numpy's bfloat16
import numpy as np
import pytest
from scipy.special import erf

import pruner_ms  # noqa: F401  registers the name
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.space import TensorCoreSpace
from pruner_ms.tensorcore.verdicts import WIDE
from pruner_ms.tvm_compat.paths import (
    VERSION,
    Target,
    TuneContext,
    as_tensor,
    build,
    load_json,
    prim_func,
    save_json,
    te,
    te_workload,
)
from pruner_ms.tvm_compat.relax_paths import buffer_shape, buffers_of
from tests.support.designs import design_of, is_split, shortest_first
from tests.support.on_cpu import described_schedule, on_cpu
from tests.support.operators import OPERATORS, TARGETS, context_of
from tests.support.oracle import task_of
from tests.support.products import batched


def designs(dtype, sums, arch="sm_80", space="tensorcore", shape=(128, 128, 128)):
    target = Target({**TARGETS["cuda"], "arch": arch})
    with target:
        mod = te.create_prim_func(te_workload.matmul(*shape, in_dtype=dtype, out_dtype=sums))
    context = TuneContext(
        mod, target=target, space_generator=space, search_strategy=None, rand_state=1, num_threads=1
    )
    return [design_of(design.trace) for design in context.generate_design_space()]


def test_mma_is_offered_of_loops_of_64_bits_or_it_is_said_why_not():
    target, seen = Target({**TARGETS["cuda"], "arch": "sm_80"}), []
    with target:
        tensors = te_workload.matmul(128, 128, 128, in_dtype="float16", out_dtype="float32")
        mod = te.create_prim_func(tensors, "int64")
    space = TensorCoreSpace(seen=seen)
    context = TuneContext(mod, target=target, space_generator=space, search_strategy=None)
    names = [design_of(design.trace)[0] for design in context.generate_design_space()]
    refuses = VERSION.startswith(("0.25.", "0.26."))
    assert any(name.startswith("wmma") for name in names)
    assert any(name.startswith("mma") for name in names) is not refuses
    verdicts = [each for looked in seen for each in looked.verdicts]
    reasons = {each.reason for each in verdicts if each.instruction.family == "mma"}
    assert reasons == {WIDE if refuses else ""}


@pytest.mark.parametrize(
    ("dtype", "sums", "arch", "instructions", "depths"),
    [
        ("float16", "float32", "sm_80", 8, {0, 2, 3}),
        ("float16", "float16", "sm_80", 8, {0, 2, 3}),
        ("bfloat16", "float32", "sm_80", 8, {0, 2, 3}),
        ("int8", "int32", "sm_80", 6, {0, 2, 3}),
        ("float16", "float32", "sm_75", 6, {0}),
        ("float16", "float32", "sm_70", 6, {0}),
        ("bfloat16", "float32", "sm_75", 0, set()),
        ("float32", "float32", "sm_80", 0, set()),
    ],
)
def test_every_instruction_of_the_target_is_offered_beside_cuda_cores(
    dtype, sums, arch, instructions, depths
):
    offers = designs(dtype, sums, arch)
    wmma = [each for each in offers if each[0].startswith("wmma")]
    mma = [each for each in offers if each[0].startswith("mma")]
    assert len({name for name, _ in (*wmma, *mma)}) == instructions
    assert {depth for _, depth in wmma} == depths
    assert {depth for _, depth in mma} == (depths - {0} if mma else set())
    assert len(wmma) == len(set(wmma)) and len(mma) == len(set(mma))
    # CUDA cores, as stock offers them
    assert [each for each in offers if not each[0]] == designs(dtype, sums, arch, "cuda")


def test_odd_shapes_are_padded_for_every_instruction():
    offers = designs("float16", "float32", shape=(100, 72, 40))
    assert {name for name, _ in offers} == {name for name, _ in designs("float16", "float32")}


def test_tiles_of_bfloat16_are_padded_as_those_of_float16_are():
    pitches = []
    for workload in ("float16", "bfloat16"):
        _, schedules = context_of(PRODUCTS[workload], "tensorcore")
        traces = [d.trace for d in schedules if design_of(d.trace)[0].startswith("wmma")]
        assert len(traces) == 12
        pitches.append({pitch for trace in traces for pitch in padding_of(trace)})
        assert all(len(padding_of(trace)) == 2 for trace in traces)
    assert pitches[0] == pitches[1]


def padding_of(trace):
    """What is said of the pitch of each tile in shared memory."""
    instructions = [i for i in trace.insts if i.kind.name == "StorageAlign"]
    return [tuple(int(value) for value in i.attrs) for i in instructions]


def test_tensorcores_only_leaves_cuda_cores_to_what_cannot_be_tensorised():
    offers = designs("float16", "float32", space="tensorcore-only")
    assert {name.partition("_")[0] for name, _ in offers} == {"mma", "wmma"}
    assert designs("float32", "float32", space="tensorcore-only") == designs(
        "float32", "float32", space="cuda"
    )


def test_a_producer_that_is_read_twice():
    """Both factors come from one tensor, which is inlined once."""
    a = te.placeholder((64, 64), dtype="float16", name="A")
    p = te.compute((64, 64), lambda i, j: a[i, j] * te.const(2, "float16"), name="p")
    q = te.compute((64, 64), lambda i, j: p[i, j] + te.const(1, "float16"), name="q")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute(
        (64, 64),
        lambda i, j: te.sum(p[i, k].astype("float32") * q[k, j].astype("float32"), axis=k),
        name="C",
    )
    _, schedules = context_of(lambda: [a, c], "tensorcore")
    assert any(design_of(design.trace)[0] for design in schedules)


def by_columns():
    a, b = (te.placeholder((64, 64), dtype="float16", name=name) for name in "AB")
    k = te.reduce_axis((0, 64), name="k")
    return [
        a,
        b,
        te.compute(
            (64, 64),
            lambda i, j: te.sum(a[i, k].astype("float32") * b[j, k].astype("float32"), axis=k),
            name="C",
        ),
    ]


@pytest.mark.parametrize(
    ("tensors", "turned"),
    [
        (lambda: te_workload.matmul(64, 64, 64, in_dtype="float16", out_dtype="float32"), False),
        (by_columns, True),
        (
            lambda: te_workload.transpose_batch_matmul(
                1, 64, 2, 64, in_dtype="float16", out_dtype="float32"
            ),
            True,
        ),
    ],
    ids=["by rows", "by columns", "transposed before"],
)
def test_copies_run_ahead_where_their_vectors_lie_in_memory(tensors, turned):
    """TVM makes an asynchronous copy of a vector with steps, and it copies the wrong elements."""
    _, schedules = context_of(tensors, "tensorcore")
    tensorised = [each for each in (design_of(d.trace) for d in schedules) if each[0]]
    for name, depth in tensorised:
        assert depth == 0 or ("_trans" in name) is turned, name
    assert {depth for name, depth in tensorised if ("_trans" in name) is turned} == {0, 2, 3}


def test_without_asynchronous_copies_pipelines_alone_leave_nothing():
    space = TensorCoreSpace(pipelines=(2, 3))
    assert {name for name, _ in designs("float16", "float32", "sm_75", space)} == {""}


def test_rows_can_be_chosen():
    row = INSTRUCTIONS["wmma_m32n8k16_f16f16f32"]
    offers = designs("float16", "float32", space=TensorCoreSpace([row], pipelines=(0,)))
    assert {name for name, _ in offers} == {
        "",
        "wmma_sync_32x8x16_f16f16f32",
        "wmma_sync_32x8x16_f16f16f32_trans",
    }


def weights_of_heads(rows, heads, size):
    """A factor without one of the axes, of which another lies between two of the rows'."""
    a = te.placeholder((rows, heads, size, size), name="A", dtype="float16")
    b = te.placeholder((heads, size, size), name="B", dtype="float16")
    k = te.reduce_axis((0, size), name="k")

    def product(n, h, i, j):
        return te.sum(a[n, h, i, k].astype("float32") * b[h, k, j].astype("float32"), axis=k)

    return [a, b, te.compute((rows, heads, size, size), product, name="C")]


PRODUCTS = {
    "float16": lambda: te_workload.matmul(64, 48, 64, in_dtype="float16", out_dtype="float32"),
    "odd": lambda: te_workload.matmul(40, 24, 20, in_dtype="float16", out_dtype="float16"),
    "bfloat16": lambda: te_workload.matmul(32, 64, 48, in_dtype="bfloat16", out_dtype="float32"),
    "int8": lambda: te_workload.matmul(32, 32, 32, in_dtype="int8", out_dtype="int32"),
    "batched": lambda: te_workload.batch_matmul_nkkm(
        2, 32, 32, 32, in_dtype="float16", out_dtype="float32"
    ),
    "batched twice": lambda: batched((2, 3), 64, 32, 32, turned=False),
    "weights of heads": lambda: weights_of_heads(2, 3, 32),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("workload", PRODUCTS)
def test_every_design_computes_what_the_operator_does(workload, rng):
    """On a CPU, from descriptions, after software pipelining; exact in small integers."""
    task = task_of(*context_of(PRODUCTS[workload], "tensorcore"))
    inputs = []
    for sketch in task.space:
        schedule = cheap_schedule(task, sketch, rng)
        built = build(on_cpu(schedule.mod), target=Target("llvm"))
        if not inputs:
            buffers = buffers_of(prim_func(schedule.mod))
            inputs = [rng.integers(-3, 4, buffer_shape(b)).astype(str(b.dtype)) for b in buffers]
        tensors = [as_tensor(x) for x in inputs]
        built["main"](*tensors)
        expected = inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)
        assert np.array_equal(tensors[-1].numpy().astype(np.float64), expected), sketch.index


def gelu(a, b, bias, rest):
    d = a @ b + bias
    return d * 0.5 * (erf(d * 0.7071068) + 1.0) + rest


def convolution(x, w):
    around = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


def grouped_convolution(x, w):
    around = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(1, 2))
    groups = zip(np.split(windows, 2, axis=3), np.split(w, 2, axis=3), strict=True)
    return np.concatenate([np.einsum("nhwcij,ijco->nhwo", *group) for group in groups], axis=3)


MANY = ("gemm_half_gelu", "gemm_half_bias_relu", "conv2d_nchw_half", "conv2d_grouped_half")
OTHERS = {
    "conv2d_grouped_half": ("tensorcore", grouped_convolution),
    "gemm_half_bias_relu": ("tensorcore", lambda a, b, bias: np.maximum(a @ b + bias, 0)),
    "gemm_half_gelu": ("tensorcore", gelu),
    "conv2d_nchw_half": ("tensorcore", convolution),
    "gemm_half_long": ("tensorcore", lambda a, b: a @ b),
    "gemm_int8_columns": ("tensorcore", lambda a, b: a @ b.T),
    "gemm_tf32_columns": ("tensorcore-tf32", lambda a, b: a @ b.T),
    "gemm": ("tensorcore-tf32", lambda a, b: a @ b),
    "gemm_a_columns": ("tensorcore-tf32", lambda a, b: a.T @ b),
    "gemm_half_a_columns": ("tensorcore", lambda a, b: a.T @ b),
    "conv2d_nchw_1x1_half": ("tensorcore", lambda x, w: np.einsum("nchw,ocij->nohw", x, w)),
    "transposed_batched_gemm_half": ("tensorcore", lambda q, v: np.einsum("blhd,bmhd->bhlm", q, v)),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("operator", OTHERS)
def test_other_layouts_types_and_epilogues_are_computed_right(operator, rng):
    """One design of each instruction, as above; where the result is rounded, to that precision."""
    space, reference = OTHERS[operator]
    task = task_of(*context_of(OPERATORS[operator], space))
    seen = set()
    for sketch in task.space:
        name, split = design_of(sketch.trace)[0], is_split(sketch.trace)
        if split != (operator == "gemm_half_long"):
            continue
        schedule = None if name in ("", *seen) else cheap_schedule(task, sketch, rng)
        if schedule is None:
            continue
        seen.add(name)
        buffers = buffers_of(prim_func(schedule.mod))
        inputs = [rng.integers(-3, 4, buffer_shape(b)).astype(str(b.dtype)) for b in buffers]
        tensors = [as_tensor(x) for x in inputs]
        build(on_cpu(schedule.mod), target=Target("llvm"))["main"](*tensors)
        expected = reference(*(x.astype(np.float64) for x in inputs[:-1]))
        result = tensors[-1].numpy().astype(np.float64)
        share = 2.0**-10 if "gelu" in operator else 0.0
        np.testing.assert_allclose(result, expected, rtol=share, atol=share, err_msg=name)
    assert len(seen) >= (6 if operator in MANY else 1)
    # sums of 32 are too few for its pipeline
    without = "transposed_batched_gemm_half"
    assert any(name.startswith("mma") for name in seen) == (operator != without)


def cheap_schedule(task, sketch, rng):
    """A schedule that LLVM compiles fast: one of those with as little unrolled as can be.

    None where none is valid. What the closed form cannot judge TVM refuses now and then.
    """
    rows = sketch.sample(512, rng)
    if not sketch.closed:
        valid = np.arange(64)
    else:
        program = sketch.program(rows)
        valid = shortest_first(program, program.gpu.valid)[: program.gpu.valid.sum()]
    short = rng.permutation(valid[: max(64, len(valid) // 8)])
    tried = (described_schedule(sketch, rows[row], task.postprocs) for row in short)
    return next((one for one in tried if one is not None), None)


@pytest.fixture(scope="module")
def pipelined():
    """A schedule whose copies run ahead, as a program for a CPU."""
    task = task_of(*context_of(PRODUCTS["float16"], "tensorcore"))
    sketch = next(s for s in task.space if design_of(s.trace)[1] == 2)
    return on_cpu(cheap_schedule(task, sketch, np.random.default_rng(0)).mod)


def edited(mod, change):
    graph = json.loads(save_json(mod))
    assert change(graph["nodes"]) is not False
    return load_json(json.dumps(graph))


def test_pipelines_are_injected_before_a_program_runs(pipelined):
    """TVM refuses one of which it does not know the order."""

    def without_order(nodes):
        order_nodes = [n for n in nodes if str(n.get("data")).endswith("software_pipeline_order")]
        for node in order_nodes:
            node["data"] = "left_out"
        return bool(order_nodes)

    build(pipelined, target=Target("llvm"))
    with pytest.raises(Exception, match="Order of the software pipeline"):
        build(edited(pipelined, without_order), target=Target("llvm"))
