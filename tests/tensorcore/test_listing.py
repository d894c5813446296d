"""What can be tensorised, by what, or why not; and `tune`'s choice of design spaces."""

from __future__ import annotations

import pytest

from pruner_ms.errors import OptionError, TargetError
from pruner_ms.integration.options import TuneOptions
from pruner_ms.pools.specs import is_spec, workload_of_spec
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS
from pruner_ms.tensorcore.listing import products
from pruner_ms.tensorcore.targets import has_tensor_cores, target_of
from pruner_ms.tensorcore.verdicts import (
    BYTES,
    LAYOUT,
    NEEDS_ASYNC,
    TOO_SHORT,
    offered_from,
    why_none,
)
from pruner_ms.tvm_compat.paths import Target, te
from tests.support.operators import OPERATORS, TARGETS, context_of
from tests.support.products import by_columns


def seen(spec, arch="sm_80"):
    target = Target({**TARGETS["cuda"], "arch": arch})
    return products(workload_of_spec(spec).func(), target)


def reasons(block):
    return {verdict.instruction.name: verdict.reason for verdict in block.verdicts}


def test_a_product_in_half_precision_has_every_instruction():
    (block,) = seen("gemm:128x128x128:float16")
    assert block.dtypes == ("float16", "float32") and not why_none(block)
    assert set(reasons(block).values()) == {""}
    # B by rows, at three depths of copies that run ahead, and by columns
    assert {v.designs for v in block.verdicts if v.instruction.family == "wmma"} == {4}
    assert {v.designs for v in block.verdicts if v.instruction.family == "mma"} == {2}


def test_what_the_architecture_lacks_is_said_with_the_first_that_has_it():
    (block,) = seen("gemm:128x128x128:float16", "sm_75")
    lacking = {name: why for name, why in reasons(block).items() if why}
    assert lacking == {
        "mma_m16n8k16_f16f16f32": "needs sm_80",
        "mma_m16n8k8_f16f16f32": NEEDS_ASYNC,
    }
    (block,) = seen("gemm:128x128x128:bfloat16", "sm_75")
    assert block.designs == 0 and set(reasons(block).values()) == {"needs sm_80"}
    # sm_75 has one of them, but our designs of it need more
    (block,) = seen("gemm:128x128x128:float16", "sm_70")
    assert {why for why in reasons(block).values() if why} == {"needs sm_80"}


TYPES = sorted({(row.operands, row.accumulator) for row in INSTRUCTIONS.values()})


@pytest.mark.parametrize(("operands", "sums"), TYPES)
def test_an_instruction_has_designs_from_its_first_architecture_on(operands, sums):
    """What is said without a target is what each target says."""
    func = te.create_prim_func(by_columns(128, 128, 128, operands, sums))
    for number in (70, 72, 75, 80):
        target = Target({**TARGETS["cuda"], "arch": f"sm_{number}"})
        (block,) = products(func, target, allow_tf32=True)
        rows = {verdict.instruction: verdict.designs > 0 for verdict in block.verdicts}
        assert rows == {row: number >= offered_from(row) for row in rows}
        assert len(rows) == sum(
            (r.operands, r.accumulator) == (operands, sums) for r in INSTRUCTIONS.values()
        )


@pytest.mark.parametrize(("length", "designs"), [(32, 0), (33, 1), (64, 1), (96, 2)])
def test_mma_wants_sums_for_each_step_that_its_copies_run_ahead(length, designs):
    (block,) = seen(f"gemm:64x64x{length}:float16")
    counts = {v.designs for v in block.verdicts if v.instruction.family == "mma"}
    assert counts == {designs}
    said = {reasons(block)[v.instruction.name] for v in block.verdicts if not v.designs}
    assert said == ({TOO_SHORT} if not designs else set())


def test_a_shape_that_cannot_be_cut():
    """An image whose windows have one place: TVM leaves out the loops over rows."""
    (block,) = seen("conv2d:1x3x3x64x64x3:float16")
    why = reasons(block)
    assert why["mma_m16n8k8_f16f16f32"] == "its sizes cannot be cut into 32x32x8"
    assert {text for name, text in why.items() if name.startswith("wmma")} == {LAYOUT}


@pytest.mark.parametrize(
    "spec", ["bmm:2x100x72x40", "gemm:1x64x64", "gemm:64x1x64", "gemm:33x7x65"]
)
def test_sizes_that_are_no_whole_tiles_are_padded(spec):
    (block,) = seen(f"{spec}:float16")
    assert set(reasons(block).values()) == {""}


def test_a_batch_is_taken_by_every_instruction():
    (block,) = seen("bmm:4x64x64x64:float16")
    assert set(reasons(block).values()) == {""}
    # stock's rule for mma counts loops: an axis of length one is one, too
    (block,) = seen("bmm:1x64x64x64:float16")
    assert set(reasons(block).values()) == {""}


@pytest.mark.parametrize("of", [1, 4])
def test_a_batch_of_which_a_factor_has_not_all_axes(of):
    """Heads of which several share a factor (grouped-query attention), in 32 or in 64 bits."""
    a = te.placeholder((8, 32, 64), name="A", dtype="float16")
    b = te.placeholder((8 // of, 64, 32), name="B", dtype="float16")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute(
        (8, 32, 32),
        lambda h, i, j: te.sum(
            a[h, i, k].astype("float32") * b[h // of, k, j].astype("float32"), axis=k
        ),
        name="C",
    )
    target = Target({**TARGETS["cuda"], "arch": "sm_80"})
    for dtype in (None, "int64"):
        (block,) = products(te.create_prim_func([a, b, c], dtype), target)
        assert set(reasons(block).values()) == {""}


def columns(dtype, sums, allow_tf32=False):
    """What is seen of a product whose B is stored by columns."""
    target = Target({**TARGETS["cuda"], "arch": "sm_80"})
    func = te.create_prim_func(by_columns(128, 128, 128, dtype, sums))
    return products(func, target, allow_tf32)


def test_bytes_are_not_turned_on_the_way():
    (block,) = seen("gemm:128x128x128:int8")
    assert reasons(block)["mma_m16n8k32_s8s8s32"] == BYTES
    assert reasons(block)["wmma_m16n16k16_s8s8s32"] == ""
    (block,) = columns("int8", "int32")
    assert set(reasons(block).values()) == {""}


def test_tf32_is_offered_when_it_is_allowed():
    (block,) = columns("float32", "float32", allow_tf32=True)
    assert reasons(block) == dict.fromkeys(
        ("mma_m16n8k4_tf32tf32f32", "mma_m16n8k8_tf32tf32f32"), ""
    )
    (block,) = columns("float32", "float32")
    assert not block.verdicts and "--allow-tf32" in why_none(block)


def test_types_that_no_instruction_takes():
    (block,) = seen("gemm:64x64x64")
    assert not block.verdicts
    assert "no instruction adds products of float32" in why_none(block)
    assert "tf32" in why_none(block)


def test_layouts_that_no_instruction_reads():
    """Each channel by itself: neither factor is a matrix."""
    (block,) = seen("conv2d_nhwc:1,14,14,16,16,3,1,1:float16")
    assert block.designs > 0
    data = te.placeholder((64, 64), dtype="float16", name="data")
    scale = te.placeholder((64,), dtype="float16", name="scale")
    k = te.reduce_axis((0, 64), name="k")
    sums = te.compute(
        (64,),
        lambda i: te.sum(data[i, k].astype("float32") * scale[k].astype("float32"), axis=k),
        name="sums",
    )
    blocks = products(te.create_prim_func([data, scale, sums]), Target(dict(TARGETS["cuda"])))
    assert [set(reasons(block).values()) for block in blocks] == [{LAYOUT}]


def test_what_adds_up_no_products_is_left_out():
    assert seen("softmax:64x64") == ()
    assert seen("norm:1x64x64") == ()


@pytest.mark.parametrize("operator", ["gemm_half", "conv2d_half", "gemm_bf16", "softmax"])
def test_the_list_is_what_the_design_spaces_are(operator):
    """Counted by what the designs themselves are annotated with."""
    _, designs = context_of(OPERATORS[operator], "tensorcore")
    marked = [
        design
        for design in designs
        if any("mma_sync" in str(i.inputs[1]) for i in design.trace.insts if annotates(i))
    ]
    with Target(dict(TARGETS["tensorcore"])) as target:
        mod = te.create_prim_func(OPERATORS[operator]())
    assert sum(block.designs for block in products(mod, target)) == len(marked)


def annotates(instruction):
    return instruction.kind.name == "Annotate" and len(instruction.inputs) > 1


@pytest.mark.parametrize(
    ("asked", "arch", "name"),
    [
        ("auto", "sm_80", "tensorcore"),
        ("auto", "sm_61", "post-order-apply"),
        ("off", "sm_80", "cuda"),
        ("only", "sm_75", "tensorcore-only"),
    ],
)
def test_tune_chooses_design_spaces_by_the_target(asked, arch, name):
    target = Target({**TARGETS["cuda"], "arch": arch})
    assert TuneOptions(tensorcore=asked, cost_model="none").config(1, target).space == name


def test_a_cpu_has_no_tensor_cores():
    cpu = Target(dict(TARGETS["llvm"]))
    assert not has_tensor_cores(cpu)
    assert TuneOptions(cost_model="none").config(1, cpu).space == "cpu"
    with pytest.raises(TargetError, match=r"llvm has no TensorCores.*nvidia-a100"):
        TuneOptions(tensorcore="only", cost_model="none").config(1, cpu)
    with pytest.raises(TargetError, match="llvm has no TensorCores"):
        target_of("cpu")
    with pytest.raises(OptionError, match=r"allow_tf32=True.*tensorcore='auto'"):
        TuneOptions(tensorcore="off", allow_tf32=True)
    with pytest.raises(OptionError, match=r"tensorcore='yes'.*auto, off, only"):
        TuneOptions(tensorcore="yes")


def test_without_a_target_everything_is_listed():
    target, given = target_of(None)
    assert has_tensor_cores(target)
    if not given:  # no device here
        (block,) = products(workload_of_spec("gemm:128x128x128:bf16").func(), target)
        assert not any(reasons(block).values())


def test_specs_are_told_from_files():
    assert is_spec("gemm:1x2x3") and is_spec("matmul:64,64,64")
    assert not is_spec("model.onnx") and not is_spec("resnet50") and not is_spec("a/b:c.onnx")
    with pytest.raises(OptionError, match="'float31'"):
        workload_of_spec("gemm:64x64x64:float31")
