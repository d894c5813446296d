"""The name of this machine's GPU, and the row that it stands for."""

from __future__ import annotations

import subprocess

import pytest

from pruner_ms.hardware import hardware_for, lookup, nvidia
from pruner_ms.hardware.lookup import row_of_device

H200 = "NVIDIA H200, 550.54.15"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
    ],
)
def test_a_drivers_name_is_a_rows(said, name):
    row = row_of_device(said)
    assert row is not None and row.name == name


@pytest.mark.parametrize("said", ["", "NVIDIA", "NVIDIA RTX A6000"])
def test_a_gpu_that_no_row_knows_has_none(said):
    assert row_of_device(said) is None


FROM_DEVICE = {"kind": "cuda", "arch": "sm_90", "max_shared_memory_per_block": 49152}


@pytest.mark.parametrize(
    ("attrs", "options", "name"),
    [
        (FROM_DEVICE, {"measure": True}, "h200"),
        ({**FROM_DEVICE, "arch": "sm_90a"}, {"measure": True}, "h200"),
        # another machine may be meant
        (FROM_DEVICE, {}, "h100"),
        (FROM_DEVICE, {"measure": True, "use_host": False}, "h100"),
        ({**FROM_DEVICE, "arch": "sm_80"}, {"measure": True}, "a100-80"),
        ({**FROM_DEVICE, "tag": "nvidia/nvidia-h100"}, {"measure": True}, "h100"),
        ({**FROM_DEVICE, "device_name": "h100"}, {"measure": True}, "h100"),
    ],
)
def test_a_tuning_takes_the_row_of_the_gpu_that_is_there(attrs, options, name, monkeypatch):
    monkeypatch.setattr(lookup, "gpu_name", lambda: "NVIDIA H200")
    assert hardware_for(attrs, **options).name == name


@pytest.mark.parametrize(
    ("code", "printed", "said", "name"),
    [
        (0, f"{H200}\nNVIDIA L4, 550.54.15\n", H200, "NVIDIA H200"),
        (0, "", "", ""),
        # what nvidia-smi prints where there is no driver
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the driver.\n", "", ""),
    ],
)
def test_the_first_gpu_says_its_model_and_driver(code, printed, said, name, monkeypatch):
    asked = []

    def run(command, _):
        asked.append(command[0])
        return subprocess.CompletedProcess(command, code, printed, "")

    monkeypatch.setattr(nvidia, "run", run)
    nvidia.gpu_said.cache_clear()
    try:
        assert (nvidia.gpu_said(), nvidia.gpu_name()) == (said, name)
        assert asked == ["nvidia-smi"], "asked once a process"
    finally:
        nvidia.gpu_said.cache_clear()


def test_without_nvidia_smi_there_is_no_name(monkeypatch):
    def run(command, _):
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(nvidia, "run", run)
    nvidia.gpu_said.cache_clear()
    try:
        assert nvidia.gpu_said() == ""
    finally:
        nvidia.gpu_said.cache_clear()
