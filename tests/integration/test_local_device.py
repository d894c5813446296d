"""Whether a target's programs run on this machine: its device, and its processor's architecture."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pruner_ms.errors import TargetError
from pruner_ms.hardware import hardware_named
from pruner_ms.integration import local_device
from pruner_ms.integration.local_device import architecture, device_present
from pruner_ms.tvm_compat.paths import Target

LLVM = {"kind": "llvm", "num-cores": 2}


@pytest.mark.parametrize(
    ("triple", "machine", "present"),
    [
        (None, "x86_64", True),
        ("x86_64-linux-gnu", "x86_64", True),
        ("x86_64-unknown-linux-gnu", "AMD64", True),
        ("aarch64-linux-gnu", "x86_64", False),
        ("aarch64-linux-gnu", "arm64", True),
        ("x86_64-linux-gnu", "aarch64", False),
    ],
)
def test_code_for_another_architecture_is_not_run_here(
    monkeypatch: pytest.MonkeyPatch, triple: str | None, machine: str, present: bool
) -> None:
    monkeypatch.setattr(local_device.platform, "machine", lambda: machine)
    target = Target(LLVM if triple is None else {**LLVM, "mtriple": triple})
    assert device_present(target) is present


@pytest.mark.parametrize(
    ("own", "mcpu", "present"),
    [
        ("cpu-avx2", "sapphirerapids", False),
        ("cpu-avx2", "x86-64-v4", False),
        ("cpu-avx2", "x86-64-v3", True),
        ("cpu-sse", "haswell", False),
        ("cpu-avx512", "znver4", True),
    ],
)
def test_code_for_wider_registers_than_there_are_is_not_run_here(
    monkeypatch: pytest.MonkeyPatch, own: str, mcpu: str, present: bool
) -> None:
    monkeypatch.setattr(local_device.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(local_device, "host_cpu", lambda: hardware_named(own))
    target = Target({**LLVM, "mcpu": mcpu})
    assert device_present(target) is present
    if not present:
        with pytest.raises(TargetError, match="no program for the target llvm runs on this mach"):
            local_device.require_device(target)


def test_a_processor_that_says_nothing_of_itself_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> None:
        raise TargetError("nothing is known")

    monkeypatch.setattr(local_device, "host_cpu", unknown)
    assert device_present(Target({**LLVM, "mcpu": "x86-64-v4"}))


def test_a_device_needs_a_host_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        """A CUDA target whose host is an ARM board."""

        kind = SimpleNamespace(name="cuda")

        def export(self) -> dict[str, Any]:
            return {"kind": "cuda", "host": {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}}

    monkeypatch.setattr(local_device.relax_paths, "device_present", lambda target: True)
    for machine, present in (("x86_64", False), ("aarch64", True)):
        monkeypatch.setattr(local_device.platform, "machine", lambda machine=machine: machine)
        assert device_present(Cuda()) is present


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("i686-pc-linux-gnu", "i386"),
        ("armv7l", "arm"),
        ("armv7a-linux-gnueabihf", "arm"),
        ("arm64-apple-darwin", "aarch64"),
        ("riscv64-linux-gnu", "riscv64"),
    ],
)
def test_an_architecture_has_one_name(text: str, name: str) -> None:
    assert architecture(text) == name
