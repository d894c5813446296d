"""Device rows: what the draft knows of a CPU or GPU, and which row stands for a target."""

from __future__ import annotations

from pruner_ms.hardware.cpus import GENERIC
from pruner_ms.hardware.detect import detect_cpu, host_cpu, physical_cores
from pruner_ms.hardware.gpus import GPUS
from pruner_ms.hardware.host import calibrated_host, calibration_file
from pruner_ms.hardware.lookup import hardware_for, hardware_named, row_names
from pruner_ms.hardware.spec import Cache, CpuCore, GpuSm, HardwareSpec, Peak

__all__ = [
    "GENERIC",
    "GPUS",
    "Cache",
    "CpuCore",
    "GpuSm",
    "HardwareSpec",
    "Peak",
    "calibrated_host",
    "calibration_file",
    "detect_cpu",
    "hardware_for",
    "hardware_named",
    "host_cpu",
    "physical_cores",
    "row_names",
]
