"""Which row stands for the machine that a pool was measured on."""

from __future__ import annotations

import pytest

from pruner_ms.errors import TargetError
from pruner_ms.hardware import lookup
from pruner_ms.pools.machine import cpu_named, hardware_of, this_machine
from pruner_ms.tvm_compat.paths import Target
from tests.support.operators import TARGETS

LLVM = {"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 4}
CUDA = dict(TARGETS["cuda"])
KIB = 1024


@pytest.mark.parametrize(
    ("name", "l1", "l2", "isa"),
    [
        ("AMD EPYC", 48, 1024, "avx512-bf16"),
        ("AMD EPYC 9B45", 48, 1024, "avx512-bf16"),
        ("AMD EPYC 9654 96-Core Processor", 32, 1024, "avx512-bf16"),
        ("AMD EPYC 7763 64-Core Processor", 32, 512, "avx2"),
        ("AMD EPYC-Rome Processor", 32, 512, "avx2"),
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", 48, 2048, "avx512-bf16"),
        ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", 48, 1280, "avx512"),
        ("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", 32, 1024, "avx512"),
    ],
)
def test_cpus_by_their_model_name(name: str, l1: int, l2: int, isa: str) -> None:
    row = cpu_named(name)
    assert row is not None
    assert row.core.isa == isa
    assert [cache.size for cache in row.core.caches[:2]] == [l1 * KIB, l2 * KIB]
    if "@" in name:
        assert row.clock == pytest.approx(float(name.split("@ ")[1].removesuffix("GHz")) * 1e9)


def test_the_target_limits_the_cpu() -> None:
    row = hardware_of(Target({**LLVM, "mcpu": "x86-64-v3"}), {"cpu": "AMD EPYC"})
    assert (row.units, row.core.isa, row.core.vector_bytes) == (4, "avx2", 32)
    assert row.core.caches[0].size == 48 * KIB


def test_an_unknown_cpu_is_the_row_of_its_instructions_and_the_host_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked() -> None:
        raise AssertionError("the host was asked")

    monkeypatch.setattr(lookup, "calibrated_host", asked)
    for meta in ({}, {"cpu": "Loongson-3A6000"}, {"cpu": "AMD EPYC"}):
        row = hardware_of(Target(LLVM), meta)
        assert (row.units, row.core.vector_bytes) == (4, 64)


@pytest.mark.parametrize(
    ("gpu", "row"),
    [
        ("NVIDIA A100-SXM4-40GB, 535.104", "a100-40"),
        ("NVIDIA A100-SXM4-80GB, 535.104", "a100-80"),
        ("", "a100-80"),
        ("Some Other Thing, 1", "a100-80"),
    ],
)
def test_gpus_by_their_name(gpu: str, row: str) -> None:
    assert hardware_of(Target(CUDA), {"gpu": gpu}).name == row


def test_a_gpu_that_no_row_knows() -> None:
    with pytest.raises(TargetError, match="sm_21"):
        hardware_of(Target({**CUDA, "arch": "sm_21"}), {})
    assert hardware_of(Target({**CUDA, "arch": "sm_21"}), {"gpu": "Tesla T4, 1"}).name == "t4"


def test_the_machine_has_no_name() -> None:
    import platform

    machine = this_machine()
    assert {"cpu", "cores", "load", "system", "python", "tvm"} == set(machine)
    assert platform.node() not in machine.values()


@pytest.mark.parametrize("cpu", ["", "AMD EPYC"])
def test_meta_says_what_the_target_does_not(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> None:
        raise AssertionError("the host was asked")

    monkeypatch.setattr(lookup, "calibrated_host", asked)
    meta = {"cpu": cpu, "cores": 3, "mcpu": "x86-64-v3"}
    row = hardware_of(Target({"kind": "llvm"}), meta)
    assert (row.units, row.core.vector_bytes) == (3, 32)
    stated = hardware_of(Target({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 2}), meta)
    assert (stated.units, stated.core.vector_bytes) == (2, 64)
    for cores in (0, -1, "two", None, True):
        assert hardware_of(Target(LLVM), {**meta, "cores": cores}).units == 4
