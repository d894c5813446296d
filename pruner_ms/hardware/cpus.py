"""CPU rows, made of a table of vector extensions and of typical caches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pruner_ms.dtypes import bytes_of
from pruner_ms.hardware.spec import Cache, CpuCore, HardwareSpec, Peak

VECTOR_DTYPES: Mapping[str, int] = MappingProxyType(
    {d: bytes_of(d) for d in ("float64", "float32", "int32", "int64", "int16", "int8")}
)
"""Types that vector lanes multiply and add natively, with their bytes."""


@dataclass(frozen=True)
class Isa:
    """A vector extension: width and number of its registers, and the flags that prove it.

    Attributes
    ----------
    flags
        Names in /proc/cpuinfo that must all be there.
    mattr
        Name of the LLVM feature that switches it on.
    mcpu
        Pattern of LLVM's CPU names that have it.
    family
        "x86" or "arm".
    fma_ports, fma_latency, load_ports, store_ports
        Typical of cores that have it.
    """

    name: str
    family: str
    vector_bytes: int
    vector_registers: int
    flags: tuple[str, ...]
    mattr: str
    mcpu: str
    fma_ports: float = 2
    fma_latency: float = 4
    load_ports: float = 2
    store_ports: float = 1


ISAS = (
    Isa(
        "avx512-bf16",
        "x86",
        64,
        32,
        ("avx512f", "avx512_bf16"),
        "avx512bf16",
        r"cooperlake|sapphirerapids|emeraldrapids|graniterapids.*|diamondrapids|znver[4-9]",
    ),
    Isa(
        "avx512",
        "x86",
        64,
        32,
        ("avx512f", "avx512vl"),
        "avx512f",
        r"x86-64-v4|skylake-avx512|skx|cascadelake|cannonlake|icelake.*|tigerlake|rocketlake|knl|knm",
    ),
    Isa(
        "avx2",
        "x86",
        32,
        16,
        ("avx2", "fma"),
        "avx2",
        r"x86-64-v3|haswell|core-avx2|broadwell|skylake|.*lake(-s)?|sierraforest|clearwaterforest"
        r"|grandridge|gracemont"
        r"|znver[1-3]|bdver4",
        fma_latency=4.5,
    ),
    Isa("sse", "x86", 16, 16, ("sse2",), "sse2", r".*"),
    Isa("neon", "arm", 16, 32, ("asimd",), "neon", r".*"),
)
"""Widest first within a family; a name that no pattern knows is taken as the narrowest."""

ARM_NAMES = r"cortex-.*|neoverse-.*|apple-.*|arm.*|a64fx|thunderx.*|exynos.*|kryo|ampere.*|carmel"


def in_halves(isa: Isa) -> Isa:
    """A vector extension on a core that works on its registers in halves, as Zen 4 on 512 bits."""
    return replace(isa, fma_ports=1, load_ports=1, store_ports=0.5)


def isa_of_target(mcpu: str, mattr: tuple[str, ...], triple: str) -> Isa:
    """The widest vector extension that LLVM may use for a target.

    Parameters
    ----------
    mcpu, mattr, triple
        As in a TVM target: CPU name, features ("+avx2"), target triple; each may be empty.
    """
    arm = re.match(r"(aarch64|arm)", triple) or re.fullmatch(ARM_NAMES, mcpu)
    family = [isa for isa in ISAS if isa.family == ("arm" if arm else "x86")]
    named = False
    for isa in family:
        # a CPU that has a wider extension has the narrower ones, too
        named = named or (isa.mcpu != ".*" and re.fullmatch(isa.mcpu, mcpu) is not None)
        off = {f"-{isa.mattr}", *(["-avx512f"] if isa.vector_bytes == 64 else [])}
        if (named and off.isdisjoint(mattr)) or f"+{isa.mattr}" in mattr:
            return isa
    return family[-1]


def is_foreign(triple: str) -> bool:
    """Whether a target triple names a family of CPUs that has no row."""
    return bool(triple) and re.match(r"aarch64|arm|thumb|x86|i\d86|amd64", triple) is None


def isa_of_flags(flags: frozenset[str]) -> Isa | None:
    """The widest vector extension that a CPU's flags prove; None when they prove none."""
    return next((isa for isa in ISAS if flags.issuperset(isa.flags)), None)


def cpu_spec(
    name: str,
    isa: Isa,
    cores: int,
    clock: float,
    caches: tuple[Cache, ...],
    memory_bandwidth: float,
    source: str,
) -> HardwareSpec:
    """A CPU row; its peaks follow from clock, ports, lanes and cores."""
    per_core = 2 * isa.fma_ports * isa.vector_bytes * clock
    peaks = tuple(Peak("vector", d, cores * per_core / size) for d, size in VECTOR_DTYPES.items())
    if isa.name == "avx512-bf16":
        peaks += (Peak("tensor", "bfloat16", cores * per_core / 2),)
    core = CpuCore(
        isa=isa.name,
        vector_bytes=isa.vector_bytes,
        vector_registers=isa.vector_registers,
        fma_ports=isa.fma_ports,
        fma_latency=isa.fma_latency,
        load_ports=isa.load_ports,
        store_ports=isa.store_ports,
        issue=5,
        caches=caches,
        memory_bandwidth=min(memory_bandwidth, 14e9),
    )
    return HardwareSpec(
        name, "cpu", cores, clock, memory_bandwidth, peaks, source, cpu=core, aliases=(isa.name,)
    )


LINE_CYCLES = {1: 1.0, 2: 5.0, 3: 15.0, 4: 30.0}
"""`Cache.line_cycles` by level, as measured on Zen 5 with colliding rows."""

KIB, MIB = 1024, 1024 * 1024


def caches_of(l1: int, l2: int, l3: int, ways: int, vector_bytes: int) -> tuple[Cache, ...]:
    """Three levels with typical bandwidths: two vector loads, half a line, a quarter of one."""
    levels = (
        Cache(l1, 2.0 * vector_bytes, ways),
        Cache(l2, 32.0, 8, line_cycles=LINE_CYCLES[2]),
        Cache(l3, 14.0, 16, shared=True, line_cycles=LINE_CYCLES[3]),
    )
    return tuple(c for c in levels if c.size > 0)


_BY_NAME = {isa.name: isa for isa in ISAS}
_MANUAL = "caches, ports and latencies as in Intel's and AMD's optimisation manuals"
_NEON = "Arm Neoverse N1 software optimisation guide: 2 x 128 bit FMA, latency 4; 64 KiB L1"

GENERIC: tuple[HardwareSpec, ...] = tuple(
    cpu_spec(f"cpu-{name}", _BY_NAME[name], 8, clock, caches, 40e9, source)
    for name, clock, caches, source in (
        (
            "avx512-bf16",
            2.8e9,
            caches_of(48 * KIB, 2 * MIB, 32 * MIB, 12, 64),
            f"Sapphire Rapids / Zen 4 class: {_MANUAL}",
        ),
        (
            "avx512",
            2.6e9,
            caches_of(32 * KIB, MIB, 24 * MIB, 8, 64),
            f"Skylake-SP class: {_MANUAL}",
        ),
        (
            "avx2",
            3.0e9,
            caches_of(32 * KIB, 512 * KIB, 16 * MIB, 8, 32),
            f"Haswell to Zen 3 class: {_MANUAL}",
        ),
        (
            "sse",
            2.5e9,
            caches_of(32 * KIB, 256 * KIB, 8 * MIB, 8, 16),
            f"x86-64 and x86-64-v2: {_MANUAL}",
        ),
        ("neon", 2.6e9, caches_of(64 * KIB, MIB, 32 * MIB, 4, 16), _NEON),
    )
)
"""Rows for targets that are not this machine; the number of cores comes from the target."""
