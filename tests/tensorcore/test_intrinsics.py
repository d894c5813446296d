"""Rows of TensorCore instructions: complete, consistent, in step with the device rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pruner_ms.hardware.arch import arch_number
from pruner_ms.hardware.gpus import GPUS
from pruner_ms.tensorcore.intrinsics import INSTRUCTIONS, instructions_for, warp_level_share
from tests.support.warp_ops import cut

GEFORCE = ("titanv", "rtx3090", "rtx4090", "rtx5090")


def test_rows_are_known_by_their_names():
    assert all(name == row.name for name, row in INSTRUCTIONS.items())
    named = {"wmma_m32n8k16_bf16bf16f32", "mma_m16n8k8_tf32tf32f32", "mma_m16n8k32_s8s8s32"}
    assert named < set(INSTRUCTIONS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"family": "wgmma"}, "family 'wgmma'"),
        ({"accumulator": "int32"}, "int32 accumulators of float16"),
        ({"arch": 60}, "sm_60"),
        ({"shape": (16, 8, 0)}, "shape"),
        ({"shape": (16, 8, 32)}, "shape"),
        ({"shape": (8, 8, 16)}, "shape"),
        ({"family": "wmma"}, "shape"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(change, said):
    row = INSTRUCTIONS["mma_m16n8k16_f16f16f32"]
    with pytest.raises(ValueError, match=said):
        replace(row, **change)


@pytest.mark.parametrize("device", GPUS, ids=lambda d: d.name)
def test_rates_are_the_peaks_of_the_device_rows(device):
    """Over clocks as data sheets round them; a GeForce halves what is summed in float32."""
    arch = device.sm.arch
    rows = [row for row in INSTRUCTIONS.values() if row.rate(arch)]
    rates = {row.operands: row.rate(arch) / warp_level_share(arch) for row in rows}
    named = {p.dtype for p in device.peaks if p.unit == "tensor"} - {"float64"}
    assert named <= set(rates)
    for dtype, rate in rates.items():
        share = device.peak(dtype, "tensor") / (2 * rate * device.units * device.clock)
        halves = device.name in GEFORCE and dtype != "int8" and arch != "sm_70"
        assert share == pytest.approx(0.5 if halves else 1.0, rel=0.13), dtype
    if "float16" in rates:
        # sums of float16 are added up at the full rate by all
        flops = 2 * rates["float16"] * device.units * device.clock
        assert device.peak("float16", "tensor", "float16") == pytest.approx(flops, rel=0.13)
        single = device.peak("float16", "tensor", "float32")
        assert device.peak("float16", "tensor") == single


@pytest.mark.parametrize(
    ("name", "registers", "slots"),
    [
        ("mma_m16n8k8_f16f16f16", (2, 1, 2), (4, 2, 4)),
        ("mma_m16n8k16_bf16bf16f32", (4, 2, 4), (8, 4, 4)),
        ("mma_m16n8k4_tf32tf32f32", (2, 1, 4), (2, 1, 4)),
        ("mma_m16n8k32_s8s8s32", (4, 2, 4), (16, 8, 4)),
        ("wmma_m8n32k16_f16f16f16", (8, 8, 4), (16, 16, 8)),
        ("wmma_m8n32k16_bf16bf16f32", (2, 8, 8), (4, 16, 8)),
        ("wmma_m32n8k16_s8s8s32", (4, 1, 8), (16, 4, 8)),
    ],
)
def test_registers_are_those_of_the_isa(name, registers, slots):
    assert (INSTRUCTIONS[name].registers, INSTRUCTIONS[name].slots) == (registers, slots)


@pytest.mark.parametrize(
    ("operands", "sums", "arch", "tf32", "count"),
    [
        ("float16", "float32", "sm_60", False, 0),
        ("float16", "float32", "sm_70", False, 3),
        ("float16", "float32", "sm_75", False, 4),
        ("float16", "float32", "sm_80", False, 5),
        ("bfloat16", "float32", "sm_75", False, 0),
        ("bfloat16", "float32", "sm_90a", False, 5),
        ("int8", "int32", "sm_75", False, 3),
        ("int8", "int32", "sm_86", False, 4),
        ("float32", "float32", "sm_80", False, 0),
        ("float32", "float32", "sm_80", True, 2),
        ("float32", "float32", "sm_75", True, 0),
        ("float64", "float64", "sm_80", True, 0),
    ],
)
def test_what_an_architecture_has(operands, sums, arch, tf32, count):
    assert len(instructions_for(operands, sums, arch, allow_tf32=tf32)) == count


def test_hopper_does_not_reach_its_rate_with_instructions_of_one_warp():
    row = INSTRUCTIONS["mma_m16n8k16_f16f16f32"]
    assert 1024 < row.rate("sm_90") < 2048
    assert row.rate("sm_90a") == row.rate("sm_100a") == row.rate("sm_90")
    assert row.rate("sm_75") == row.rate("rubbish") == 0
    # a GeForce of Blackwell is like one of Ada, and has no `wgmma`
    assert row.rate("sm_120a") == row.rate("sm_89") == 512
    assert arch_number("sm_90a") == 90


def test_operations_count_a_multiply_add_as_two():
    assert INSTRUCTIONS["mma_m16n8k16_f16f16f32"].operations == 4096


@pytest.mark.parametrize("name", ["mma_m16n8k16_f16f16f16", "mma_m16n8k8_tf32tf32f32"])
@pytest.mark.parametrize("length", [64, 4096])
def test_the_tolerance_holds_what_the_unit_does_and_not_twice_as_much(name, length):
    """Sums as the units make them: of one instruction exactly, then rounded to the sums' dtype."""
    row, rng = INSTRUCTIONS[name], np.random.default_rng(length)
    a, b = (rng.standard_normal((200, length)).astype(row.operands) for _ in range(2))
    if row.tf32:
        a, b = (cut(x) for x in (a, b))
    k = row.shape[2]
    sums = np.zeros(200, row.accumulator)
    for start in range(0, length, k):
        part = (a[:, start : start + k].astype("float64") * b[:, start : start + k]).sum(1)
        sums = (sums + part).astype(row.accumulator)
    rng = np.random.default_rng(length)
    a, b = (rng.standard_normal((200, length)).astype(row.operands) for _ in range(2))
    true, size = ((f(a).astype("float64") * f(b)).sum(1) for f in (np.asarray, np.abs))
    errors = np.abs(sums - true) / size
    assert 0 < errors.max() < row.tolerance(length) < 1000 * errors.max()


def test_integers_are_exact():
    assert INSTRUCTIONS["mma_m16n8k32_s8s8s32"].tolerance(1 << 16) == 0
