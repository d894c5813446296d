"""Targets with TensorCores: the shared memory that a block can ask for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import pruner_ms
from pruner_ms.errors import TargetError
from pruner_ms.hardware import hardware_for
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.records import uses_tf32
from pruner_ms.tensorcore.space import TensorCoreSpace
from pruner_ms.tensorcore.targets import DEFAULT_SHARED, SHARED
from pruner_ms.tvm_compat.paths import Target, TuneContext, te, te_workload
from pruner_ms.tvm_compat.targets import attrs_of, parse_target
from tests.support.designs import design_of
from tests.support.products import by_columns

OPT_IN = {
    # CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
    "nvidia/nvidia-v100": 96,
    "nvidia/nvidia-t4": 64,
    "nvidia/nvidia-a100": 163,
    "nvidia/geforce-rtx-4090": 99,
    "nvidia/nvidia-h100": 227,
    "nvidia/nvidia-b100": 227,
}


@pytest.mark.parametrize("tag", OPT_IN)
def test_a_target_gets_what_a_block_of_its_architecture_can_ask_for(tag):
    before = parse_target(tag)
    after = pruner_ms.tensorcore.opted_in(before)
    assert attrs_of(before)[SHARED] == DEFAULT_SHARED
    assert attrs_of(after)[SHARED] == OPT_IN[tag] * 1024
    others = [{k: v for k, v in attrs_of(t).items() if k != SHARED} for t in (before, after)]
    assert others[0] == others[1]
    assert hardware_for(attrs_of(after)).name == hardware_for(attrs_of(before)).name


@pytest.mark.parametrize(("arch", "kib"), [("sm_100a", 227), ("sm_120", 99), ("sm_120a", 99)])
def test_blackwell_has_as_much_as_its_architecture(arch, kib):
    limits = {"max_threads_per_block": 1024, "thread_warp_size": 32, SHARED: DEFAULT_SHARED}
    target = pruner_ms.tensorcore.opted_in(Target({"kind": "cuda", "arch": arch, **limits}))
    assert attrs_of(target)[SHARED] == kib * 1024
    assert hardware_for(attrs_of(target)).sm.shared_per_block == kib * 1024


@pytest.mark.parametrize(
    "config",
    [
        # somebody chose the figure
        {"kind": "cuda", "arch": "sm_80", SHARED: 100000, "max_threads_per_block": 1024},
        # nobody knows the architecture
        {"kind": "cuda", "arch": "sm_61", SHARED: DEFAULT_SHARED, "max_threads_per_block": 1024},
        {"kind": "llvm", "num-cores": 2},
    ],
)
def test_other_targets_stay_as_they_are(config):
    target = Target(config)
    assert pruner_ms.tensorcore.opted_in(target) is target


@pytest.mark.parametrize(("asked", "kib"), [("auto", 163), ("only", 163), ("off", 48)])
def test_tune_asks_for_it_where_it_tensorises(asked, kib):
    options = TuneOptions(tensorcore=asked, cost_model="none")
    target = options.target_for(parse_target("nvidia/nvidia-a100"))
    assert attrs_of(target)[SHARED] == kib * 1024


def test_the_space_is_refused_where_it_makes_no_sense():
    mod = te.create_prim_func(te_workload.matmul(64, 64, 64))
    with pytest.raises(TargetError, match=r"NVIDIA GPUs, not for the target kind 'llvm'"):
        TuneContext(mod, target=parse_target("cpu"), space_generator=TensorCoreSpace())


def test_tune_leaves_a_cpu_alone():
    target = parse_target("cpu")
    options = TuneOptions(cost_model="none", vector_math=False)
    assert options.target_for(target) is target


@pytest.mark.parametrize(
    ("asked", "name"), [("auto", "tensorcore-tf32"), ("only", "tensorcore-only-tf32")]
)
def test_tune_takes_the_spaces_with_tf32_where_it_is_allowed(asked, name):
    target = parse_target("nvidia/nvidia-a100")
    options = TuneOptions(tensorcore=asked, allow_tf32=True, cost_model="none")
    assert options.config(1, target).space == name
    func = te.create_prim_func(by_columns(64, 64, 64, "float32"))
    context = TuneContext(func, target=target, space_generator=name)
    names = {design_of(design.trace)[0] for design in context.generate_design_space()}
    tf32 = {f"mma_sync_m16n8k32_tf32tf32f32_trans_by_k{k}" for k in (4, 8)}
    assert names == tf32 | ({""} if asked == "auto" else set())


def test_a_record_says_whether_it_uses_tf32():
    func = te.create_prim_func(by_columns(64, 64, 64, "float32"))
    context = TuneContext(
        func, target=parse_target("nvidia/nvidia-a100"), space_generator="tensorcore-tf32"
    )
    for design in context.generate_design_space():
        record = SimpleNamespace(trace=design.trace)
        assert uses_tf32(record) == bool(design_of(design.trace)[0])
