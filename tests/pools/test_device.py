"""What the target of a detected GPU says, without one."""

from __future__ import annotations

import pytest

from pruner_ms.pools import record
from pruner_ms.tensorcore.targets import SHARED
from pruner_ms.tvm_compat.paths import Target
from pruner_ms.tvm_compat.targets import attrs_of

FOUND = {
    # as `Target.from_device` gives it
    "kind": "cuda",
    "max_shared_memory_per_block": 49152,
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
}


@pytest.mark.parametrize(
    ("arch", "tensorcore", "kib"),
    [
        ("sm_80", True, 163),
        ("sm_90", True, 227),
        ("sm_90", False, 48),
        # nobody knows what a block of it can ask for
        ("sm_61", True, 48),
    ],
)
def test_a_block_gets_what_it_can_ask_for_where_shared_memory_is_dynamic(
    arch: str, tensorcore: bool, kib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    monkeypatch.setattr(record, "parse_target", lambda _text: Target({**FOUND, "arch": arch}))
    monkeypatch.setattr(record, "gpu_said", lambda: "NVIDIA H200, 550.54")
    device = record.device("cuda", tensorcore, None, 2)
    attrs = attrs_of(device.target)
    assert attrs[SHARED] == kib * 1024
    assert (attrs["arch"], attrs["max_threads_per_block"]) == (arch, 1024)
    assert (device.platform, device.machine) == ("cuda", {"gpu": "NVIDIA H200, 550.54", "cores": 2})
