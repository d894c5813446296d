"""Hardware row of the machine that measured a pool, and a description of this machine.

The row of a pool comes from its records' target and its meta.json, never from the host.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.hardware.cpus import ISAS, KIB, MIB, caches_of, cpu_spec, in_halves
from pruner_ms.hardware.lookup import row_of_device
from pruner_ms.tvm_compat.targets import attrs_of


@dataclass(frozen=True)
class Core:
    """A family of CPU cores by the model names of its chips.

    Attributes
    ----------
    l1, l2, l3, ways
        KiB and KiB of one core, MiB of a core complex; associativity of the first level.
    clock
        Hz, where the name gives none.
    double_pumped
        Whether a vector instruction is executed in two halves.
    """

    pattern: str
    isa: str
    l1: int
    l2: int
    l3: int
    ways: int
    clock: float
    double_pumped: bool = False


CORES = (
    # a cloud's "AMD EPYC" without a number is assumed to be of the current generation
    Core(
        r"amd epyc( 9..5.*|-turin.*)?|amd ryzen \S+ 9\d{3}.*",
        "avx512-bf16",
        48,
        1024,
        32,
        12,
        2.6e9,
    ),
    Core(
        r"amd epyc( 9..4.*|-genoa.*)|amd ryzen \S+ [78]\d{3}.*",
        "avx512-bf16",
        32,
        1024,
        32,
        8,
        2.6e9,
        double_pumped=True,
    ),
    Core(
        r"amd epyc( 7..3.*|-milan.*)|amd ryzen \S+ 5\d{3}.*",
        "avx2",
        32,
        512,
        32,
        8,
        2.5e9,
    ),
    Core(
        r"amd epyc( 7..2.*|-rome.*)|amd ryzen \S+ 3\d{3}.*",
        "avx2",
        32,
        512,
        16,
        8,
        2.4e9,
    ),
    Core(
        r"intel xeon.* [5-9][45]\d\d.*|intel xeon.*sapphire.*",
        "avx512-bf16",
        48,
        2048,
        32,
        12,
        2.6e9,
    ),
    Core(
        r"intel xeon.* [5-9]3\d\d.*|intel xeon.*icelake.*",
        "avx512",
        48,
        1280,
        32,
        12,
        2.6e9,
    ),
    Core(
        r"intel xeon.* [5-9][12]\d\d.*|intel xeon.*(skylake|cascadelake).*",
        "avx512",
        32,
        1024,
        24,
        8,
        2.6e9,
    ),
)
"""By model name without trademarks; the first match counts."""

SOURCE = "the vendors' optimisation manuals and product pages"

_NOISE = re.compile(r"\((r|tm)\)|\bcpu\b|\bprocessor\b|@.*|\d+-core", re.IGNORECASE)
_CLOCK = re.compile(r"@\s*([\d.]+)\s*GHz", re.IGNORECASE)


def hardware_of(target: Any, meta: Mapping[str, Any]) -> HardwareSpec:
    """The row of the machine that measured for a target.

    Parameters
    ----------
    target
        The records'.
    meta
        meta.json: "cpu" or "gpu" name the model; "mcpu" and "cores" count where the target has
        none.

    Raises
    ------
    TargetError
        No row fits.
    """
    attrs = _stated(meta) | attrs_of(target)
    if attrs["kind"] == "cuda":
        return _gpu(attrs, str(meta.get("gpu") or ""))
    named = cpu_named(str(meta.get("cpu") or ""))
    if named is None:
        return hardware_for(attrs, use_host=False)
    return hardware_for(attrs, host=named)


def _stated(meta: Mapping[str, Any]) -> dict[str, object]:
    """Attributes of an `llvm` target as meta.json has them."""
    attributes: dict[str, object] = {}
    cores, mcpu = meta.get("cores"), meta.get("mcpu")
    if type(cores) is int and cores > 0:
        attributes["num-cores"] = cores
    if isinstance(mcpu, str) and mcpu:
        attributes["mcpu"] = mcpu
    return attributes


def cpu_named(name: str) -> HardwareSpec | None:
    """The row of a CPU by its model name in /proc/cpuinfo; None where no pattern matches."""
    plain = " ".join(_NOISE.sub(" ", name).split()).lower()
    core = next((c for c in CORES if re.fullmatch(c.pattern, plain)), None)
    if core is None:
        return None
    isa = next(i for i in ISAS if i.name == core.isa)
    clock_text = _CLOCK.search(name)
    clock = float(clock_text[1]) * 1e9 if clock_text else core.clock
    caches = caches_of(core.l1 * KIB, core.l2 * KIB, core.l3 * MIB, core.ways, isa.vector_bytes)
    core_isa = in_halves(isa) if core.double_pumped else isa
    source = f"by the model name {name!r}: {SOURCE}"
    return cpu_spec(name, core_isa, 8, clock, caches, 80e9, source)


def _gpu(attrs: dict[str, object], device: str) -> HardwareSpec:
    """By the device's name, else by the target alone."""
    row = row_of_device(device.split(",")[0])
    return hardware_for(attrs if row is None else attrs | {"device_name": row.name})


def this_machine() -> dict[str, object]:
    """CPU, cores, load (of the last minute, per core), system and versions; no host name."""
    from pruner_ms.tvm_compat.paths import VERSION

    cores = os.cpu_count() or 1
    return {
        "cpu": cpu_model(),
        "cores": cores,
        "load": round(os.getloadavg()[0] / cores, 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "tvm": VERSION,
    }


def cpu_model() -> str:
    """The CPU's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
