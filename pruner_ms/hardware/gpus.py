"""GPU rows: figures of data sheets and white papers, latencies and L2 rates as measured by others.

Peaks are dense (without sparsity), at boost clock, accumulated in float32 where there is a choice.
"""

from __future__ import annotations

from pruner_ms.hardware.spec import GpuSm, HardwareSpec, Peak

KIB, MIB = 1024, 1024 * 1024

_LATENCY = "latencies: Jia et al. 2018/2019 (Volta, Turing), Luo et al. 2024 (Ampere to Hopper)"


def peaks(vector: dict[str, float], tensor: dict[str, float]) -> tuple[Peak, ...]:
    """Rows of `Peak` out of two tables in TFLOP/s (TOP/s for integers)."""
    return tuple(
        Peak(unit, dtype, tera * 1e12)
        for unit, table in (("vector", vector), ("tensor", tensor))
        for dtype, tera in table.items()
    )


def _ampere(arch: str, l2: int, l2_bandwidth: float, **changed: int) -> GpuSm:
    figures = {
        "registers": 65536,
        "max_threads": 2048,
        "max_blocks": 32,
        "shared": 164 * KIB,
        "shared_per_block": 163 * KIB,
    } | changed
    return GpuSm(
        arch=arch,
        l2=l2,
        l2_bandwidth=l2_bandwidth,
        fma_latency=4,
        shared_latency=29,
        l2_latency=262,
        memory_latency=466,
        **figures,
    )


_ADA = {"max_threads": 1536, "max_blocks": 24, "shared": 100 * KIB, "shared_per_block": 99 * KIB}
_GA10X = {**_ADA, "max_blocks": 16}
_HOPPER = {"shared": 228 * KIB, "shared_per_block": 227 * KIB}

_K80 = GpuSm("sm_37", 131072, 2048, 16, 112 * KIB, 48 * KIB, 1536 * KIB, 0.28e12, 9, 48, 222, 340)
_VOLTA = GpuSm("sm_70", 65536, 2048, 32, 96 * KIB, 96 * KIB, 6 * MIB, 2.16e12, 4, 19, 193, 375)
_TITANV = GpuSm("sm_70", 65536, 2048, 32, 96 * KIB, 96 * KIB, 4608 * KIB, 2.05e12, 4, 19, 193, 375)
_TURING = GpuSm("sm_75", 65536, 1024, 16, 64 * KIB, 64 * KIB, 4 * MIB, 1.27e12, 4, 19, 188, 400)

_A100 = peaks(
    {"float32": 19.5, "float64": 9.7, "float16": 78, "bfloat16": 39, "int32": 9.75, "int8": 78},
    {"float16": 312, "bfloat16": 312, "float32": 156, "float64": 19.5, "int8": 624},
)
_H100 = peaks(
    {"float32": 66.9, "float64": 33.5, "float16": 133.8, "bfloat16": 133.8, "int32": 33.5},
    {"float16": 989, "bfloat16": 989, "float32": 494, "float64": 66.9, "int8": 1979},
)


def _gpu(
    name: str,
    sms: int,
    mhz: float,
    gigabytes: float,
    rows: tuple[Peak, ...],
    sm: GpuSm,
    source: str,
    *aliases: str,
) -> HardwareSpec:
    text = f"{source}; {_LATENCY}"
    return HardwareSpec(
        name, "gpu", sms, mhz * 1e6, gigabytes * 1e9, rows, text, gpu=sm, aliases=aliases
    )


GPUS: tuple[HardwareSpec, ...] = (
    _gpu(
        "k80",
        13,
        875,
        240,
        peaks({"float32": 4.37, "float64": 1.46, "int32": 0.73}, {}),
        _K80,
        "Tesla K80 board specification, one of its two GK210",
        "nvidia/tesla-k80",
    ),
    _gpu(
        "v100",
        80,
        1530,
        900,
        peaks(
            {"float32": 15.7, "float64": 7.8, "float16": 31.4, "int32": 15.7, "int8": 62.8},
            {"float16": 125},
        ),
        _VOLTA,
        "Tesla V100 data sheet (SXM2) and Volta white paper",
        "nvidia/nvidia-v100",
        "tesla-v100",
    ),
    _gpu(
        "titanv",
        80,
        1455,
        653,
        peaks(
            {"float32": 14.9, "float64": 7.45, "float16": 29.8, "int32": 14.9, "int8": 59.6},
            {"float16": 110},
        ),
        _TITANV,
        "NVIDIA TITAN V product page and Volta white paper",
        "nvidia/nvidia-titan-v",
        "titan-v",
    ),
    _gpu(
        "t4",
        40,
        1590,
        320,
        peaks(
            {"float32": 8.1, "float64": 0.254, "float16": 16.2, "int32": 8.1, "int8": 32.5},
            {"float16": 65, "int8": 130},
        ),
        _TURING,
        "Tesla T4 data sheet and Turing white paper",
        "nvidia/nvidia-t4",
        "tesla-t4",
    ),
    _gpu(
        "a100-80",
        108,
        1410,
        1935,
        _A100,
        _ampere("sm_80", 40 * MIB, 4.5e12),
        "A100 80GB PCIe data sheet and Ampere white paper",
        "a100",
        "nvidia/nvidia-a100",
    ),
    _gpu(
        "a100-40",
        108,
        1410,
        1555,
        _A100,
        _ampere("sm_80", 40 * MIB, 4.5e12),
        "A100 40GB data sheet and Ampere white paper",
    ),
    _gpu(
        "rtx3090",
        82,
        1695,
        936,
        peaks(
            {"float32": 35.6, "float64": 0.556, "float16": 35.6, "int32": 17.8, "int8": 71},
            {"float16": 71, "bfloat16": 71, "float32": 35.6, "int8": 284},
        ),
        _ampere("sm_86", 6 * MIB, 2.0e12, **_GA10X),
        "GA102 white paper; L2 rate is an estimate",
        "nvidia/geforce-rtx-3090",
    ),
    _gpu(
        "orin",
        16,
        1300,
        204.8,
        peaks(
            {"float32": 5.3, "float64": 0.083, "float16": 10.6, "int32": 2.66, "int8": 21},
            {"float16": 42.5, "bfloat16": 42.5, "float32": 21.2, "int8": 85},
        ),
        _ampere("sm_87", 4 * MIB, 0.66e12, max_threads=1536, max_blocks=16),
        "Jetson AGX Orin technical brief (64 GB, 2048 cores); L2 rate is an estimate",
        "nvidia/jetson-agx-orin-64gb",
        "nvidia/jetson-agx-orin-32gb",
        "jetson-agx-orin",
    ),
    _gpu(
        "rtx4090",
        128,
        2520,
        1008,
        peaks(
            {"float32": 82.6, "float64": 1.29, "float16": 82.6, "int32": 41.3, "int8": 165},
            {"float16": 165, "bfloat16": 165, "float32": 82.6, "int8": 660},
        ),
        _ampere("sm_89", 72 * MIB, 5.0e12, **_ADA),
        "Ada white paper (AD102); L2 rate is an estimate",
        "nvidia/geforce-rtx-4090",
    ),
    _gpu(
        "l4",
        58,
        2040,
        300,
        peaks(
            {"float32": 30.3, "float64": 0.47, "float16": 30.3, "int32": 15.1, "int8": 60},
            {"float16": 121, "bfloat16": 121, "float32": 60, "int8": 242},
        ),
        _ampere("sm_89", 48 * MIB, 1.8e12, **_ADA),
        "L4 data sheet and Ada white paper; L2 rate is an estimate",
        "nvidia/nvidia-l4",
    ),
    _gpu(
        "h100",
        132,
        1980,
        3352,
        _H100,
        _ampere("sm_90", 50 * MIB, 5.7e12, **_HOPPER),
        "H100 SXM data sheet and Hopper white paper",
        "nvidia/nvidia-h100",
    ),
    _gpu(
        "h200",
        132,
        1980,
        4800,
        _H100,
        _ampere("sm_90", 50 * MIB, 5.7e12, **_HOPPER),
        "H200 SXM data sheet and Hopper white paper",
        "nvidia/nvidia-h200",
    ),
)
"""Where several rows share an architecture, the first stands for a target that names only that."""
