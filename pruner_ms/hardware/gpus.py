"""GPU rows: what a data sheet, the CUDA programming guide and microbenchmarks say of each.

Peaks are dense (without sparsity), at boost clock, with float32 accumulation where nothing else is
said; an integer multiply-add counts as two operations. Where several rows share an
architecture, the first stands for a target that names the architecture only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pruner_ms.hardware.spec import GpuSm, HardwareSpec, Peak

KIB, MIB = 1024, 1024 * 1024

_LIMITS = 'CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"'
_LANES = 'the same guide, "Throughput of Native Arithmetic Instructions"'
_KEPLER = "Mei and Chu 2017, arXiv:1509.02308 (Kepler)"
_VOLTA = "Jia et al. 2018, arXiv:1804.06826 (Volta)"
_TURING = "Jia et al. 2019, arXiv:1903.07486 (Turing)"
_AMPERE = "Luo et al. 2024, arXiv:2402.13499 (A100, RTX 4090, H100)"


@dataclass(frozen=True)
class Arch:
    """What all GPUs of a compute capability share; see `GpuSm` for the figures.

    Attributes
    ----------
    latency
        Cycles of a multiply-add, of shared memory, the L2 cache and memory.
    measured
        Who measured them.
    """

    name: str
    lanes: int
    registers: int
    max_threads: int
    max_blocks: int
    shared_kib: int
    block_kib: int
    latency: tuple[float, float, float, float]
    measured: str


ARCHS: Mapping[str, Arch] = {
    arch.name: arch
    for arch in (
        Arch(
            name="sm_37",
            lanes=192,
            registers=131072,
            max_threads=2048,
            max_blocks=16,
            shared_kib=112,
            block_kib=48,
            latency=(9, 48, 222, 340),
            measured=_KEPLER,
        ),
        Arch(
            name="sm_70",
            lanes=64,
            registers=65536,
            max_threads=2048,
            max_blocks=32,
            shared_kib=96,
            block_kib=96,
            latency=(4, 19, 193, 375),
            measured=_VOLTA,
        ),
        Arch(
            name="sm_75",
            lanes=64,
            registers=65536,
            max_threads=1024,
            max_blocks=16,
            shared_kib=64,
            block_kib=64,
            latency=(4, 19, 188, 400),
            measured=_TURING,
        ),
        Arch(
            name="sm_80",
            lanes=64,
            registers=65536,
            max_threads=2048,
            max_blocks=32,
            shared_kib=164,
            block_kib=163,
            latency=(4, 29, 262, 466),
            measured=_AMPERE,
        ),
        Arch(
            name="sm_86",
            lanes=128,
            registers=65536,
            max_threads=1536,
            max_blocks=16,
            shared_kib=100,
            block_kib=99,
            latency=(4, 29, 262, 466),
            measured=f"as sm_80: {_AMPERE}",
        ),
        Arch(
            name="sm_87",
            lanes=128,
            registers=65536,
            max_threads=1536,
            max_blocks=16,
            shared_kib=164,
            block_kib=163,
            latency=(4, 29, 262, 466),
            measured=f"as sm_80: {_AMPERE}",
        ),
        Arch(
            name="sm_89",
            lanes=128,
            registers=65536,
            max_threads=1536,
            max_blocks=24,
            shared_kib=100,
            block_kib=99,
            latency=(4, 30, 273, 541),
            measured=_AMPERE,
        ),
        Arch(
            name="sm_90",
            lanes=128,
            registers=65536,
            max_threads=2048,
            max_blocks=32,
            shared_kib=228,
            block_kib=227,
            latency=(4, 29, 263, 479),
            measured=_AMPERE,
        ),
        # assumed: the latencies, which are those of the architecture that each is most like
        Arch(
            name="sm_100",
            lanes=128,
            registers=65536,
            max_threads=2048,
            max_blocks=32,
            shared_kib=228,
            block_kib=227,
            latency=(4, 29, 263, 479),
            measured=f"as sm_90: {_AMPERE}",
        ),
        Arch(
            name="sm_120",
            lanes=128,
            registers=65536,
            max_threads=1536,
            max_blocks=24,
            shared_kib=100,
            block_kib=99,
            latency=(4, 30, 273, 541),
            measured=f"as sm_89: {_AMPERE}",
        ),
    )
}
"""Limits by compute capability. Those of sm_100 and sm_120 are in CUDA's own headers, too (CCCL,
`cuda/__device/arch_traits.h`)."""


def peaks(
    vector: Mapping[str, float], tensor: Mapping[str, float], half_sums: float | None = None
) -> tuple[Peak, ...]:
    """Rows of `Peak` out of two tables in TFLOP/s (TOP/s for integers).

    Parameters
    ----------
    half_sums
        Peak of the tensor cores on float16 with float16 accumulators, if it is a different one.
    """
    rows = [
        Peak(unit, dtype, tera * 1e12)
        for unit, table in (("vector", vector), ("tensor", tensor))
        for dtype, tera in table.items()
    ]
    if half_sums is not None:
        rows.append(Peak("tensor", "float16", half_sums * 1e12, "float16"))
    return tuple(rows)


def sm_of(arch: Arch, l2: int, l2_bandwidth: float) -> GpuSm:
    """An SM of an architecture, with a device's L2 cache: bytes, and bytes/s out of it."""
    fma, shared, cache, memory = arch.latency
    return GpuSm(
        arch=arch.name,
        lanes=arch.lanes,
        registers=arch.registers,
        max_threads=arch.max_threads,
        max_blocks=arch.max_blocks,
        shared=arch.shared_kib * KIB,
        shared_per_block=arch.block_kib * KIB,
        l2=l2,
        l2_bandwidth=l2_bandwidth,
        fma_latency=fma,
        shared_latency=shared,
        l2_latency=cache,
        memory_latency=memory,
    )


def _gpu(
    *,
    name: str,
    arch: str,
    sms: int,
    mhz: float,
    gigabytes: float,
    l2: tuple[int, float, str],
    rows: tuple[Peak, ...],
    source: str,
    aliases: tuple[str, ...] = (),
) -> HardwareSpec:
    """A row; `l2` is bytes of the L2 cache, TB/s out of it, and who says so."""
    shared = ARCHS[arch]
    size, rate, rate_from = l2
    sm = sm_of(shared, size, rate * 1e12)
    text = (
        f"SMs, clock, peaks, memory, L2 size: {source}; SM limits: {_LIMITS}, {arch[3:]}; "
        f"lanes: {_LANES}; L2 rate: {rate_from}; latencies: {shared.measured}"
    )
    return HardwareSpec(
        name, "gpu", sms, mhz * 1e6, gigabytes * 1e9, rows, text, gpu=sm, aliases=aliases
    )


_A100 = peaks(
    {"float32": 19.5, "float64": 9.7, "float16": 78, "bfloat16": 39, "int32": 19.5, "int8": 78},
    {"float16": 312, "bfloat16": 312, "float32": 156, "float64": 19.5, "int8": 624},
)
_TWO_THIRDS = "estimate, two thirds of the 5,120 bytes per cycle of the A100 white paper"
_A100_L2 = (40 * MIB, 4.5, _TWO_THIRDS)
_H100 = peaks(
    {"float32": 66.9, "float64": 33.5, "float16": 133.8, "bfloat16": 133.8, "int32": 33.5},
    {"float16": 989, "bfloat16": 989, "float32": 494, "float64": 66.9, "int8": 1979},
)
_H100_L2 = (50 * MIB, 8.0, "a product of 1024 that draws 71 MB took 9.8 us on an H100")
_ESTIMATE = "estimate, bytes per cycle and SM as on the nearest GPU that was measured"

GPUS: tuple[HardwareSpec, ...] = (
    _gpu(
        name="k80",
        arch="sm_37",
        sms=13,
        mhz=875,
        gigabytes=240,
        l2=(1536 * KIB, 0.28, _ESTIMATE),
        rows=peaks({"float32": 4.37, "float64": 1.46, "int32": 0.73}, {}),
        source="Tesla K80 board specification BD-07317, one of its two GK210",
        aliases=("nvidia/tesla-k80",),
    ),
    _gpu(
        name="v100",
        arch="sm_70",
        sms=80,
        mhz=1530,
        gigabytes=900,
        l2=(6 * MIB, 2.16, _VOLTA),
        rows=peaks(
            {"float32": 15.7, "float64": 7.8, "float16": 31.4, "int32": 15.7, "int8": 62.8},
            {"float16": 125},
        ),
        source="Tesla V100 data sheet (SXM2) and Volta white paper WP-08608",
        aliases=(
            "nvidia/nvidia-v100",
            "tesla-v100",
        ),
    ),
    _gpu(
        name="titanv",
        arch="sm_70",
        sms=80,
        mhz=1455,
        gigabytes=653,
        l2=(4608 * KIB, 2.05, f"{_VOLTA}, by clock"),
        rows=peaks(
            {"float32": 14.9, "float64": 7.45, "float16": 29.8, "int32": 14.9, "int8": 59.6},
            {"float16": 110},
        ),
        source="NVIDIA TITAN V product page and Volta white paper WP-08608",
        aliases=(
            "nvidia/nvidia-titan-v",
            "titan-v",
        ),
    ),
    _gpu(
        name="t4",
        arch="sm_75",
        sms=40,
        mhz=1590,
        gigabytes=320,
        l2=(4 * MIB, 1.27, _TURING),
        rows=peaks(
            {"float32": 8.1, "float64": 0.254, "float16": 16.2, "int32": 8.1, "int8": 32.5},
            {"float16": 65, "int8": 130},
        ),
        source="Tesla T4 data sheet and Turing white paper WP-09183",
        aliases=(
            "nvidia/nvidia-t4",
            "tesla-t4",
        ),
    ),
    _gpu(
        name="a100-80",
        arch="sm_80",
        sms=108,
        mhz=1410,
        gigabytes=1935,
        l2=_A100_L2,
        rows=_A100,
        source="A100 80GB PCIe data sheet and A100 white paper",
        aliases=(
            "a100",
            "nvidia/nvidia-a100",
        ),
    ),
    _gpu(
        name="a100-40",
        arch="sm_80",
        sms=108,
        mhz=1410,
        gigabytes=1555,
        l2=_A100_L2,
        rows=_A100,
        source="A100 40GB data sheet and A100 white paper",
    ),
    _gpu(
        name="rtx3090",
        arch="sm_86",
        sms=82,
        mhz=1695,
        gigabytes=936,
        l2=(6 * MIB, 2.0, _ESTIMATE),
        rows=peaks(
            {"float32": 35.6, "float64": 0.556, "float16": 35.6, "int32": 17.8, "int8": 71},
            {"float16": 71, "bfloat16": 71, "float32": 35.6, "int8": 284},
            half_sums=142,
        ),
        source="Ampere GA102 white paper",
        aliases=("nvidia/geforce-rtx-3090",),
    ),
    _gpu(
        name="orin",
        arch="sm_87",
        sms=16,
        mhz=1300,
        gigabytes=204.8,
        l2=(4 * MIB, 0.66, _ESTIMATE),
        rows=peaks(
            {"float32": 5.3, "float64": 0.083, "float16": 10.6, "int32": 2.66, "int8": 21},
            {"float16": 42.5, "bfloat16": 42.5, "float32": 21.2, "int8": 85},
        ),
        source="Jetson AGX Orin technical brief (64 GB, 2048 cores)",
        aliases=(
            "nvidia/jetson-agx-orin-64gb",
            "nvidia/jetson-agx-orin-32gb",
            "jetson-agx-orin",
        ),
    ),
    _gpu(
        name="rtx4090",
        arch="sm_89",
        sms=128,
        mhz=2520,
        gigabytes=1008,
        l2=(72 * MIB, 5.0, _ESTIMATE),
        rows=peaks(
            {"float32": 82.6, "float64": 1.29, "float16": 82.6, "int32": 41.3, "int8": 165},
            {"float16": 165, "bfloat16": 165, "float32": 82.6, "int8": 660},
            half_sums=330,
        ),
        source="Ada white paper (AD102)",
        aliases=("nvidia/geforce-rtx-4090",),
    ),
    _gpu(
        name="l4",
        arch="sm_89",
        sms=58,
        mhz=2040,
        gigabytes=300,
        l2=(48 * MIB, 1.8, _ESTIMATE),
        rows=peaks(
            {"float32": 30.3, "float64": 0.47, "float16": 30.3, "int32": 15.1, "int8": 60},
            {"float16": 121, "bfloat16": 121, "float32": 60, "int8": 242},
        ),
        source="L4 data sheet and Ada white paper",
        aliases=("nvidia/nvidia-l4",),
    ),
    _gpu(
        name="h100",
        arch="sm_90",
        sms=132,
        mhz=1980,
        gigabytes=3352,
        l2=_H100_L2,
        rows=_H100,
        source="H100 SXM data sheet and Hopper white paper",
        aliases=("nvidia/nvidia-h100",),
    ),
    _gpu(
        name="h200",
        arch="sm_90",
        sms=132,
        mhz=1980,
        gigabytes=4800,
        l2=_H100_L2,
        rows=_H100,
        source="H200 SXM data sheet and Hopper white paper",
        aliases=("nvidia/nvidia-h200",),
    ),
    _gpu(
        name="rtx5090",
        arch="sm_120",
        sms=170,
        mhz=2407,
        gigabytes=1792,
        l2=(96 * MIB, 6.3, _ESTIMATE),
        rows=peaks(
            {
                "float32": 104.8,
                "float64": 1.64,
                "float16": 104.8,
                "bfloat16": 104.8,
                "int32": 104.8,
            },
            {"float16": 209.5, "bfloat16": 209.5, "float32": 104.8, "int8": 838},
            half_sums=419,
        ),
        source="RTX Blackwell white paper (GB202)",
        aliases=("nvidia/geforce-rtx-5090",),
    ),
)
"""The rows."""
