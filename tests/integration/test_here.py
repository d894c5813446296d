"""Whether a target's programs run on this machine: its device, and its processor's architecture."""

from __future__ import annotations

from typing import Any

import pytest

from pruner_ms.integration import here
from pruner_ms.integration.here import architecture, device_present
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
    monkeypatch.setattr(here.platform, "machine", lambda: machine)
    target = Target(LLVM if triple is None else {**LLVM, "mtriple": triple})
    assert device_present(target) is present


def test_a_device_needs_a_host_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        """A CUDA target whose host is an ARM board."""

        def export(self) -> dict[str, Any]:
            return {"kind": "cuda", "host": {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}}

    monkeypatch.setattr(here.relax_paths, "device_present", lambda target: True)
    for machine, present in (("x86_64", False), ("aarch64", True)):
        monkeypatch.setattr(here.platform, "machine", lambda machine=machine: machine)
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
