"""The CPU of this machine, read from /proc and /sys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from pruner_ms.errors import TargetError
from pruner_ms.hardware.cpus import (
    LINE_CYCLES,
    Isa,
    caches_of,
    cpu_spec,
    in_halves,
    isa_of_flags,
)
from pruner_ms.hardware.spec import Cache, HardwareSpec

_DEFAULT_CLOCK = 2.5e9
_BYTES_PER_CYCLE = {1: 0.0, 2: 32.0, 3: 14.0, 4: 10.0}
"""Of one core, by level; L1 follows from two vector loads."""

_MEMORY_PER_CORE, _MEMORY_MAX = 14e9, 80e9
"""Bytes/s: what one core draws, and all of them, on present servers and desktops."""

GATHER_LOADS = {"GenuineIntel": 1.0, "AuthenticAMD": 4.5}
"""`CpuCore.gather_loads` by maker: sums of squares of 64 contiguous elements each, eight at a time,
took 0.43 cycles an element on Sapphire Rapids and 2.2 on Zen 5."""


ZEN_4 = 25
"""AMD's family of Zen 3 and Zen 4; the latter alone has AVX-512, and runs it in halves: it adds up,
loads and stores half as much in a cycle as wide registers suggest."""


@lru_cache(maxsize=1)
def host_cpu() -> HardwareSpec:
    """`detect_cpu()` of this machine, read once."""
    return detect_cpu()


def detect_cpu(root: Path = Path("/"), cores: int | None = None) -> HardwareSpec:
    """Read the host's CPU.

    Parameters
    ----------
    root
        Where `proc` and `sys` are; another folder in tests.
    cores
        Cores to count with; by default the physical ones that this process may use.

    Raises
    ------
    TargetError
        The flags name no vector extension of the table.
    """
    info = _cpuinfo(root)
    flags = frozenset((info.get("flags") or info.get("Features") or "").split())
    isa = isa_of_flags(flags)
    if isa is None:
        raise TargetError(
            "this CPU's vector extension could not be read from /proc/cpuinfo; name the target, "
            'e.g. {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 4}'
        )
    isa = _own_ports(isa, info)
    count = cores or physical_cores(root)
    caches = _caches(root, isa.vector_bytes)
    row = cpu_spec(
        f"host ({info.get('model name', isa.name).strip()})",
        isa,
        count,
        _clock(root, info),
        caches,
        min(_MEMORY_PER_CORE * count, _MEMORY_MAX),
        "caches, clock and flags from /proc/cpuinfo and /sys; ports and bandwidths typical",
    )
    loads = GATHER_LOADS.get(info.get("vendor_id", ""), row.core.gather_loads)
    return replace(row, cpu=replace(row.core, gather_loads=loads))


def _own_ports(isa: Isa, info: Mapping[str, str]) -> Isa:
    """The extension with the ports of this very core, where they are not the typical ones."""
    generation = (info.get("vendor_id"), info.get("cpu family"))
    if generation == ("AuthenticAMD", str(ZEN_4)) and isa.vector_bytes == 64:
        return in_halves(isa)
    return isa


def physical_cores(root: Path = Path("/")) -> int:
    """Physical cores that this process may use (two threads of a core count once)."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    seen: set[tuple[str, str]] = set()
    for path in sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*")):
        number = int(path.name[3:])
        if root == Path("/") and allowed is not None and number not in allowed:
            continue
        package = _read(path / "topology/physical_package_id") or "0"
        seen.add((package, _read(path / "topology/core_id") or path.name))
    return len(seen) or os.cpu_count() or 1


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's fields."""
    first = _read(root / "proc/cpuinfo").split("\n\n")[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _clock(root: Path, info: dict[str, str]) -> float:
    khz = _read(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    if khz.isdigit():
        return int(khz) * 1e3
    try:
        return max(float(info["cpu MHz"]) * 1e6, 1e8)
    except (KeyError, ValueError):
        return _DEFAULT_CLOCK


def _caches(root: Path, vector_bytes: int) -> tuple[Cache, ...]:
    caches: dict[int, Cache] = {}
    for path in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*")):
        level, size = int(_read(path / "level") or 0), _size(_read(path / "size"))
        if level not in _BYTES_PER_CYCLE or size <= 0 or _read(path / "type") == "Instruction":
            continue
        ways = int(_read(path / "ways_of_associativity") or 0) or 8
        rate = _BYTES_PER_CYCLE[level] or 2.0 * vector_bytes
        line = int(_read(path / "coherency_line_size") or 0) or 64
        caches[level] = Cache(size, rate, ways, line, level >= 3, LINE_CYCLES[level])
    levels = tuple(caches[level] for level in sorted(caches))
    if not levels or any(a.size > b.size for a, b in pairwise(levels)):
        return caches_of(32 << 10, 512 << 10, 8 << 20, 8, vector_bytes)
    return levels


def _size(text: str) -> int:
    digits = text.rstrip("KMGkmg")
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(digits) * scale if digits.isdigit() else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
